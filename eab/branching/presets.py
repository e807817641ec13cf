"""Named settings that together shape a tree; the same in Python, on the command line and on the
page.

A preset is named by how many texts one gets to see. Its threshold is an entropy of the greedy text
that the prompt itself gives, because a number of nats fits only one model and one kind of prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eab.config import WARPERS
from eab.errors import check_one_of


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


# The minimum weight to fork decides how many texts there are; the path limit rarely acts. Measured
# on a hundred questions and fifty openings by benchmarks/preset_trees.py.
PRESETS: Final[Mapping[str, Preset]] = {
    "focused": _preset(4, "the first choices only", 2, 3, 6, 0.5, 0.15),
    "balanced": _preset(8, "they fit on one screen", 3, 4, 12, 0.3, 0.15),
    "wide": _preset(24, "unlikely branches fork, too", 6, 4, 32, 0.1, 0.1),
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
