"""The rule that `--same-answer` names; a model is loaded only if it names one."""

from typing import Final

from eab.analysis.same_answer import RULES, SameAnswer
from eab.errors import ConfigError

NLI: Final = "nli:"


def load_rule(name: str) -> SameAnswer:
    """The rule of this name.

    Raises:
        ConfigError: There is no such rule, or no model after `nli:`.
        ModelError: The NLI model cannot be used.
    """
    if name in RULES:
        return RULES[name]
    model = name.removeprefix(NLI).strip()
    if not name.startswith(NLI) or not model:
        raise ConfigError(
            f"answers are compared by {name!r}; it must be one of: {', '.join(RULES)}, or "
            f"{NLI} and the folder or Hub id of an NLI model"
        )
    from eab.models.entailment import load_entailment

    return load_entailment(model)
