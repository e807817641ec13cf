"""The costs of the variants side by side: sentences, and rows for the terminal, the page and
downloads.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pandas as pd

from eab import token_text
from eab.analysis.kv_allocation import separate_bytes
from eab.figures.tables import steps_table
from eab.figures.timings import in_ms, ms, ratio_words, repeats_words, with_spread
from eab.formatting import counted, human_bytes, listed, with_ratio
from eab.labs.variants.results import PROMPT_REUSED, Agreement, RunCost, VariantRuns, cost_values
from eab.timing import NO_DIFFERENCE, Timing, are_too_few, differs


class VariantRow(NamedTuple):
    """One measure, with one cell per variant."""

    measure: str
    cells: tuple[str, ...]


_TIMES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("seconds", "seconds", "{:.2f}".format),
    ("ms to the first token", "first_step_seconds", ms),
    ("ms per step", "step_seconds", ms),
)
_COUNTS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("tokens through the model", "tokens_through_model", "{:,}".format),
    ("prompt tokens reused", "tokens_reused", "{:,}".format),
    ("peak bytes", "peak_bytes", human_bytes),
    ("most bytes held", "most_held_bytes", human_bytes),
    ("bytes held at the end", "held_last_bytes", human_bytes),
    ("of these in the prefix cache", "reused_bytes", human_bytes),
    ("bytes copied", "copied_bytes", human_bytes),
    ("allocations", "allocations", "{:,}".format),
)
COST_NOTE: Final = (
    "All measured. Times are medians over alternating repeats, with quartiles in brackets. Two "
    "times differ if their medians are further apart than the wider of their two interquartile "
    "ranges. The peak includes temporary tensors; bytes held are those between steps. Brackets "
    "after bytes and counts give multiples of the first column."
)


def step_words(costs: Sequence[RunCost]) -> str:
    """The time per step of the other variants compared with the first, and how it was measured."""
    first, *others = costs
    timings = [cost.step_seconds for cost in costs]
    if any(are_too_few(first.step_seconds, other.step_seconds) for other in others):
        return repeats_words(timings)
    longer = [
        f"{cost.variant} {ratio_words(cost.step_seconds, first.step_seconds)}"
        for cost in others
        if differs(cost.step_seconds, first.step_seconds)
    ]
    alike = [cost.variant for cost in others if not differs(cost.step_seconds, first.step_seconds)]
    words = [f"{listed(longer)} as long as {first.variant}"] if longer else []
    words += [f"{NO_DIFFERENCE} for {listed(alike)}"] if alike else []
    return f"{'; '.join(words)} ({repeats_words(timings)})"


def variant_rows(compared: VariantRuns) -> list[VariantRow]:
    """All measures of all variants, without those that are 0 everywhere; times also as multiples.
    Includes how each run ended unless all finished.
    """
    costs = compared.costs()
    rows = [row for measure in _TIMES for row in _time_rows(costs, *measure)]
    for measure, name, written in _COUNTS:
        values = [getattr(cost, name) for cost in costs]
        if not any(values):
            continue
        cells = tuple(with_ratio(value, values[0], written) for value in values)
        rows.append(VariantRow(measure, cells))
    if not all(cost.ended == "finished" for cost in costs):
        rows.append(VariantRow("ended", tuple(cost.ended or "unfinished" for cost in costs)))
    return rows


def _time_rows(
    costs: Sequence[RunCost], measure: str, name: str, written: Callable[[float], str]
) -> list[VariantRow]:
    """The medians with quartiles, and if comparable, a row with multiples of the first."""
    timings: list[Timing] = [getattr(cost, name) for cost in costs]
    rows = [VariantRow(measure, tuple(with_spread(timing, written) for timing in timings))]
    if not all(are_too_few(timing, timings[0]) for timing in timings):
        beside = (
            "–" if timing is timings[0] else ratio_words(timing, timings[0]) for timing in timings
        )
        rows.append(VariantRow(f"{measure}, times as long", tuple(beside)))
    return rows


def variants_sentence(compared: VariantRuns) -> str:
    """Whether all variants give the same tokens, and which failed or were left out."""
    agreements = compared.agreements()
    unlike = [
        agreement
        for agreement in agreements
        if agreement.first_difference is not None or not agreement.explained
    ]
    words = [_difference_words(agreement) for agreement in unlike]
    if agreements and not unlike:
        count = len(agreements) + 1
        words.append(f"{'Both' if count == 2 else f'All {count}'} runs have the same tokens.")
    ended = [(name, run.ended) for name, run in compared.pairs if run.ended is not None]
    words += [
        f"{name} failed: {token_text.visible(end.message)}."
        for name, end in ended
        if end.reason == "failed"
    ]
    if compared.left_out:
        verb = "is" if len(compared.left_out) == 1 else "are"
        model = compared.runs[0].started.model
        meaning = "" if model.shares_rows else " For this model, the cache “tree” is that memory."
        words.append(
            f"{listed(compared.left_out)} {verb} left out, because this model keeps more than KV "
            f"rows. {model.own_memory}{meaning}"
        )
    words.append(_windows_words(compared))
    return " ".join(filter(None, words)) or "Nothing to compare yet."


def reuse_sentence(compared: VariantRuns) -> str:
    """What is saved if the prefix cache has the prompt; empty if it does not."""
    costs = {cost.variant: cost for cost in compared.costs()}
    tree, reused = costs.get("tree"), costs.get(PROMPT_REUSED)
    if tree is None or reused is None or not reused.tokens_reused:
        return ""
    first, again = tree.first_step_seconds, reused.first_step_seconds
    saved = (
        f"With the prompt in the prefix cache, {counted(reused.tokens_reused, 'token')} of it "
        f"{'is' if reused.tokens_reused == 1 else 'are'} not computed again"
    )
    if are_too_few(again, first):
        return f"{saved}."
    if not differs(again, first):
        return f"{saved}; the first token takes as long ({NO_DIFFERENCE})."
    return f"{saved}: the first token takes {in_ms(again)}, {ratio_words(again, first)} as long."


def _windows_words(compared: VariantRuns) -> str:
    """Bytes in caches that drop rows behind a window, unlike the caches that are compared."""
    tree = next((run for name, run in compared.pairs if name == "tree"), None)
    kv = None if tree is None else tree.peak_kv
    if tree is None or kv is None or not tree.started.model.window_rows:
        return ""
    alone = human_bytes(separate_bytes(tree.started, kv))
    words = f"Separate caches that drop the rows behind a window would hold {alone} (computed)."
    return f"{tree.started.model.attention} {words}".lstrip()


def _difference_words(agreement: Agreement) -> str:
    if agreement.explained:
        return (
            f"{agreement.variant} takes another token at step {agreement.first_difference} "
            "because of rounding: before it, the entropies agree to "
            f"{agreement.entropy_gap:.1g} nats."
        )
    return (
        f"{agreement.variant} gives other results: its entropies differ by up to "
        f"{agreement.entropy_gap:.2g} nats, more than rounding can explain."
    )


def costs_table(compared: VariantRuns) -> pd.DataFrame:
    """One row per variant: measured seconds (median and quartiles), tokens, bytes, allocations."""
    return pd.DataFrame([cost_values(cost) for cost in compared.costs()])


def variant_steps_table(compared: VariantRuns) -> pd.DataFrame:
    """One row per variant and step: `steps_table`, with bytes copied and allocations so far."""
    tables = []
    for name, run in compared.pairs:
        table = steps_table(run)
        kv = [step.kv for step in run.steps if step.kv is not None]
        table.insert(0, "variant", name)
        table["copied_bytes_so_far"] = [usage.bytes_copied for usage in kv]
        table["allocations_so_far"] = [usage.allocations for usage in kv]
        table["peak_bytes_so_far"] = [usage.peak_bytes for usage in kv]
        table["tokens_through_model"] = [
            step.timing.tokens if step.timing else 0 for step in run.steps if step.kv
        ]
        tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
