"""What the library says to a wrong call, in one file for people to read: messages.txt.

`EAB_WRITE=1 pytest tests/api/test_messages.py` writes it again; then read the diff.
"""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from table_model import TableModel, random_table
from tiny_models import chat_pair, shared, word_tokenizer
from transformers import MinPLogitsWarper

import eab
from eab import BranchingConfig, EntropyAdaptiveBranching, Grid, Run
from eab.errors import EabError
from eab.lessons import bundled_runs

FILE = Path(__file__).with_name("messages.txt")
MODEL = TableModel(random_table(2, 5), stop_ids=[4])
EXPLORER = EntropyAdaptiveBranching(MODEL, max_new_tokens=3)
LOADED = EntropyAdaptiveBranching((shared("llama"), word_tokenizer()), max_new_tokens=3)
COIN = Run(bundled_runs.events_of(bundled_runs.named("coin.eab")))
PAIR, GRID = chat_pair(), Grid({"top_k": [2, 3]}, BranchingConfig(max_new_tokens=2))
PROCESSOR = MinPLogitsWarper(0.1)


def often(prediction: object, leaf: object) -> bool:
    return True


def processed(change: Callable[[Any], object]) -> Run:
    """A run with a logits processor between two harmless ones."""

    def harmless(ids: object, scores: Any) -> Any:
        return scores + 1.0

    def wrong(ids: object, scores: Any) -> Any:
        return change(scores)

    return EXPLORER.run("0", logits_processor=[harmless, wrong, harmless])


