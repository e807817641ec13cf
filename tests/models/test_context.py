"""The context is what was trained: texts up to it give the logits of the plain model."""

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.errors import PromptError
from eab.events import TokensAppended
from eab.models.loading import wrap_model

SIZES = {
    "vocab_size": 72,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 32,
}

SLIDING_MASK = {  # only the mask slides: the layers hold no window
    "sliding_window": 16,
    "use_sliding_window": False,
    "layer_types": ["sliding_attention", "full_attention"],
}
QWEN_WINDOW = {"sliding_window": 16, "use_sliding_window": True}
TEMPERATURE = {
    "floor_scale": 20,
    "attn_scale": 0.5,
    "head_dim": 8,
    "intermediate_size_mlp": 48,
    "num_local_experts": 2,
    "layer_types": ["full_attention"] * 2,
    "no_rope_layers": [1, 0],
}


def made(kind, **more):
    torch.manual_seed(1)
    config = getattr(transformers, kind)(**SIZES | more)
    return AutoModelForCausalLM.from_config(config).double().eval()


@pytest.mark.parametrize(
    ("kind", "more", "context"),
    [
        ("MistralConfig", {"sliding_window": 16, "use_sliding_window": False}, 128),
        ("MistralConfig", {"sliding_window": 16, "layer_types": ["full_attention"] * 2}, 128),
        ("Phi3Config", {"sliding_window": 16, "use_sliding_window": False}, 128),
        ("Starcoder2Config", {"sliding_window": 16, "use_sliding_window": False}, 128),
        ("Qwen2Config", {"sliding_window": 16, "use_sliding_window": False}, 128),
        ("Qwen2Config", QWEN_WINDOW | {"max_window_layers": 1}, 128),
        ("Qwen2Config", QWEN_WINDOW | {"max_window_layers": 2}, 128),
        ("Phi3Config", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32}, 32),
        ("SmolLM3Config", SLIDING_MASK, 128),
        ("Llama4TextConfig", TEMPERATURE, 128),
        ("LlamaConfig", {}, 128),
        ("LlamaConfig", {"max_position_embeddings": 64}, 64),
        ("MistralConfig", {"sliding_window": 16}, 128),
        ("MistralConfig", {"sliding_window": None}, 128),
        ("MistralConfig", {"sliding_window": 4096}, 128),
        ("Gemma3TextConfig", {"sliding_window": 24, "head_dim": 8}, 128),
    ],
)
def test_windows_do_not_shorten_the_context(kind, more, context, words):
    assert wrap_model(made(kind, **more), words).context == context


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("MistralConfig", {"sliding_window": 16, "use_sliding_window": False}),
        ("Phi3Config", {"sliding_window": 16, "layer_types": ["full_attention"] * 2}),
        ("Phi3Config", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32}),
        ("SmolLM3Config", SLIDING_MASK),
        ("Llama4TextConfig", TEMPERATURE),
    ],
)
def test_up_to_the_last_position_the_logits_are_those_of_the_plain_model(kind, more, words):
    plain, ours = made(kind, **more), wrap_model(made(kind, **more), words)
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
