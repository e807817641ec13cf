"""The context is the trained length: texts up to it give the logits of the plain model."""

from functools import cache, partial
from itertools import cycle

import pytest
import torch
from equality import assert_same_decisions
from made_runs import run_of
from tiny_models import tiny, word_tokenizer

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.loading import wrap_model
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.errors import PromptError
from eab.run import fold
from eab.run.events import TokensAppended

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 32,
}
PHI_LONG = {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32}

SLIDING_MASK = {  # only the mask has a window; the layers do not
    "sliding_window": 16,
    "use_sliding_window": False,
    "layer_types": ["sliding_attention", "full_attention"],
}
TEMPERATURE = {
    "floor_scale": 20,
    "attn_scale": 0.5,
    "head_dim": 8,
    "intermediate_size_mlp": 48,
    "num_local_experts": 2,
    "layer_types": ["full_attention"] * 2,
    "no_rope_layers": [1, 0],
}
made = partial(tiny, dtype=torch.float64, seed=1, spread=0.3, pad_token_id=0)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("MistralConfig", {"sliding_window": 16, "use_sliding_window": False}),
        ("Phi3Config", PHI_LONG),
        ("SmolLM3Config", SLIDING_MASK),
        ("Llama4TextConfig", TEMPERATURE),
    ],
)
def test_up_to_the_last_position_the_logits_are_those_of_the_plain_model(kind, more, words):
    plain, ours = made(kind, **more), wrap_model(made(kind, **more), words)
    assert ours.context == 128, "windows do not shorten it"
    new = 6
    prompt = " ".join(f"w{2 + index % 60}" for index in range(ours.context - new))
    config = BranchingConfig(max_new_tokens=new, max_paths=1, policy="greedy")
    tokens = words(prompt)["input_ids"]
    for event in event_stream(ours, Request(prompt, config)):
        if isinstance(event, TokensAppended):
            with torch.inference_mode():
                logits = plain(torch.tensor([tokens]), use_cache=False).logits[0, -1]
            [new] = event.tokens
            expected = logits.log_softmax(-1)[new.token].item()
            assert new.log_prob == pytest.approx(expected, abs=1e-9)
            tokens.append(new.token)
    with pytest.raises(PromptError, match=f"is {ours.context} tokens"):
        next(event_stream(ours, Request(f"{prompt} w5", config)))


@pytest.fixture(scope="module")
def longrope():
    """A tiny Phi-3 whose rotary factors change at 32 tokens: plain and wrapped."""
    ours = wrap_model(made("Phi3Config", **PHI_LONG), word_tokenizer())
    assert ours.card.own_decoder
    return made("Phi3Config", **PHI_LONG), ours


@pytest.fixture(scope="module")
def plain_logits(longrope):
    """plain_logits(text) -> logits of the plain model; cached, because leaves share most texts."""

    @cache
    @torch.inference_mode()
    def logits(text):
        return longrope[0](torch.tensor([text]), use_cache=False).logits[0, -1]

    return logits


CROSSING = BranchingConfig(
    max_new_tokens=14, max_paths=20, min_fork_weight=0.1, entropy_threshold=0.5, temperature=3.0
)


WAYS = [
    *({"cache": name} for name in ("tree", "deep-copy", "concat-cow", "recompute")),
    {"attention": "padded", "r": 5},
    {"drafter": "prompt-lookup", "draft_length": 4},
]


@pytest.mark.parametrize(
    ("length", "more"), [*zip(cycle([20, 28, 31, 32, 33]), WAYS * 2, strict=False)], ids=str
)
def test_a_run_across_the_original_length_equals_passes_over_whole_texts(
    length, more, longrope, plain_logits
):
    """Longrope: in texts of more than 32 tokens, all positions are rotated by other factors."""
    ours = longrope[1]
    assert "In texts of more than 32 tokens" in ours.card.attention
    prompt = " ".join(f"w{2 + index % 7}" for index in range(length))
    run = run_of(ours, prompt, CROSSING, **more)
    assert len(run.leaves()) > 2
    for leaf in run.leaves():
        text = tuple(run.started.prompt_tokens)
        for token in run.tokens(leaf.id):
            log_probs = (plain_logits(text) / CROSSING.temperature).log_softmax(-1)
            assert token.log_prob == pytest.approx(log_probs[token.id].item(), abs=1e-9)
            entropy = torch.special.entr(log_probs.exp()).sum().item()
            assert token.entropy == pytest.approx(entropy, abs=1e-9)
            text += (token.id,)


def test_runs_on_both_sides_of_the_original_length_share_passes(words):
    ours = wrap_model(made("Phi3Config", **PHI_LONG), words)
    prompts = [" ".join(f"w{2 + i % 11}" for i in range(length)) for length in (12, 29, 40)]
    scheduler = Scheduler(ours)
    handles = [scheduler.submit(Request(prompt, CROSSING)) for prompt in prompts]
    for handle, prompt in zip(handles, prompts, strict=True):
        assert_same_decisions(fold(list(handle)), run_of(ours, prompt, CROSSING))
