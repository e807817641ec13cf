"""Named settings that together shape a tree; the same in Python, on the command line and on the
page.

A preset is named by how many texts one gets to see. Its threshold is an entropy of the greedy text
that the prompt itself gives, because a number of nats fits only one model and one kind of prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eab.config import BranchingConfig
from eab.errors import check_one_of
from eab.settings import ThresholdUnit


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings that belong together."""

    texts: int  # about how many texts a run has
    help: str  # what they are for
    settings: Mapping[str, Any]  # their values, by their names in `BranchingConfig`


def _preset(
    texts: int, help: str, rank: float, branches: int, paths: int, weight: float, min_p: float
) -> Preset:
    return Preset(
        texts,
        f"about {texts} texts: {help}",
        {
            "entropy_threshold": rank,
            "threshold_unit": "rank",
            "branch_factor": branches,
            "max_paths": paths,
            "min_fork_weight": weight,
            "branch_min_p": min_p,
        },
    )


# The minimum weight to fork decides how many texts there are; the path limit rarely acts. Tried on
# a hundred questions and fifty openings.
PRESETS: Final[Mapping[str, Preset]] = {
    "focused": _preset(4, "the first choices only", 2, 3, 6, 0.5, 0.15),
    "balanced": _preset(8, "they fit on one screen", 3, 4, 12, 0.3, 0.15),
    "wide": _preset(24, "unlikely branches fork, too", 6, 4, 32, 0.1, 0.1),
}
OF_PRESETS: Final = tuple(PRESETS["balanced"].settings)  # the settings that a preset sets
# What a threshold in another unit starts with
THRESHOLDS: Final[Mapping[ThresholdUnit, float]] = {
    "nats": 0.65,
    "normalised": 0.08,
    "rank": PRESETS["balanced"].settings["entropy_threshold"],
}


def starting_values(preset: str | None = None) -> dict[str, Any]:
    """What a run starts with in every program and on every page: a preset, by default `balanced`,
    and sampling. They suit chat models and base models; docs/models.md says how they were chosen.

    Raises:
        ConfigError: There is no such preset.
    """
    name = "balanced" if preset is None else preset
    check_one_of(PRESETS, name, "the preset is")
    return {"temperature": 0.5, "top_p": 0.9, "max_new_tokens": 48, **PRESETS[name].settings}


def completed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, which may name a `preset`, completed with the starting values. A threshold
    without a unit is in nats.

    Raises:
        ConfigError: There is no such preset.
    """
    own = dict(settings)
    start = starting_values(own.pop("preset", None))
    if "entropy_threshold" in own:
        start["threshold_unit"] = "nats"
    elif "threshold_unit" in own:
        unit = str(own["threshold_unit"]).replace("normalized", "normalised")
        known: dict[Any, float] = {**THRESHOLDS, "rank": start["entropy_threshold"]}
        start["entropy_threshold"] = known.get(unit, start["entropy_threshold"])
    return start | own


def starting_config(**settings: Any) -> BranchingConfig:
    """A config of these settings, which may include a `preset`, and the starting values for the
    rest. `BranchingConfig` has neutral values instead: temperature 1, no filter, nats.

        Request("Why is the sky blue?", eab.starting_config(max_new_tokens=12))

    Raises:
        ConfigError: A value is not allowed, or no setting has that name.
    """
    return BranchingConfig.from_settings(completed(settings))


def overridden(settings: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, updated with later ones; a later preset replaces all that presets set."""
    replaced = OF_PRESETS if later.get("preset") is not None else ()
    return {name: value for name, value in settings.items() if name not in replaced} | dict(later)


START: Final = starting_config()
