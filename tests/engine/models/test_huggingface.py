"""Which models the engine runs and which it refuses with an explanation; prompts, templates and
stop tokens.
"""

import pytest
import torch
from made_runs import events_of, run_of
from tiny_models import tiny
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from eab.config import BranchingConfig
from eab.engine.caches.tree import TreeCache
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import wrap_model
from eab.engine.request import Request
from eab.errors import ModelError

EXPERTS = {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6}
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}w70{% endif %}"
)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: tiny("T5Config"), "'t5' is an encoder-decoder model"),
        (lambda: tiny("MambaConfig", state_size=4), "'mamba' has recurrent layers"),
        (lambda: tiny("OpenAIGPTConfig"), "'openai-gpt' has no attention that accepts"),
    ],
    ids=["encoder-decoder", "recurrent", "own attention"],
)
def test_a_family_that_the_caches_cannot_serve_is_refused_with_an_explanation(make, reason, words):
    with pytest.raises(ModelError, match=reason):
        HuggingFaceModel(make(), words, "it")
    model, tokens = tiny("DogeConfig"), torch.tensor([[3, 5, 8, 13]])
    with torch.inference_mode():
        before = model(tokens).logits
        with pytest.raises(ModelError):
            HuggingFaceModel(model, words, "it")
        assert torch.equal(model(tokens).logits, before), "a refused model is left unchanged"


def test_a_cache_that_disagrees_with_the_plain_model_is_refused(words, monkeypatch):
    honest = TreeCache.attend
    monkeypatch.setattr(TreeCache, "attend", lambda *arguments: 1.5 * honest(*arguments))
    with pytest.raises(ModelError, match="computes different logits with a tree cache"):
        HuggingFaceModel(tiny("LlamaConfig"), words, "it")
    assert "computes different logits" in wrap_model(tiny("LlamaConfig"), words).card.own_memory


# Prompts and stopping


@pytest.fixture
def chatty(words) -> PreTrainedTokenizerFast:
    """A tokenizer that, like Llama's, puts its first token (w0) before every text; its chat
    template does so, too.
    """
    words.add_special_tokens({"bos_token": "w0"})
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single="w0 $A", special_tokens=[("w0", 0)]
    )
    words.chat_template = TEMPLATE
    return words


def test_a_chat_prompt_gets_the_template_once_and_one_bos_token(chatty):
    model = wrap_model(tiny("LlamaConfig"), chatty)
    assert model.encode("w5 w6", BranchingConfig(chat=False)) == (0, 5, 6)
    chat = model.encode("w5 w6", BranchingConfig(chat=True))
    assert (chat[0], chat[-3:]) == (0, (5, 6, 70))
    assert chat == model.encode("w5 w6", BranchingConfig()), "it is used if there is one"
    text = chatty.apply_chat_template(
        [{"role": "user", "content": "w5 w6"}], add_generation_prompt=True, tokenize=False
    )
    assert chat == tuple(chatty.encode(text, add_special_tokens=False))
    chat = model.encode("w5", BranchingConfig(chat=True, system="w9 w8"))
    assert [token for token in chat if token in (9, 8, 5, 70)] == [9, 8, 5, 70]
    chatty.chat_template = "{% if deep.a[1] %}w9{% endif %}{{ word }}{{ messages[0].content }}"
    config = BranchingConfig(chat_template_kwargs={"deep": {"a": [0, True]}, "word": " w8 "})
    assert wrap_model(tiny("LlamaConfig"), chatty).encode("w5", config) == (9, 8, 5)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"chat": True}, "run it without chat"),
        ({"system": "w9"}, "which system requires; leave it empty"),
        ({"chat_template_kwargs": {"a": 1}}, "which chat_template_kwargs requires; leave it empty"),
    ],
    ids=lambda value: str(value)[:9],
)
def test_chat_without_a_template_is_refused_with_an_explanation(twins, settings, why):
    with pytest.raises(ModelError, match=f"llama has no chat template.*{why}"):
        events_of(twins("llama").ours, "w5", **settings)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ ''.__class__.__mro__ }}", r"SecurityError: access to attribute '__class__'"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ raise_exception('no system role') }}", "TemplateError: no system role"),
        ("{%", "TemplateSyntaxError"),
        ("{{ 'w5 ' * 10 ** 7 }}", "its output has more than 800,000 characters"),
    ],
)
def test_an_unusable_template_is_reported_with_the_reason(template, why, words):
    words.chat_template = template
    model = wrap_model(tiny("LlamaConfig"), words)
    with pytest.raises(ModelError, match=f"the chat template of .*{why}"):
        events_of(model, "w5", chat=True)


def test_every_stop_token_ends_a_path(words):
    model = tiny("LlamaConfig", eos_token_id=2)
    model.generation_config.eos_token_id = [2, 40, 41]
    wrapped = wrap_model(model, words)
    assert wrapped.stop_ids == {1, 2, 40, 41}
    settings = {"max_new_tokens": 60, "entropy_threshold": 0.5, "max_paths": 40}
    samples = run_of(wrapped, "w5 w6", **settings).samples
    ends = {sample.token_ids[-1] for sample in samples if sample.finish_reason == "stop"}
    assert len(ends) > 1
    assert ends <= wrapped.stop_ids
    assert not any(wrapped.stop_ids & set(sample.token_ids[:-1]) for sample in samples)


# The model stays usable elsewhere


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("LlamaConfig", {}),
        ("MistralConfig", {"sliding_window": 6}),
        ("Gemma2Config", {"head_dim": 8, "sliding_window": 6, "attn_logit_softcapping": 0.1}),
        ("GptOssConfig", EXPERTS),
    ],
)
def test_a_wrapped_model_still_generates_the_same_with_transformers(kind, more, words):
    plain, model = tiny(kind, **more), tiny(kind, **more)
    wrapped = wrap_model(model, words)
    running = event_stream(wrapped, Request("w5 w6", BranchingConfig(max_new_tokens=20)))
    for _ in range(30):
        next(running)
    prompts = torch.tensor([[3, 5, 8, 13, 21], [0, 0, 7, 9, 4]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    texts = [
        each.generate(
            prompts, attention_mask=mask, max_new_tokens=12, do_sample=False, pad_token_id=0
        ).tolist()
        for each in (plain, model)
    ]
    assert texts[0] == texts[1]
    assert len(list(running)) > 10
