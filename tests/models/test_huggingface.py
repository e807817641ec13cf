"""Which models the engine drives and which it refuses with an explanation; prompts, templates, stop
tokens, token texts.
"""

import random
import time
from itertools import zip_longest
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from eab import token_text
from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.errors import ModelError, PromptError
from eab.models.loading import EMBEDDED_FOLDER, load_model, wrap_model
from eab.models.token_bytes import TokenTexts
from eab.run import RunFold, fold

SMALL = {
    "vocab_size": 72,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
BLOOM = transformers.BloomConfig(vocab_size=72, hidden_size=32, n_layer=1, n_head=4)
PLAIN = BranchingConfig()
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}w70{% endif %}"
)


def causal(kind: str, **more: object) -> PreTrainedModel:
    """A tiny random model; `kind` is the name of its config class in transformers."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(getattr(transformers, kind)(**SMALL | more))


@pytest.fixture
def llama_folder(tmp_path, words) -> Path:
    """A folder with a saved tiny Llama."""
    causal("LlamaConfig").save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    return tmp_path


# Families that are refused


def t5() -> PreTrainedModel:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=72, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    )


def mamba() -> PreTrainedModel:
    return transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=72, hidden_size=32, num_hidden_layers=1, state_size=4)
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (t5, "'t5' is an encoder-decoder model"),
        (mamba, "'mamba' has no attention that can be given another cache"),
        (lambda: causal("Gemma2Config", head_dim=8), "'gemma2' caps its attention scores"),
        (
            lambda: causal("Llama4TextConfig", head_dim=8, num_local_experts=2),
            "layers of kind chunked_attention",
        ),
        (
            lambda: causal("GptOssConfig", head_dim=8, num_local_experts=4, num_experts_per_tok=2),
            "sinks",
        ),
        (lambda: transformers.BloomForCausalLM(BLOOM), "'bloom' has no attention"),
    ],
    ids=["encoder-decoder", "recurrent", "soft-capped", "chunked", "sinks", "alibi"],
)
def test_a_family_that_the_engine_cannot_drive_is_refused_in_words(make, reason, words):
    with pytest.raises(ModelError, match=reason):
        wrap_model(make(), words)


def test_a_model_that_is_refused_is_left_as_it_was(words):
    model = causal("GptOssConfig", head_dim=8, num_local_experts=4, num_experts_per_tok=2).eval()
    tokens = torch.tensor([[3, 5, 8, 13]])
    with torch.inference_mode():
        before = model(tokens).logits
        with pytest.raises(ModelError):
            wrap_model(model, words)
        assert torch.equal(model(tokens).logits, before)


def test_a_cache_that_disagrees_with_the_plain_model_is_refused(words, monkeypatch):
    from eab.caches.tree import TreeCache

    honest = TreeCache.attend
    monkeypatch.setattr(
        TreeCache,
        "attend",
        lambda self, layer, q, k, v, scale: honest(self, layer, q, k, v, scale) * 1.5,
    )
    with pytest.raises(ModelError, match="computes other logits through a tree cache"):
        wrap_model(causal("LlamaConfig"), words)


@pytest.mark.parametrize(
    ("kind", "more", "context"),
    [
        ("MistralConfig", {"sliding_window": 16}, 16),
        ("MistralConfig", {"sliding_window": None}, 128),
        ("MistralConfig", {"sliding_window": 4096}, 128),
        (
            "Qwen2Config",
            {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
            16,
        ),
        ("Qwen2Config", {"use_sliding_window": False, "sliding_window": 16}, 128),
        ("Gemma3TextConfig", {"sliding_window": 24, "head_dim": 8}, 24),
        ("LlamaConfig", {"max_position_embeddings": 64}, 64),
    ],
)
def test_the_context_is_what_every_layer_reads_in_full(kind, more, context, words):
    assert wrap_model(causal(kind, **more), words).context == context


def test_a_sliding_window_limits_prompt_and_new_tokens_together(words):
    model = wrap_model(causal("MistralConfig", sliding_window=16), words)
    fits = BranchingConfig(max_new_tokens=11, entropy_threshold=20)
    assert len(fold(generate(model, Request("w5 w6 w7 w8 w9", fits))).samples()[0].tokens) >= 1
    with pytest.raises(PromptError, match="reads 16 in all"):
        list(generate(model, Request("w5 w6 w7 w8 w9 w10", fits)))


# Loading


def test_a_folder_loads_and_is_named_as_it_was_given(llama_folder):
    model = load_model(str(llama_folder), device="cpu", dtype="float64")
    assert model.card.name == str(llama_folder)
    assert (model.card.dtype, model.card.device, model.card.kv_heads) == ("float64", "cpu", 2)
    assert model.card.row_bytes == 2 * 2 * 2 * 8 * 8


def test_a_folder_with_pickled_weights_only_is_refused(llama_folder):
    torch.save({"evil": torch.zeros(1)}, llama_folder / "pytorch_model.bin")
    (llama_folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot be loaded: .*safetensors"):
        load_model(str(llama_folder))


def test_a_folder_with_broken_weights_is_refused(llama_folder):
    (llama_folder / "model.safetensors").write_bytes(b"\x08" + bytes(40))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(llama_folder))


def test_a_folder_that_asks_for_its_own_code_is_refused(llama_folder):
    config = llama_folder / "config.json"
    text = config.read_text().replace('"model_type": "llama"', '"model_type": "homemade"')
    config.write_text(
        text.replace(
            "{", '{"auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"},', 1
        )
    )
    (llama_folder / "code.py").write_text("raise SystemExit('the code of a stranger ran')")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(llama_folder))


def test_a_saved_encoder_decoder_is_refused(tmp_path, words):
    t5().save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    "name", ["./no/such/folder", "/no/such/folder", "~/no/such/folder", "a/b/c", "a\\b", "a b"]
)
def test_a_name_that_can_only_be_a_folder_is_said_to_be_missing(name):
    with pytest.raises(ModelError, match="there is no such folder"):
        load_model(name)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_answered_with_what_can_be_named(name):
    with pytest.raises(ModelError, match="no model is named; give 'embedded', a folder, or an id"):
        load_model(name)


def test_a_folder_without_a_config_holds_no_model(tmp_path):
    with pytest.raises(ModelError, match=r"holds no model: its config\.json is missing"):
        load_model(str(tmp_path))


def test_an_unknown_id_is_explained_soon():
    start = time.monotonic()
    with pytest.raises(ModelError, match=r"no-such-owner/no-such-model.*Hub"):
        load_model("no-such-owner/no-such-model")
    assert time.monotonic() - start < 15


def test_an_unknown_id_is_explained_while_the_hub_is_switched_off(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ModelError,
        match=r"no-such-owner/no-such-model' cannot be loaded from the Hub: .*offline mode",
    ):
        load_model("no-such-owner/no-such-model")


def test_a_hub_that_cannot_be_reached_is_said_in_words(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError) as caught:
        load_model("no-such-owner/no-such-model")
    assert "the Hugging Face Hub cannot be reached. Check the network, or choose" in str(
        caught.value
    )
    assert "Errno" not in str(caught.value)


def test_a_device_or_dtype_that_does_not_exist_is_named(llama_folder):
    with pytest.raises(ModelError, match="device is 'abacus'; this machine cannot use it"):
        load_model(str(llama_folder), device="abacus")
    with pytest.raises(
        ModelError, match="dtype is 'int4'; it must be one of: auto, float64, float32"
    ):
        load_model(str(llama_folder), dtype="int4")


# Prompts and stopping


@pytest.fixture
def chatty(words) -> PreTrainedTokenizerFast:
    """A tokenizer that puts its first token (w0) before every text, as Llama's does; its chat
    template does so, too.
    """
    words.add_special_tokens({"bos_token": "w0"})
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single="w0 $A", special_tokens=[("w0", 0)]
    )
    words.chat_template = TEMPLATE
    return words


def test_a_chat_prompt_gets_the_template_once_and_one_first_token(chatty):
    model = wrap_model(causal("LlamaConfig"), chatty)
    assert model.encode("w5 w6", PLAIN) == (0, 5, 6)
    chat = model.encode("w5 w6", BranchingConfig(chat=True))
    assert chat[0] == 0
    assert chat[-3:] == (5, 6, 70)
    text = chatty.apply_chat_template(
        [{"role": "user", "content": "w5 w6"}], add_generation_prompt=True, tokenize=False
    )
    assert chat == tuple(chatty.encode(text, add_special_tokens=False))


def test_a_system_message_comes_before_the_prompt(chatty):
    model = wrap_model(causal("LlamaConfig"), chatty)
    chat = model.encode("w5", BranchingConfig(chat=True, system="w9 w8"))
    assert [token for token in chat if token in (9, 8, 5, 70)] == [9, 8, 5, 70]


def test_chat_without_a_template_is_refused_in_words(twins):
    with pytest.raises(ModelError, match="llama has no chat template; run it without chat"):
        next(generate(twins("llama").ours, Request("w5", BranchingConfig(chat=True))))


def test_every_id_that_ends_a_text_stops_a_path(words):
    model = causal("LlamaConfig", eos_token_id=2)
    model.generation_config.eos_token_id = [2, 40, 41]
    wrapped = wrap_model(model, words)
    assert wrapped.stop_ids == {1, 2, 40, 41}
    config = BranchingConfig(max_new_tokens=60, entropy_threshold=0.5, max_paths=40)
    samples = fold(generate(wrapped, Request("w5 w6", config))).samples()
    ends = {sample.token_ids[-1] for sample in samples if sample.finish_reason == "stop"}
    assert len(ends) > 1
    assert ends <= wrapped.stop_ids
    assert not any(wrapped.stop_ids & set(sample.token_ids[:-1]) for sample in samples)


# The model stays usable elsewhere


@pytest.mark.parametrize("kind", ["LlamaConfig", "Qwen2Config", "MistralConfig"])
def test_a_wrapped_model_still_generates_the_same_with_transformers(kind, words):
    plain, model = causal(kind).eval(), causal(kind).eval()
    wrapped = wrap_model(model, words)
    running = generate(wrapped, Request("w5 w6", BranchingConfig(max_new_tokens=20)))
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


def test_two_runs_of_one_model_do_not_disturb_each_other(twins):
    model = twins("qwen2").ours
    config = BranchingConfig(max_new_tokens=10, entropy_threshold=1.5, max_paths=6)
    prompts = ("w5 w6", "w40 w41 w42")
    alone = [fold(generate(model, Request(prompt, config))).samples() for prompt in prompts]
    running = [generate(model, Request(prompt, config)) for prompt in prompts]
    runs = [RunFold(), RunFold()]
    for pair in zip_longest(*running):
        for run, event in zip(runs, pair, strict=True):
            if event is not None:
                run.apply(event)
    assert [run.started_run().samples() for run in runs] == alone


# Token texts


def joined(texts: TokenTexts, tokens: list[int]) -> str:
    return token_text.join(texts[token] for token in tokens)


def ordinary_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    return sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids))


def random_sequences(ids: list[int]) -> list[list[int]]:
    rng = random.Random(7)
    return [[token] for token in ids] + [
        rng.choices(ids, k=rng.randint(2, 12)) for _ in range(3000)
    ]


def test_texts_of_byte_level_tokens_join_to_what_the_tokenizer_decodes(embedded):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    texts = TokenTexts(tokenizer)
    for tokens in random_sequences(ordinary_ids(tokenizer)):
        assert joined(texts, tokens) == tokenizer.decode(tokens, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize(
    "text", ["Tom said: “Café?” 🙂🙂 漢字\n\tok", "naïve \u202e \x00 <script>", "e\u0301 👩‍👩‍👧"]
)
def test_a_text_survives_byte_level_tokens_whatever_it_says(embedded, text):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert joined(TokenTexts(tokenizer), tokens) == text


def test_texts_of_sentencepiece_tokens_join_to_what_the_tokenizer_decodes(stories_folder):
    tokenizer = AutoTokenizer.from_pretrained(stories_folder)
    texts = TokenTexts(tokenizer)
    for tokens in random_sequences(
        [token for token in ordinary_ids(tokenizer) if not is_byte(tokenizer, token)]
    ):
        assert joined(texts, tokens).removeprefix(" ") == tokenizer.decode(tokens)


def test_a_text_survives_sentencepiece_tokens_whatever_it_says(stories_folder):
    tokenizer = AutoTokenizer.from_pretrained(stories_folder)
    text = "Tom said: “Café?” 🙂 漢字 <script>"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert any(is_byte(tokenizer, token) for token in tokens)
    assert joined(TokenTexts(tokenizer), tokens).removeprefix(" ") == text


def is_byte(tokenizer: PreTrainedTokenizerFast, token: int) -> bool:
    return tokenizer.convert_ids_to_tokens(token).startswith("<0x")


def test_ids_beyond_the_vocabulary_and_control_tokens_have_a_text_too(words):
    texts = TokenTexts(words)
    assert texts[70_000] == "<unused 70000>"
    assert texts[1] == "<end>"
    assert texts.is_special(1)
    assert not texts.is_special(5)


def test_the_sentencepiece_model_runs_end_to_end(stories_folder):
    model = load_model(str(stories_folder), device="cpu")
    config = BranchingConfig(max_new_tokens=12, entropy_threshold=1.0, max_paths=6)
    run = fold(generate(model, Request("Once upon a time", config)))
    assert run.started is not None
    assert "".join(run.started.prompt_texts[1:]).strip() == "Once upon a time"
    assert len(run.samples()) > 1
    assert all(sample.text.startswith((" ", ",")) for sample in run.samples())
