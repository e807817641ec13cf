"""Exports agree with the run: the exported program reproduces it, and the tables keep their types
in a round trip.
"""

from dataclasses import replace
from io import BytesIO, StringIO
from typing import Any

import pandas as pd
import pytest
from equality import untimed

from eab.api.branching import EntropyAdaptiveBranching
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request, continue_from
from eab.figures.tables import steps_table, tokens_table
from eab.lessons import bundled_runs
from eab.run import fold, record
from eab.run.events import RunStarted
from eab.share.exports import as_python

CONFIGS = [
    BranchingConfig(),
    BranchingConfig(
        entropy_threshold=3.0,
        threshold_unit="rank",
        branch_factor=2,
        min_fork_weight=0.01,
        temperature=0.7,
        top_k=50,
    ),
    BranchingConfig(
        policy="original", cache="deep-copy", seed=2**40 + 1, r=1, top_p=0.9, kv_limit_mib=512
    ),
]
PROMPTS = [
    "Once upon a time",
    "He said \"no\" \\ and {left}.\nThen\t'she' café 🙂 $x$",
    "\u202eback",
]


@pytest.mark.parametrize(("config", "prompt"), list(zip(CONFIGS, PROMPTS, strict=True)))
def test_the_exported_program_reproduces_the_run(
    embedded: HuggingFaceModel, config: BranchingConfig, prompt: str
) -> None:
    short = replace(config, max_new_tokens=12)
    events = list(event_stream(embedded, Request(prompt, short)))
    started = next(event for event in events if isinstance(event, RunStarted))
    scope: dict[str, Any] = {}
    exec(compile(as_python(started), "program", "exec"), scope)
    assert scope["run"].samples == fold(events).samples
    assert untimed(scope["explorer"].stream(prompt)) == untimed(events)


def test_the_exported_program_allows_the_same_control_tokens(embedded: HuggingFaceModel) -> None:
    text, short = "a<|endoftext|>b", replace(CONFIGS[0], max_new_tokens=2)
    events = list(event_stream(embedded, Request(text, short, parse_special=True)))
    scope: dict[str, Any] = {}
    exec(compile(as_python(fold(events).started), "program", "exec"), scope)
    assert scope["run"].started == fold(events).started


def test_the_exported_program_gives_token_ids_that_are_not_those_of_their_text(
    embedded: HuggingFaceModel,
) -> None:
    ids, short = embedded.encode("O") + embedded.encode("n")[1:], CONFIGS[0]
    short = replace(short, max_new_tokens=4)
    events = list(event_stream(embedded, Request("", short, token_ids=ids)))
    started = fold(record.loads(record.dumps(events))).started
    assert embedded.encode(started.prompt, short) != started.prompt_tokens == ids
    scope: dict[str, Any] = {}
    exec(compile(as_python(started), "program", "exec"), scope)
    assert scope["run"].started == started
    assert scope["run"].samples == fold(events).samples
    longer = continue_from(embedded, started, scope["run"].samples[0].token_ids[:2], short)
    again = fold(event_stream(embedded, longer)).started
    exec(compile(as_python(again), "program", "exec"), scope)
    assert scope["run"].started == again
    other = replace(short, system="Be brief.")
    assert continue_from(embedded, started, (), other).token_ids == ids


def test_the_exported_program_loads_the_same_weight_format() -> None:
    eab = EntropyAdaptiveBranching("embedded", device="cpu", weights="int8", max_new_tokens=6)
    events = list(eab.stream("Once upon a time"))
    started = next(event for event in events if isinstance(event, RunStarted))
    program = as_python(started)
    assert "weights='int8'" in program
    assert "layout" not in program
    scope: dict[str, Any] = {}
    exec(compile(program, "program", "exec"), scope)
    assert untimed(scope["explorer"].stream("Once upon a time")) == untimed(events)


@pytest.mark.parametrize("table", [tokens_table, steps_table])
@pytest.mark.parametrize("file", [one.file for one in bundled_runs.recordings()[:4]])
def test_tables_survive_a_round_trip_through_parquet_and_csv(table: Any, file: str) -> None:
    whole = table(fold(bundled_runs.events_of(bundled_runs.named(file))))
    assert len(whole)
    pd.testing.assert_frame_equal(pd.read_parquet(BytesIO(whole.to_parquet(index=False))), whole)
    again = pd.read_csv(StringIO(whole.to_csv(index=False)), keep_default_na=False)
    pd.testing.assert_frame_equal(again, whole, check_dtype=False, rtol=1e-12)