CALLS: dict[str, Callable[[], Any]] = {
    'explorer("no-such-owner/no-such-model", branch_factor=1)': lambda: EntropyAdaptiveBranching(
        "no-such-owner/no-such-model", branch_factor=1
    ),
    "explorer(model, beam=4)": lambda: EntropyAdaptiveBranching(MODEL, beam=4),
    "explorer(a model that is not there, logits_processor=3)": lambda: EntropyAdaptiveBranching(
        "no-such-owner/no-such-model", logits_processor=3
    ),
    "explorer(None)": lambda: EntropyAdaptiveBranching(None),
    "explorer((3, 4))": lambda: EntropyAdaptiveBranching((3, 4)),
    "explorer(model without tokenizer)": lambda: EntropyAdaptiveBranching(PAIR[0]),
    'explorer("embedded", tokenizer=tokenizer)': lambda: EntropyAdaptiveBranching(
        "embedded", tokenizer=PAIR[1]
    ),
    **{
        f"explorer(pair, {name}={value!r})": lambda more={name: value}: EntropyAdaptiveBranching(
            PAIR, **more
        )
        for name, value in {"weights": "int8", "dtype": "bfloat16", "device": "cpu"}.items()
    },
    "explorer(model, prefix_cache_mib=-1)": lambda: EntropyAdaptiveBranching(
        MODEL, prefix_cache_mib=-1
    ),
    "eab.generat": lambda: eab.generat,
    **{
        f"run(prompt, {', '.join(f'{name}={value!r}' for name, value in more.items())})": (
            lambda more=more: EXPLORER.run("0", **more)
        )
        for more in (
            {"threshold": 0.3},
            {"model_name": "embedded"},
            {"messages": "a"},
            {"logits_processors": []},
            {"should_fork": 1},
            {"parse_special": "yes"},
            {"draft_length": 17},
            {"temperature": 0, "policy": "arithmetic"},
            {"drafter": "model"},
            {"keep_logits": "02"},
            {"keep_logits": 3},
            {"keep_logits": [-1]},
            {"keep_logits": [3]},
            {"keep_logits": range(10**12)},
            {"logits_processor": MinPLogitsWarper},
        )
    },
    "generate(prompt, keep_logits=[0])": lambda: EXPLORER.generate("0", keep_logits=[0]),
    "run(prompt, 256 paths, keep_logits=range(400))": lambda: EntropyAdaptiveBranching(
        max_paths=256, max_new_tokens=400
    ).run("The cat", keep_logits=range(400)),
    "run(prompt, a draft of another vocabulary)": lambda: EntropyAdaptiveBranching(
        "embedded", draft=MODEL, drafter="model"
    ).run("The cat"),
    "run(prompt, a processor and a drafter)": lambda: EXPLORER.run(
        "0", logits_processor=PROCESSOR, drafter="prompt-lookup"
    ),
    "run(prompt, 65 processors)": lambda: EXPLORER.run("0", logits_processor=[PROCESSOR] * 65),
    "a processor returns None": lambda: processed(lambda scores: None),
    "a processor returns 9 scores": lambda: processed(lambda scores: torch.zeros(9)),
    "a processor returns NaN": lambda: processed(lambda scores: scores * math.nan),
    "a processor returns -inf": lambda: processed(lambda scores: scores - math.inf),
    "a processor returns +inf": lambda: processed(lambda scores: scores + math.inf),
    **{
        f"score([5], {texts!r})": lambda texts=texts: LOADED.score([5], texts)
        for texts in ("yes", [], [""], [7.5], [[]], [[99_999]], ["zebra \N{SNOWMAN}"])
    },
    "sweep(model, [3])": lambda: eab.sweep(LOADED.model, ["w5", 3], GRID),  # type: ignore[list-item]
    "sweep(model, a message without a role)": lambda: eab.sweep(
        LOADED.model, [[{"role": "", "content": "w5"}]], GRID
    ),
    "sweep(own policy, a folder)": lambda: eab.sweep(
        MODEL, ["0"], Grid({"policy": ["fair", often]}, BranchingConfig()), folder="x"
    ),
    "Grid(own policy twice)": lambda: Grid({"policy": [often, often]}, BranchingConfig()),
    "run.what_if(threshold=-1)": lambda: COIN.what_if(threshold=-1),
    'run.to_pandas("paths")': lambda: COIN.to_pandas("paths"),  # type: ignore[arg-type]
    "run.continuation(99, 0)": lambda: COIN.continuation(99, 0),
    "run.continuation(0, 10**6)": lambda: COIN.continuation(0, 10**6),
    "run.save(None)": lambda: COIN.save(None),  # type: ignore[arg-type]
    "eab.show([])": lambda: eab.show(["a"]),  # type: ignore[list-item]
    "eab.load(a null character)": lambda: eab.load("a\0b"),
    'run.answers("text", "exactly")': lambda: COIN.answers("text", "exactly"),
    "run.answers(lambda text: 3)": lambda: COIN.answers(lambda text: 3),  # type: ignore
    "run.answers(same: two arguments)": lambda: COIN.answers("text", lambda one, other: True),  # type: ignore
    "run.answers(same: 0.8)": lambda: COIN.answers("text", lambda *texts: 0.8),  # type: ignore
    "imported.what_if(threshold=1)": lambda: eab.from_samples(["a"], "b").what_if(threshold=1),
    "from_samples(7)": lambda: eab.from_samples(7),  # type: ignore[arg-type]
    "from_samples([object()])": lambda: eab.from_samples([object()]),
    "from_samples(two prompts)": lambda: eab.from_samples(
        [{"prompt": prompt, "text": "yes"} for prompt in ("one", "two")]
    ),
}


def said(call: Callable[[], Any]) -> str:
    with pytest.raises((EabError, AttributeError)) as caught:
        call()
    words = re.sub(r"0x[0-9a-f]+", "0x0", str(caught.value))
    return f"{type(caught.value).__name__}: {words}"


def test_the_messages_are_those_of_the_file() -> None:
    found = "".join(f"{name}\n    {said(call)}\n" for name, call in CALLS.items())
    if os.environ.get("EAB_WRITE"):
        FILE.write_text(found, encoding="utf-8")
    assert found == FILE.read_text(encoding="utf-8")
