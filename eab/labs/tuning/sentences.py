"""Sentences and tables about a sweep; differences within the error count as no difference."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import pandas as pd

from eab.config import SETTINGS, BranchingConfig
from eab.formatting import counted, human_bytes
from eab.labs.tuning.cell import Cell, Quantity
from eab.labs.tuning.frontier import (
    Mean,
    SettingPoint,
    baseline,
    beats,
    best_setting,
    beyond_baseline,
    has_effect,
    pareto_front,
    varying,
)
from eab.settings import Steps
from eab.timing import NO_DIFFERENCE, NOTHING_YET

HEADINGS: Final = ("Setting", "Cost", "Gain", "Against independent sampling", "Front")
_SHAPING: Final = ("entropy_threshold", "branch_factor", "max_paths", "policy")


def label(setting: str) -> str:
    """The name of a setting as shown on the page, with its unit."""
    return f"{SETTINGS[setting].label}{' (nats)' if setting == 'entropy_threshold' else ''}"


def value_words(setting: str, value: Any) -> str:
    """The value of a setting as text."""
    widget = SETTINGS[setting].widget
    if isinstance(widget, Steps):
        return widget.label(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_words(config: BranchingConfig, names: Sequence[str] = _SHAPING) -> str:
    """The settings that shape the tree: "entropy threshold 0.65, branch factor 3"."""
    named = [name for name in names if has_effect(name, config)]
    words = [
        f"{SETTINGS[name].label.lower()} {value_words(name, getattr(config, name))}"
        for name in named
    ]
    return ", ".join(words) or "the settings that do not vary"


def over_words(points: Sequence[SettingPoint], cells: Sequence[Cell]) -> str:
    """The data that the means are taken over, the meaning of the intervals, and how many cells were
    made without the model.
    """
    if not points:
        return ""
    seeds = {point.gain.seeds for point in points}
    first = points[0]
    prompts = first.cells // max(1, first.gain.seeds)
    each = counted(min(seeds), "seed") if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
    interval = (
        "One seed has no interval, so no difference can be shown."
        if seeds == {1}
        else "± is half a 95% interval over the seeds (Student's t)."
    )
    spared = sum(cell.made == "resimulated" for cell in cells) / len(cells)
    return (
        f"Means over {counted(prompts, 'prompt')} and {each}. {interval} {spared:.0%} of "
        f"{counted(len(cells), 'cell')} follow exactly from the run at a lower threshold, without "
        "the model; they have no time."
    )


def answer_sentence(points: Sequence[SettingPoint], gain: Quantity) -> str:
    """The best setting, its gain, and how many other settings are not measurably worse."""
    if not points:
        return "No setting has run on every prompt yet."
    best = best_setting(points, gain)
    named = setting_words(best.config, varying(point.config for point in points))
    words = f"{named[0].upper()}{named[1:]}: {gain.label.lower()} {best.gain.value:.3g}"
    alike = sum(beats(best, other, gain) is not True for other in points if other is not best)
    if alike:
        others = f"{counted(alike, 'other setting')} {'is' if alike == 1 else 'are'} not"
        return f"{words}; {others} measurably worse."
    return f"{words}; every other setting is measurably worse." if points[1:] else f"{words}."


def heat_sentence(points: Sequence[SettingPoint], gain: Quantity, fixed: Sequence[str] = ()) -> str:
    """What the heat map shows; `fixed` settings vary only outside these points."""
    return f"{gain.label} with {setting_words(points[0].config, fixed)}." if points else NOTHING_YET


def mean_words(amount: Mean, of: Quantity) -> str:
    """A mean with its margin and unit: "4.2 ± 0.5 answers", "12.0 KiB"."""
    if of.unit == "bytes":
        margin = f" ± {human_bytes(amount.margin)}" if amount.margin is not None else ""
        return f"{human_bytes(amount.value)}{margin}"
    # A margin far below the last digit shown is a rounding error.
    is_rounding = amount.margin is not None and amount.margin < 1e-6 * max(1.0, abs(amount.value))
    margin = "" if amount.margin is None else f" ± {0 if is_rounding else amount.margin:.2g}"
    value = f"{amount.value:,.0f}" if amount.value >= 100 else f"{amount.value:.3g}"
    unit = of.unit.removesuffix("s") if value == "1" and not margin else of.unit
    return f"{value}{margin} {unit}".strip()


def setting_rows(
    points: Sequence[SettingPoint], cost: Quantity, gain: Quantity
) -> list[tuple[str, ...]]:
    """One row of text per setting, cheapest first."""
    front = {id(point) for point in pareto_front(points, gain)}
    line = baseline(points)
    names = varying(point.config for point in points)
    return [
        (
            setting_words(point.config, names),
            mean_words(point.cost, cost),
            mean_words(point.gain, gain),
            "–" if point.is_baseline else _difference(beyond_baseline(point, line), gain),
            "yes" if id(point) in front else "",
        )
        for point in sorted(points, key=lambda point: point.cost.value)
    ]


def _difference(difference: Mean | None, gain: Quantity) -> str:
    if difference is None:
        return "not compared"
    if not difference.excludes_zero:
        return NO_DIFFERENCE
    return f"{'+' if difference.value > 0 else ''}{mean_words(difference, gain)}"


def settings_table(points: Sequence[SettingPoint], cost: Quantity, gain: Quantity) -> pd.DataFrame:
    """One row of numbers per setting: all settings, means and standard errors over the seeds."""
    front = {id(point) for point in pareto_front(points, gain)}
    return pd.DataFrame(
        [
            {name: value for name, value in asdict(point.config).items() if name != "seed"}
            | {
                f"{cost.column}_mean": point.cost.value,
                f"{cost.column}_error": point.cost.error,
                f"{gain.column}_mean": point.gain.value,
                f"{gain.column}_error": point.gain.error,
                "seeds": point.gain.seeds,
                "cells": point.cells,
                "on_front": id(point) in front,
            }
            for point in points
        ]
    )
