"""What the events of a large run cost, against one event per path and step, for explorer.py.

Run files of version 2 had that form, with each candidate's text and numbers in full precision.
"""

import gc
import gzip
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from eab.events import Event, LimitActed, Predicted, Reweighted, TokensAppended
from eab.record import dumps
from eab.record.event_json import to_json
from eab.run import fold


def by_path(event: Event) -> Iterator[Event]:
    """Split an event into one event for each of its paths."""
    match event:
        case Predicted(step, predictions):
            yield from (Predicted(step, (one,)) for one in predictions)
        case TokensAppended(step, tokens):
            yield from (TokensAppended(step, (one,)) for one in tokens)
        case LimitActed(step, dropped):
            yield from (LimitActed(step, (one,)) for one in dropped)
        case Reweighted(step, weights):
            yield from (Reweighted(step, (one,)) for one in weights)
        case _:
            yield event


def version_2(event: Event) -> dict[str, Any]:
    """The line for one of these events in a run file of version 2."""
    match event:
        case Predicted(step, (one,)):
            return {"event": "Predicted", "step": step} | _named(one, drop=["whole"])
        case TokensAppended(step, (one,)):
            return {"event": "TokenAppended", "step": step} | _named(one)
        case LimitActed(step, (one,)):
            return {"event": "LimitActed", "step": step, "path": one.path, "dropped": one.tokens}
        case Reweighted(step, (one,)):
            return {"event": "Reweighted", "step": step} | _named(one)
    return to_json(event)


def _named(row: Any, drop: Sequence[str] = ()) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in drop}


def _fold_seconds(events: Sequence[Event]) -> float:
    gc.collect()
    start = time.process_time()
    fold(events)
    return time.process_time() - start


def measure_events(events: list[Event], quick: bool) -> dict[str, Any]:
    """Events, bytes and seconds to fold, and the ratios of version 2 over the present form."""
    before = [one for event in events for one in by_path(event)]
    lines = (json.dumps(version_2(event), separators=(",", ":")) for event in before)
    bytes_before = sum(len(line) + 1 for line in lines)
    packed = dumps(events)
    seconds: dict[str, list[float]] = {"before": [], "after": []}
    for _ in range(3 if quick else 9):
        seconds["before"].append(_fold_seconds(before))
        seconds["after"].append(_fold_seconds(events))
    fold_before, fold_after = (statistics.median(times) for times in seconds.values())
    unpacked = len(gzip.decompress(packed))
    return {
        "events": len(events),
        "run_file_bytes": len(packed),
        "run_file_unpacked_bytes": unpacked,
        "fold_seconds": fold_after,
        "fold_seconds_range": f"{min(seconds['after']):.3f} to {max(seconds['after']):.3f}",
        "ratios": {
            "events_before_over_after": len(before) / len(events),
            "bytes_before_over_after": bytes_before / unpacked,
            "fold_before_over_after": fold_before / fold_after,
        },
    }
