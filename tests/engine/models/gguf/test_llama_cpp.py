"""SmolLM2 here and in llama.cpp, from the same GGUF file: the same tokens and probabilities."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from write_gguf import in_float32

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request
from eab.run import fold
from scripts.llama_server import llama_server

pytestmark = pytest.mark.slow

NEW_TOKENS = 12
PROMPTS = (
    "What is the capital of Australia?",
    "Write 3 lines about 2024-11-07 in Zürich.",
    "def f(x):\n    return x**2",
    "Hello",
    "Explain   why 12345 is odd.",
    "Was heißt „Straße“ auf Englisch?",
)
TEXTS = (
    *PROMPTS,
    "What's 7*8?",
    "The quick brown fox's tail",
    "日本語 и русский 👩‍🚀\t\t x",
    "1000000 1,5 ½ ²",
    " \n\n  a<|im_end|>b",
)


def answer(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    sent = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(sent, timeout=120) as found:
        value: dict[str, Any] = json.load(found)
        return value


@pytest.fixture(scope="module")
def as_it_is(smollm2_file: Path) -> Iterator[str]:
    with llama_server(smollm2_file) as (url, _):
        yield url


@pytest.fixture(scope="module")
def exact(smollm2_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("float32")
    with llama_server(in_float32(smollm2_file, folder / "smollm2.gguf")) as (url, _):
        yield url


def greedy(url: str, ids: list[int]) -> tuple[list[int], list[list[dict[str, Any]]]]:
    """Return the continuation of llama.cpp, and its most likely tokens at each position."""
    asked = {"prompt": ids, "n_predict": NEW_TOKENS, "n_probs": 5, "temperature": 0}
    found = answer(url, "/completion", asked | {"cache_prompt": False, "return_tokens": True})
    return found["tokens"], [one["top_logprobs"] for one in found["completion_probabilities"]]


def chat_ids(model: HuggingFaceModel, prompt: str) -> list[int]:
    return list(model.encode(prompt, BranchingConfig(chat=True)))


def differences(model: HuggingFaceModel, url: str, prompt: str) -> list[float]:
    """Differences in nats between our and llama.cpp's log-probabilities of its five best tokens."""
    ids = chat_ids(model, prompt)
    tokens, best = greedy(url, ids)
    with torch.inference_mode():
        logits = model._model(torch.tensor([ids + tokens]), use_cache=False).logits[0]
    ours = logits.log_softmax(-1)[len(ids) - 1 :]
    return [
        abs(float(row[one["id"]]) - one["logprob"])
        for row, most in zip(ours, best, strict=False)
        for one in most
    ]


def test_text_is_tokenised_as_in_llama_cpp(smollm2, as_it_is):
    for text in TEXTS:
        asked = {"content": text, "parse_special": True, "add_special": False}
        theirs = answer(as_it_is, "/tokenize", asked)["tokens"]
        assert smollm2._tokenizer.encode(text) == theirs


def test_a_chat_is_tokenised_as_in_llama_cpp(smollm2, as_it_is):
    for prompt in PROMPTS:
        asked = {"messages": [{"role": "user", "content": prompt}]}
        text = answer(as_it_is, "/apply-template", asked)["prompt"]
        theirs = answer(as_it_is, "/tokenize", {"content": text, "parse_special": True})
        assert chat_ids(smollm2, prompt) == theirs["tokens"]


def test_equal_weights_give_the_same_greedy_tokens_and_log_probabilities(smollm2, exact):
    settings = BranchingConfig(policy="greedy", chat=True, max_new_tokens=NEW_TOKENS)
    for prompt in PROMPTS[:4]:
        theirs, _ = greedy(exact, chat_ids(smollm2, prompt))
        [sample] = fold(event_stream(smollm2, Request(prompt, settings))).samples
        stopped = sample.finish_reason == "stop"
        ours = sample.token_ids[:-1] if stopped else sample.token_ids
        assert list(ours) == theirs[: len(ours)], prompt
        assert max(differences(smollm2, exact, prompt)) < 2e-3, prompt


def test_the_same_file_gives_nearly_the_same_log_probabilities(smollm2, as_it_is):
    """llama.cpp multiplies 4-bit blocks by inputs that it rounds to 8 bits."""
    all_of_them = [one for prompt in PROMPTS[:4] for one in differences(smollm2, as_it_is, prompt)]
    assert len(all_of_them) > 5 * 4
    assert sum(all_of_them) / len(all_of_them) < 0.15
    assert max(all_of_them) < 1.5
