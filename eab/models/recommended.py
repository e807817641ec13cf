"""The sampling settings that the authors of a model recommend."""

from collections.abc import Mapping
from typing import Any, Final

from eab.branching.presets import START
from eab.config import PENALTIES, SETTINGS, BranchingConfig
from eab.errors import ConfigError
from eab.formatting import listed
from eab.models.packaged import SMOLLM2

# Families whose checkpoints do not include them, by a part of their names; from their model cards.
_FAMILIES: Final = {"smollm2": SMOLLM2.recommended}
_SETTINGS: Final = ("temperature", "top_p", "top_k", "min_p", "typical_p", *PENALTIES)


def recommended_settings(name: str, generation_config: Any) -> Mapping[str, float]:
    """The settings that the checkpoint or its family recommends, as far as a run has them."""
    given = {} if generation_config is None else generation_config.to_diff_dict()
    settings = {setting: given[setting] for setting in _SETTINGS if _is_allowed(setting, given)}
    if settings:
        return settings
    return next((known for part, known in _FAMILIES.items() if part in name.lower()), {})


def advice(model: Any, config: BranchingConfig) -> str:
    """A sentence with the model's recommendation, while the settings are at their defaults."""
    known: Mapping[str, float] = getattr(model, "recommended", {})
    if not known or any(getattr(config, name) != getattr(START, name) for name in known):
        return ""
    words = listed([f"{name} {value:g}" for name, value in known.items()])
    defaults = listed([f"{getattr(START, name):g}" for name in known])
    return f"{model.card.name} recommends {words}; the defaults are {defaults}."


def _is_allowed(setting: str, given: Mapping[str, Any]) -> bool:
    """Whether the checkpoint has this setting with a value in range."""
    try:
        SETTINGS[setting].values.check(setting, given[setting])
    except (KeyError, ConfigError):
        return False
    return True
