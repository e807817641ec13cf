"""Named settings that together shape a tree; the same in Python, on the command line and on the
page.

Their thresholds are quantiles of the entropies of the given prompt, because a threshold in nats
fits only one model and one kind of prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eab.config import BranchingConfig
from eab.errors import check_one_of
from eab.threshold_scales import ThresholdUnit


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings that belong together."""

    help: str  # what they are for
    settings: Mapping[str, Any]  # their values, by their names in `BranchingConfig`


def _preset(help: str, quantile: float, branches: int, paths: int, weight: float) -> Preset:
    return Preset(
        help,
        {
            "entropy_threshold": quantile,
            "threshold_unit": "quantile",
            "branch_factor": branches,
            "max_paths": paths,
            "min_fork_weight": weight,
        },
    )


PRESETS: Final[Mapping[str, Preset]] = {
    "focused": _preset("few texts: forks only where the model is most uncertain", 0.97, 2, 6, 0.1),
    "balanced": _preset("up to ten texts, which fit on one screen", 0.9, 2, 10, 0.1),
    "wide": _preset("many texts: forks also where the model is fairly sure", 0.75, 3, 32, 0.03),
}
OF_PRESETS: Final = tuple(PRESETS["balanced"].settings)  # the settings that a preset sets
# What a threshold in another unit starts with
THRESHOLDS: Final[Mapping[ThresholdUnit, float]] = {
    "nats": 0.65,
    "normalised": 0.08,
    "quantile": PRESETS["balanced"].settings["entropy_threshold"],
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
        known: dict[Any, float] = {**THRESHOLDS, "quantile": start["entropy_threshold"]}
        start["entropy_threshold"] = known.get(unit, start["entropy_threshold"])
    return start | own


def starting_config(**settings: Any) -> BranchingConfig:
    """A config of these settings, which may include a `preset`, and the starting values for the
    rest. `BranchingConfig` has neutral values instead: temperature 1, no filter, no quantile.

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
