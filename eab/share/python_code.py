"""A run as a Python program that reproduces it."""

from dataclasses import fields
from typing import Final

from eab.branching.presets import START, starting_values
from eab.config import BranchingConfig
from eab.events import RunStarted
from eab.events.chat import as_json
from eab.figures.run_names import file_stem
from eab.weight_formats import AS_LOADED, PLAIN

_ALWAYS: Final = frozenset(starting_values())
_PRINTED: Final = """\
for sample in run.samples:
    print(f"{sample.weight:.3f} {sample.text!r}")
"""


def as_python(started: RunStarted) -> str:
    """The program, with model, device, dtype, weights, every setting that differs from its default,
    and those that presets and sampling set.

    On the same kind of machine it gives the same events, except for the timings. An imported run
    can only be read from its file.
    """
    if started.imported:
        return f'import eab\n\nrun = eab.load("{file_stem(started)}.eab")\n{_PRINTED}'
    card = started.model
    given: dict[str, object] = {"device": card.device, "dtype": card.dtype}
    given |= {"weights": card.weights} if card.weights != AS_LOADED else {}
    given |= {"layout": card.layout} if card.layout != PLAIN else {}
    given |= {"draft": started.draft.name} if started.draft is not None else {}
    given |= {
        field.name: getattr(started.config, field.name)
        for field in fields(BranchingConfig)
        if field.name in _ALWAYS
        or getattr(started.config, field.name) != getattr(START, field.name)
    }
    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    tokens = started.continued_tokens
    more = f", continued={tokens!r}" if tokens else ""
    more += ", parse_special=True" if started.parse_special else ""
    text = as_json(started.messages) or started.prompt
    prompt = repr([*started.own_tokens] if started.by_token_ids else text)
    note = f"# The run used {started.own_parts}: add them.\n" if started.own_parts else ""
    return note + (
        "from eab import EntropyAdaptiveBranching\n\n"
        f"explorer = EntropyAdaptiveBranching(\n    {card.name!r},\n{arguments})\n"
        f"run = explorer.run({prompt}{more})\n"
        f"{_PRINTED}"
    )
