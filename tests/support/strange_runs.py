"""Unusual run files, as an untrusted source could make them."""

import gzip
import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
from invented_runs import appended, invented_run, predicted

from eab.lessons import bundled_runs
from eab.run import record
from eab.run.events import Candidate, Event, Forked, PathPrediction, Predicted

LINES: Final = (
    gzip.decompress(record.dumps(bundled_runs.events_of(bundled_runs.named("coin.eab"))))
    .decode()
    .split("\n")
)


def changed(kind: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file of the recording, with its first event of this kind changed."""
    lines = list(LINES)
    place = next(index for index, line in enumerate(lines) if f'"event":"{kind}"' in line)
    event = json.loads(lines[place])
    change(event)
    lines[place] = json.dumps(event)
    return gzip.compress("\n".join(lines).encode())


def chain(steps: int, text: str) -> list[Event]:
    """A run of one path whose tokens all have this text."""
    started = invented_run(0, 1, 1)[0]
    tokens: list[Event] = []
    for step in range(steps):
        tokens += [predicted(step, 0, 1.0), appended(step, 0, 7, text, -1.0)]
    return [started, *tokens]


def comb(forks: int) -> list[Event]:
    """A run in which the first of two children forks again at each step; the second is a leaf."""
    events, stem = invented_run(0, 1, 1)[:1], 0
    for step in range(forks):
        children = (2 * step + 1, 2 * step + 2)
        events += [
            predicted(step, stem, 3.0),
            Forked(step, stem, children, (0.5, 0.5), children[0]),
            *(appended(step, child, 7, "a", -1.0) for child in children),
        ]
        stem = children[0]
    return events


def bush(children: int) -> list[Event]:
    """A run of paths without tokens: 256 children of the prompt, 256 of its first child, etc."""
    events, born = invented_run(0, 1, 1)[:1], 1
    while born <= children:
        ids = tuple(range(born, born + 256))
        parent = max(0, born - 256)
        events += [predicted(0, parent, 1.0), Forked(0, parent, ids, (0.0,) * 256, -1)]
        born += 256
    return events


def much_text() -> list[Event]:
    """A run of predictions whose candidates have long texts, 41 MB of them."""
    seen = PathPrediction(0, 1.0, (Candidate(1, "w" * 1000, 0.5),) * 16)
    return [*invented_run(0, 1, 1)[:1], *([Predicted(0, (seen,) * 256)] * 10)]


def packed(events: list[Event], more: str = "") -> bytes:
    """The file of these events, whether they can be read or not."""
    lines = [LINES[0].encode(), *map(msgspec.json.encode, events)]
    return gzip.compress(b"\n".join(lines) + more.encode("ascii"), 1)
