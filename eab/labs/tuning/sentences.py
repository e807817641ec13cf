"""Sentences and tables about a sweep; differences within the error count as no difference."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import pandas as pd

from eab.config import SETTINGS, BranchingConfig
from eab.formatting import counted, human_bytes
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import (
    SettingPoint,
    baseline,
    beats,
    beyond_baseline,
    has_effect,
    pareto_front,
    varying,
)
from eab.labs.tuning.quantities import Quantity
from eab.labs.tuning.seed_means import Mean, mean, paired_difference
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


def over_words(points: Sequence[SettingPoint]) -> str:
    """The data that the means are taken over, and the meaning of the intervals."""
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
    return f"Means over {counted(prompts, 'prompt')} and {each}. {interval}"


def heat_sentence(points: Sequence[SettingPoint], gain: Quantity, fixed: Sequence[str] = ()) -> str:
    """The setting with the best gain; `fixed` settings vary only outside these points."""
    if not points:
        return NOTHING_YET
    ranked = sorted(points, key=lambda point: point.gain.value, reverse=gain.more_is_better)
    best, others = ranked[0], ranked[1:]
    here = f" Shown: {setting_words(best.config, fixed)}." if fixed else ""
    if others and beats(best, others[-1], gain) is None:
        return f"{gain.label}: {NO_DIFFERENCE} between these settings.{here}"
    equal = sum(beats(best, other, gain) is None for other in others)
    also = f" ({equal} of {len(others)} others not measurably worse)" if equal else ""
    value = mean_words(replace(best.gain, error=None), gain)
    return f"Best for “{gain.label}”: {_named(best, points)}, with {value}{also}.{here}"


def _alike(point: SettingPoint, points: Sequence[SettingPoint]) -> list[str]:
    """The settings whose values make no difference to this point's gain."""
    names = varying(point.config for point in points)
    return [name for name in names if _is_alike(point, name, points)]


def _named(point: SettingPoint, points: Sequence[SettingPoint]) -> str:
    names = varying(point.config for point in points)
    alike = _alike(point, points)
    named = [name for name in names if name not in ("policy", *alike)]
    words = [setting_words(point.config, named)] if named or not alike else []
    words += [f"any {SETTINGS[name].label.lower()}" for name in alike]
    policy = f"{point.config.policy}, " if "policy" in names else ""
    return f"{policy}{', '.join(words)}"


def _is_alike(point: SettingPoint, name: str, points: Sequence[SettingPoint]) -> bool:
    """Whether the gain is the same at all values of this setting, with the others unchanged."""
    if name == "policy" or not has_effect(name, point.config):
        return False
    value = getattr(point.config, name)
    beside = [each for each in points if replace(each.config, **{name: value}) == point.config]
    return len(beside) > 1 and len({round(each.gain.value, 12) for each in beside}) == 1


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


def pareto_sentence(points: Sequence[SettingPoint], cost: Quantity, gain: Quantity) -> str:
    """How many settings are on the front, and how many beat independent sampling."""
    if not points:
        return "No setting has run on every prompt yet."
    line = baseline(points)
    front = f"On the Pareto front: {len(pareto_front(points, gain))} of {len(points)} settings."
    if not line:
        return f"{front} Add the policy independent to see whether branching beats sampling."
    differences = [beyond_baseline(point, line) for point in points if not point.is_baseline]
    inside = [difference for difference in differences if difference is not None]
    if not inside:
        return f"{front} None costs as much as independent sampling, so none is compared with it."
    sign = 1 if gain.more_is_better else -1
    signs = [sign * difference.value > 0 for difference in inside if difference.excludes_zero]
    better, alike = sum(signs), len(inside) - len(signs)
    return (
        f"{front} At equal {_cost_noun(cost)}, against independent sampling: {better} better, "
        f"{len(signs) - better} worse, {alike} with {NO_DIFFERENCE}."
    )


def _cost_noun(cost: Quantity) -> str:
    return {"tokens": "tokens", "kv_bytes": "KV bytes", "seconds": "time"}[cost.column]


def unknown_sentence(cells: Sequence[Cell], cost: Quantity) -> str:
    """How many cells are left out because this cost is unknown; empty if none."""
    without = sum(getattr(cell, cost.column) is None for cell in cells)
    if not without:
        return ""
    return (
        f"{counted(without, 'cell')} of {len(cells):,} {'is' if without == 1 else 'are'} left "
        "out, because resimulated cells have no time."
    )


def effects_sentence(points: Sequence[SettingPoint], names: Sequence[str], gain: Quantity) -> str:
    """The setting that changes the gain most, on average over the others."""
    effects = {name: _effect(points, name) for name in names}
    known = {name: effect for name, effect in effects.items() if effect is not None}
    if not known:
        return NOTHING_YET
    name = max(known, key=lambda setting: abs(known[setting][2].value))
    low, high, difference = known[name]
    moved = (
        f"{SETTINGS[name].label} has the largest effect: from {value_words(name, low)} to "
        f"{value_words(name, high)}, the change in “{gain.label}” is "
        f"{mean_words(difference, gain)} on average over the other settings."
    )
    if difference.excludes_zero:
        return moved
    return f"For all settings that vary: {NO_DIFFERENCE} within the noise of the seeds."


def _effect(points: Sequence[SettingPoint], name: str) -> tuple[Any, Any, Mean] | None:
    """The two values of a setting whose mean gains differ most, and the difference."""
    groups: defaultdict[Any, list[SettingPoint]] = defaultdict(list)
    for point in points:
        if has_effect(name, point.config):
            groups[getattr(point.config, name)].append(point)
    by_seed = {value: _averaged(group) for value, group in groups.items()}
    known = {value: gains for value, gains in by_seed.items() if gains}
    if len(known) < 2:
        return None
    means = {value: mean(gains).value for value, gains in known.items()}
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    first, second = sorted((low, high))
    difference = paired_difference(known[second], known[first])
    return None if difference is None else (first, second, difference)


def _averaged(points: Sequence[SettingPoint]) -> Mapping[int, float]:
    shared = set.intersection(*(set(point.gains) for point in points))
    return {seed: sum(point.gains[seed] for point in points) / len(points) for seed in shared}


def saving_sentence(cells: Sequence[Cell]) -> str:
    """How many cells were made without running the model."""
    spared = sum(cell.made == "resimulated" for cell in cells)
    if not cells:
        return NOTHING_YET
    return (
        f"{counted(len(cells), 'cell')}; {spared / len(cells):.0%} of them follow exactly from the "
        "run at a lower threshold, without the model."
    )


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
