"""Named settings that together shape a tree; the same in Python, on the command line and on the
page.

Their thresholds are quantiles of the entropies of the given prompt, because a threshold in nats
fits only one model and one kind of prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eab.config import WARPERS
from eab.errors import check_one_of


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
# For chat models, and on the page for any model; chosen by looking at trees (docs/models.md)
CHAT_PRESET: Final = "balanced"
CHAT_SAMPLING: Final[Mapping[str, Any]] = {"temperature": 0.5, "top_p": 0.9}


def with_preset(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, completed by the preset that they name as `preset`. A threshold without a unit
    is in nats, as without a preset.

    Raises:
        ConfigError: There is no such preset.
    """
    own = dict(settings)
    name = own.pop("preset", None)
    if name is None:
        return own
    check_one_of(PRESETS, name, "the preset is")
    shaped = dict(PRESETS[name].settings)
    if "entropy_threshold" in own:
        del shaped["threshold_unit"]
    return shaped | own


def with_chat_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, completed for a chat model with its sampling, if they set none, and a preset.
    Nothing is added if they name a policy, and no preset if they set the unit of a threshold
    without a threshold.
    """
    own = dict(settings)
    if "policy" in own:
        return own
    if not own.keys() & set(WARPERS):
        own |= CHAT_SAMPLING
    if "threshold_unit" in own and "entropy_threshold" not in own:
        return own
    return {"preset": CHAT_PRESET, **own}


def overridden(settings: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, updated with later ones; a later preset replaces all that presets set."""
    replaced = OF_PRESETS if later.get("preset") is not None else ()
    return {name: value for name, value in settings.items() if name not in replaced} | dict(later)
