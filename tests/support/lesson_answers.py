"""The answers to the questions in the lessons, computed from the recordings independently of the
code that lessons use.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from eab.labs.batching import shown
from eab.lessons import bundled_runs
from eab.run import fold
from eab.run.events import Event, Forked, KvMeasured, KVUsage, Predicted

Kind = TypeVar("Kind", bound=Event)


def of_kind(events: Sequence[Event], kind: type[Kind]) -> list[Kind]:
    return [event for event in events if isinstance(event, kind)]


def usages(events: Sequence[Event]) -> list[KVUsage]:
    return [event.usage for event in of_kind(events, KvMeasured)]


def highest_entropy(events: Sequence[Event]) -> float:
    return max(seen.entropy for event in of_kind(events, Predicted) for seen in event.predictions)


def forks(events: Sequence[Event]) -> float:
    return len(of_kind(events, Forked))


def recompute_over_tree(_: Sequence[Event]) -> float:
    with_cache, without = (
        sum(one.timing.tokens for one in run.steps if one.timing)
        for run in map(bundled_runs.caches().runs.__getitem__, ("tree", "recompute"))
    )
    return without / with_cache


def sharing(events: Sequence[Event]) -> float:
    at_peak = max(
        usages(events), key=lambda kv: (kv.rows_shared + kv.rows_private, kv.rows_independent)
    )
    return sum(path.shared + path.private for path in at_peak.paths) / (
        at_peak.rows_shared + at_peak.rows_private
    )


def allocations(events: Sequence[Event]) -> float:
    return usages(events)[-1].allocations


def waste_in_slabs(events: Sequence[Event]) -> float:
    started = fold(events).started
    slab = len(started.prompt_tokens) + started.config.max_new_tokens
    used = usages(events)
    reserved = sum(len(usage.paths) * slab for usage in used)
    return 1 - sum(usage.rows_shared + usage.rows_private for usage in used) / reserved


def acceptance_rate(_: Sequence[Event]) -> float:
    run = bundled_runs.draft_lengths().runs["4 draft tokens"]
    accepted = sum(one.accepted for one in run.speculations)
    return accepted / sum(one.verified for one in run.speculations)


def idle_in_static_batches(_: Sequence[Event]) -> float:
    one = shown(bundled_runs.batching())["static batches"]
    idle = sum(one.slots - len({part.slot for part in each.served}) for each in one.passes)
    return idle / (one.slots * len(one.passes))


def bytes_loaded_over_int4(_: Sequence[Event]) -> float:
    formats = bundled_runs.formats().rows("formats")
    read = {row["weights"]: row["read_bytes"] for row in formats}
    return read["as-loaded"] / read["int4"]


def explored(events: Sequence[Event]) -> float:
    """The total probability of the distinct texts of the run, all of which have ended."""
    run = fold(events)
    texts = {tuple(token.id for token in run.tokens(leaf.id)): leaf for leaf in run.leaves()}
    return sum(
        math.exp(sum(token.log_prob for token in run.tokens(leaf.id))) for leaf in texts.values()
    )


ANSWERS: dict[str, Callable[[Sequence[Event]], float]] = {
    "tokens": highest_entropy,
    "forks": forks,
    "kv-cache": recompute_over_tree,
    "sharing": sharing,
    "growth": allocations,
    "paging": waste_in_slabs,
    "speculation": acceptance_rate,
    "batching": idle_in_static_batches,
    "quantization": bytes_loaded_over_int4,
    "answers": explored,
}
