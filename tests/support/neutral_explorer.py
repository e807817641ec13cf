"""The library with neutral settings instead of the starting values."""

from typing import Any

from eab import BranchingConfig, EntropyAdaptiveBranching
from eab.engine.branching.presets import starting_values

NEUTRAL = {name: getattr(BranchingConfig(), name) for name in starting_values()}


def neutral_explorer(model: Any, *first: Any, **settings: Any) -> EntropyAdaptiveBranching:
    """`EntropyAdaptiveBranching` at temperature 1, without filters, with a threshold in nats."""
    named = zip(("entropy_threshold", "branch_factor", "max_paths"), first, strict=False)
    return EntropyAdaptiveBranching(model, **NEUTRAL | dict(named) | settings)
