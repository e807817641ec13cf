"""Sentences and a table about serving the same requests in three ways."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from eab.analysis.schedule import Schedule
from eab.figures.timings import ratio_words, repeats_words, with_spread
from eab.formatting import counted, human_bytes, listed
from eab.labs.batching.results import TITLES, BatchingComparison, Way
from eab.timing import MIN_REPEATS, NOTHING_YET, Timing, are_too_few, differs


class ServingMeasure(NamedTuple):
    """A row of the table."""

    name: str  # name and unit
    of: Callable[[Schedule], float]  # the value for one serving
    written: Callable[[float], str]


def _first_token(share: float) -> Callable[[Schedule], float]:
    return lambda schedule: _quantile(schedule.first_token_seconds(), share)


def _output_token(share: float) -> Callable[[Schedule], float]:
    return lambda schedule: _quantile(schedule.output_token_seconds(), share)


def _quantile(seconds: Mapping[int, float], share: float) -> float:
    return float(np.quantile([*seconds.values()], share)) if seconds else 0.0


def _seconds(schedule: Schedule) -> float:
    return schedule.seconds


def _pass_tokens(schedule: Schedule) -> float:
    return (
        sum(part.tokens for part in schedule.passes) / len(schedule.passes)
        if schedule.passes
        else 0.0
    )


def _share(value: float) -> str:
    return f"{value:.0%}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


MEASURES: Final = (
    ServingMeasure("seconds for all", _seconds, "{:.2f}".format),
    ServingMeasure(
        "new tokens per second",
        lambda schedule: schedule.new_tokens / schedule.seconds if schedule.seconds else 0.0,
        "{:.0f}".format,
    ),
    ServingMeasure("time to first token, p50 (s)", _first_token(0.5), "{:.2f}".format),
    ServingMeasure("time to first token, p95 (s)", _first_token(0.95), "{:.2f}".format),
    ServingMeasure("time per output token, p50 (ms)", _output_token(0.5), _ms),
    ServingMeasure("time per output token, p95 (ms)", _output_token(0.95), _ms),
    ServingMeasure("forward passes", lambda schedule: len(schedule.passes), "{:,.0f}".format),
    ServingMeasure("tokens per forward pass, mean", _pass_tokens, "{:.1f}".format),
    ServingMeasure("slot-steps idle", lambda schedule: schedule.idle_share, _share),
    ServingMeasure(
        "idle while a request waits", lambda schedule: schedule.awaited_idle_share, _share
    ),
    ServingMeasure("most KV bytes held", lambda schedule: schedule.peak_kv_bytes, human_bytes),
)
TABLE_NOTE: Final = (
    "Measured: medians of the repeats, with quartiles in brackets. p50 and p95 are taken over the "
    "requests; times include waiting. A slot-step is one slot in one forward pass."
)


def headline(comparison: BatchingComparison) -> str:
    """How long each way took, and how long requests waited."""
    shown = comparison.shown()
    if "continuous" not in shown:
        return NOTHING_YET
    workload, ours = comparison.workload, comparison.timing("continuous", _seconds)
    words, timings = [], [comparison.timing(way, _seconds) for way in shown]
    for (way, schedule), taken in zip(shown.items(), timings, strict=True):
        passes = f"{len(schedule.passes):,}"
        if way == "continuous":
            words.append(f"continuous batching took {passes} passes and {taken.median:.2f} s")
        else:
            words.append(f"{way} {passes} and {taken.median:.2f} s{_beside(taken, ours)}")
    return (
        f"{_waiting(comparison)} {counted(len(workload.requests), 'request')} in "
        f"{counted(workload.slots, 'slot')}: {', '.join(words)}; {repeats_words(timings)}."
    ).strip()


def _beside(theirs: Timing, ours: Timing) -> str:
    if are_too_few(theirs, ours):
        return ""
    return f" ({ratio_words(theirs, ours)}{' as long' if differs(theirs, ours) else ''})"


def _waiting(comparison: BatchingComparison) -> str:
    if "static batches" not in comparison.shown():
        return ""
    ours, theirs = (
        comparison.timing(way, _first_token(1.0)) for way in ("continuous", "static batches")
    )
    if not differs(ours, theirs):
        return ""
    answer = "No:" if ours.median < theirs.median else "Here it does:"
    return (
        f"{answer} the last request got its first token after {ours.median:.2f} s with "
        f"continuous batching, and after {theirs.median:.2f} s with static batches."
    )


def way_sentences(comparison: BatchingComparison) -> dict[Way, str]:
    """A sentence about the slots of each way."""
    shown = comparison.shown()
    written: Mapping[Way, Callable[[Schedule], str]] = {
        "continuous": _continuous_words,
        "static batches": _static_words,
        "one by one": _single_words,
    }
    return {way: f"{TITLES[way]}: {written[way](schedule)}" for way, schedule in shown.items()}


def _continuous_words(schedule: Schedule) -> str:
    tail = schedule.idle_share - schedule.awaited_idle_share
    end = f" and {tail:.0%} after the last request had begun" if tail else ""
    return f"a request takes a free slot in the next pass. {_idle(schedule)}{end}."


def _static_words(schedule: Schedule) -> str:
    rule = "a batch begins when all texts of the previous batch have ended"
    if schedule.awaited_idle_share < 0.005:
        return f"{rule}. Here the texts of a batch end at about the same time, so no time is lost."
    return f"{rule}. {_idle(schedule)}."


def _idle(schedule: Schedule) -> str:
    return f"{schedule.awaited_idle_share:.0%} of the slot-steps were idle while a request waited"


def _single_words(schedule: Schedule) -> str:
    if schedule.slots == 1:
        return "with one slot there is nothing to batch."
    stays = "stays" if schedule.slots == 2 else "stay"
    return f"{counted(schedule.slots - 1, 'slot')} of {schedule.slots} {stays} empty."


def agreement_sentence(comparison: BatchingComparison) -> str:
    """Whether all ways wrote the same texts."""
    if not comparison.points:
        return NOTHING_YET
    count, differing = len(comparison.workload.requests), comparison.differing
    if not differing:
        return "All ways wrote the same texts, token by token."
    return (
        f"{count - differing} of {counted(count, 'text')} are the same in all repeats, token by "
        "token. Rounding of the logits depends on the batch and can change a token."
    )


def batching_rows(comparison: BatchingComparison) -> list[tuple[str, ...]]:
    """The table for reading: one row per measure, with a cell per way."""
    return [
        (
            measure.name,
            *(
                with_spread(comparison.timing(way, measure.of), measure.written)
                for way in comparison.shown()
            ),
        )
        for measure in MEASURES
    ]


def noise_sentence(comparison: BatchingComparison) -> str:
    """The measures that cannot tell continuous from static batching; empty if all can."""
    if "static batches" not in comparison.shown():
        return ""
    pairs = {
        measure.name: [
            comparison.timing(way, measure.of) for way in ("continuous", "static batches")
        ]
        for measure in MEASURES
    }
    if any(are_too_few(*pair) for pair in pairs.values()):
        return f"Fewer than {MIN_REPEATS} repeats: continuous and static batches are not compared."
    alike = [name for name, pair in pairs.items() if not differs(*pair)]
    if not alike:
        return ""
    if len(alike) == len(MEASURES):
        return "No difference measured between continuous and static batches."
    return f"No difference measured between continuous and static batches in {listed(alike)}."


def passes_table(comparison: BatchingComparison) -> pd.DataFrame:
    """One row per forward pass of the repeats that are drawn."""
    return pd.DataFrame(
        [
            {
                "way": way,
                "pass": number,
                "start_s": schedule.start(number),
                "seconds": taken.seconds,
                "tokens": taken.tokens,
                "kv_bytes": taken.kv_bytes,
                "slots_busy": len(taken.served),
            }
            for way, schedule in comparison.shown().items()
            for number, taken in enumerate(schedule.passes)
        ]
    )


def requests_table(comparison: BatchingComparison) -> pd.DataFrame:
    """One row per request and way, for the repeats that are drawn."""
    rows = []
    for way, schedule in comparison.shown().items():
        first, pace = schedule.first_token_seconds(), schedule.output_token_seconds()
        for run, parts in sorted(schedule.by_run.items()):
            rows.append(
                {
                    "way": way,
                    "request": run + 1,
                    "prompt": comparison.workload.requests[run].prompt,
                    "slot": parts[0][1].slot + 1,
                    "new_tokens": sum(part.new_tokens for _, part in parts),
                    "first_token_s": first.get(run),
                    "ended_s": schedule.ends[parts[-1][0]],
                    "per_output_token_s": pace.get(run),
                }
            )
    return pd.DataFrame(rows)
