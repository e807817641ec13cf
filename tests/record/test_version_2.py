"""Run files of version 2, which had one event per path, open as the same runs."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from invented_runs import invented_run

from eab import record
from eab.errors import RecordError
from eab.events import (
    Candidate,
    DroppedTokens,
    EntropyBounds,
    Event,
    Forked,
    LimitActed,
    NewToken,
    NewWeight,
    PathFinished,
    PathPrediction,
    Predicted,
    Pruned,
    Reweighted,
    RunEnded,
    StepTimed,
    TokensAppended,
)
from eab.lessons import bundled_runs
from eab.record.typed_json import to_json

STARTED = invented_run(0, 1, 1)[0]


def token(step: int, path: int, number: int) -> dict[str, Any]:
    return {
        "event": "TokenAppended",
        **{"step": step, "path": path, "token": number, "text": f" w{number}"},
        **{"log_prob": -0.5, "special": False},
    }


def predicted(step: int, path: int, entropy: float, **more: Any) -> dict[str, Any]:
    of_path = {"step": step, "path": path, "entropy": entropy, "candidates": [[7, " w7", 0.25]]}
    return {"event": "Predicted", **of_path} | more


OLDER: list[Any] = [
    predicted(0, 0, 2.0, whole=[1.5, 2.5]),
    {"event": "LimitActed", "step": 0, "path": 0, "dropped": [9, 8]},
    {"event": "Forked", "step": 0, "path": 0, "children": [1, 2], "weights": [0.5, 0.5], "heir": 1},
    token(0, 1, 7),
    token(0, 2, 6),
    {"event": "StepTimed", "step": 0, "tokens": 4, "seconds": 0.5, "forward_seconds": 0.25},
    predicted(1, 1, 0.5),
    predicted(1, 2, 0.75),
    {"event": "Pruned", "step": 1, "path": 2},
    token(1, 1, 5),
    {"event": "Reweighted", "step": 1, "path": 1, "weight": 1.0},
    {"event": "PathFinished", "step": 1, "path": 1, "reason": "length"},
    {"event": "StepTimed", "step": 1, "tokens": 2, "seconds": 0.5, "forward_seconds": 0.25},
    {"event": "RunEnded", "step": 2, "reason": "finished", "message": ""},
]
SEEN = (Candidate(7, " w7", 0.25),)
TODAY: list[Event] = [
    Predicted(0, (PathPrediction(0, 2.0, SEEN, EntropyBounds(1.5, 2.5)),)),
    LimitActed(0, (DroppedTokens(0, (9, 8)),)),
    Forked(0, 0, (1, 2), (0.5, 0.5), 1),
    TokensAppended(0, (NewToken(1, 7, " w7", -0.5, False), NewToken(2, 6, " w6", -0.5, False))),
    StepTimed(0, 4, 0.5, 0.25),
    Predicted(1, (PathPrediction(1, 0.5, SEEN), PathPrediction(2, 0.75, SEEN))),
    Pruned(1, 2),
    TokensAppended(1, (NewToken(1, 5, " w5", -0.5, False),)),
    Reweighted(1, (NewWeight(1, 1.0),)),
    PathFinished(1, 1, "length"),
    StepTimed(1, 2, 0.5, 0.25),
    RunEnded(2, "finished"),
]


def file_of(lines: list[Any]) -> bytes:
    header = {"format": "eab-run", "version": 2}
    return gzip.compress(
        "\n".join(json.dumps(line) for line in [header, to_json(STARTED), *lines]).encode()
    )


def test_the_events_of_a_step_are_merged() -> None:
    assert record.loads(file_of(OLDER)) == [STARTED, *TODAY]


def test_every_prefix_of_an_older_file_opens() -> None:
    for length in range(len(OLDER)):
        events = record.loads(file_of(OLDER[:length]))
        assert len(events) <= length + 1
        if length in (5, 6, 13):
            assert events == [STARTED, *TODAY[: {5: 4, 6: 5, 13: 11}[length]]]


def test_a_truncated_file_opens_up_to_its_last_step() -> None:
    data = file_of(OLDER)
    opened = record.loads(data[:-8])  # all lines, but not the end of the compressed data
    assert opened == [STARTED, *TODAY[:11]]


@pytest.mark.parametrize("name", ["bridge", "original"])
def test_a_bundled_run_of_version_2_is_the_same_run_as_today(name: str) -> None:
    file = Path(__file__).parent / "version_2" / f"{name}.eab"
    assert b'"version":2' in gzip.decompress(file.read_bytes())[:60]
    assert record.load(file) == list(bundled_runs.events_of(bundled_runs.named(f"{name}.eab")))


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        (0, "extra", 1),
        (0, "candidates", [[7, 3, 0.25]]),
        (1, "dropped", 9),
        (3, "token", -1),
        (3, "step", 5),
        (10, "path", 7),
    ],
)
def test_a_wrong_value_is_refused(place: int, key: str, value: Any) -> None:
    lines = [dict(line) for line in OLDER]
    lines[place][key] = value
    with pytest.raises(RecordError, match="line "):
        record.loads(file_of(lines))


def test_a_missing_value_is_refused() -> None:
    lines = [dict(line) for line in OLDER]
    del lines[3]["token"]
    with pytest.raises(RecordError, match="token"):
        record.loads(file_of(lines))
