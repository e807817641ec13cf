"""Custom policies: a complete one, or a rule for where paths fork. Imports no torch."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final, Protocol, TypeAlias

from eab.config import OWN, BranchingConfig
from eab.engine.branching.policy import Policy
from eab.errors import ConfigError
from eab.formatting import quoted

_MAX_NAME: Final = 60  # characters
_FORMS: Final = (
    "the name of a policy, a function (prediction, leaf) that says whether to fork, a Policy, or "
    "a class or a function (config, threshold_nats) that makes one"
)
_METHODS: Final = ("select", "uniforms", "rest_draws", "branch", "prune", "forced_tokens")


@dataclass(frozen=True, slots=True)
class NextToken:
    """What a rule sees of the next token of a path, but never which token is drawn."""

    step: int  # its place among the new tokens, from 0
    entropy: float  # of the processed distribution, in nats
    tokens: tuple[int, ...]  # the most likely ones, most likely first; at least 8 if possible
    probabilities: tuple[float, ...]  # of these tokens


@dataclass(frozen=True, slots=True)
class PathSoFar:
    """What a rule sees of a path."""

    path: int
    weight: float
    log_prob: float  # ln of the probability of its tokens


Rule: TypeAlias = Callable[[NextToken, PathSoFar], bool]


class PolicyFactory(Protocol):
    """Creates a policy for each run: a class, or a function with these parameter names, by which
    type checkers tell it from a rule."""

    def __call__(self, config: BranchingConfig, threshold_nats: float) -> Policy: ...


GivenPolicy: TypeAlias = Rule | PolicyFactory | Policy
# From token ids (1, tokens) and scores (1, V) to new scores, like transformers' LogitsProcessor
Processor: TypeAlias = Callable[[Any, Any], Any]


def plain_name(given: Any) -> str:
    """The name of a function or class, or of an object's class, in characters that files allow."""
    named = getattr(given, "func", given)  # of functools.partial
    name = getattr(named, "__name__", type(named).__name__)
    return re.sub(r"[^A-Za-z0-9_.-]+", "", name)[:_MAX_NAME] or "unnamed"


def own_name(given: Any) -> str:
    """The name of a custom policy in the settings. Raises ConfigError if it cannot be one."""
    if not _can_be_one(given):
        raise ConfigError(f"policy is {quoted(given)}; give {_FORMS}")
    return OWN + plain_name(given)


def check_is_there(config: BranchingConfig, given: GivenPolicy | None) -> None:
    """Raise ConfigError if the settings name a custom policy that is not given."""
    if config.policy.startswith(OWN) and given is None:
        raise ConfigError(
            f"the policy is {config.policy}, which was given in Python. Settings hold only its "
            "name: give it in Python, as policy= of EntropyAdaptiveBranching, or choose another"
        )


def own_policy(given: Any, config: BranchingConfig, threshold_nats: float) -> Policy:
    """The policy for one run; a given Policy object serves every run.

    Raises:
        ConfigError: What is given does not create a Policy.
    """
    from eab.engine.branching.fair import RulePolicy  # it needs torch

    made: Any
    if _is_policy(given):
        made = given
    elif _is_rule(given):
        made = RulePolicy(config, given)
    else:
        made = given(config, threshold_nats)
    missing = [name for name in _METHODS if not callable(getattr(made, name, None))]
    if missing:
        raise ConfigError(
            f"the policy {plain_name(given)} is a {type(made).__name__} without "
            f"{', '.join(missing)}; give {_FORMS}. The class "
            "eab.engine.branching.policy.Seeded has all but branch and prune"
        )
    policy: Policy = made
    return policy


def _can_be_one(given: Any) -> bool:
    """Whether it is a Policy or the class of one, or takes two arguments."""
    if isinstance(given, type) and not hasattr(given, "branch"):
        return False
    return _is_policy(given) or takes(given, 2)


def takes(given: Any, arguments: int) -> bool:
    """Whether it can be called with this many arguments."""
    try:
        signature(given).bind(*[None] * arguments)
    except (TypeError, ValueError):  # ValueError: a builtin without a signature
        return False
    return True


def _is_policy(given: Any) -> bool:
    return hasattr(given, "branch") and not isinstance(given, type)


def _is_rule(given: Any) -> bool:
    """Whether it is a rule; a factory is a class, or has a parameter named `config`."""
    return not isinstance(given, type) and "config" not in signature(given).parameters
