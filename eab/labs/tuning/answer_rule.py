"""Finds the rule that compares answers by its name; only `nli:` rules load a model."""

from functools import lru_cache
from typing import Final

from eab.analysis.same_answer import RULES, SameAnswer
from eab.errors import ConfigError

NLI: Final = "nli:"


def check_rule(name: str) -> None:
    """Raise ConfigError if there is no rule with this name; nothing is loaded."""
    if name in RULES or (name.startswith(NLI) and _model_of(name)):
        return
    raise ConfigError(
        f"answers are compared by {name!r}; it must be one of: {', '.join(RULES)}, or {NLI} and "
        "the folder or Hub id of an NLI model"
    )


@lru_cache(maxsize=1)
def load_rule(name: str) -> SameAnswer:
    """The cached rule `name`; ConfigError if unknown, ModelError if its model fails to load."""
    check_rule(name)
    if name in RULES:
        return RULES[name]
    from eab.models.entailment import load_entailment

    return load_entailment(_model_of(name))


def _model_of(name: str) -> str:
    return name.removeprefix(NLI).strip()
