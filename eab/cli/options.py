"""The command-line options that several commands have; those of the settings come from eab.config.

A command that is decorated with `with_settings` has a parameter `config`. On the command line it is
replaced by one option per setting, and the command is called with the config that they make.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from eab.config import SETTINGS, SPECULATIVE, BranchingConfig
from eab.settings import Real, Setting, Switch, Whole
from eab.weight_formats import AUTO, LAYOUTS, WEIGHT_FORMATS

Prompt = Annotated[
    str, typer.Argument(help="The text that the model continues; - reads it from standard input.")
]
RunFile = Annotated[Path, typer.Argument(help="A run file, written by --record or by the page.")]
Model = Annotated[
    str, typer.Option(help="The model: embedded, a local folder, or an id on the Hugging Face Hub.")
]
Draft = Annotated[
    str,
    typer.Option(
        help="The draft model, for --drafter model; it must have the vocabulary of the model.",
        rich_help_panel=SPECULATIVE,
    ),
]
Device = Annotated[str, typer.Option(help="Where the model runs: auto, cpu, cuda, ...")]
Dtype = Annotated[
    str, typer.Option(help="Number format: auto, float32, bfloat16, float16, float64.")
]
Weights = Annotated[str, typer.Option(help=f"Format of the weights: {', '.join(WEIGHT_FORMATS)}.")]
Layout = Annotated[
    str,
    typer.Option(help=f"Layout of weights that are as loaded: {', '.join((AUTO, *LAYOUTS))}."),
]
AnswerPart = Annotated[
    str,
    typer.Option(
        help="Group equal answers, by their whole text or their first sentence: text, sentence."
    ),
]
SameAnswer = Annotated[
    str,
    typer.Option(
        "--same-answer",
        help="Which answers count as the same. exact: only case, spaces, punctuation and articles "
        "may differ. spelling: also accents, and one letter in long words. content: also words of "
        "the prompt that one leaves out, and numbers in words. nli:MODEL: each entails the other, "
        "by an NLI model: a folder or a Hub id.",
    ),
]
JsonFile = Annotated[
    str, typer.Option("--json", help="Write the results as JSON; - for standard output.")
]
RecordFile = Annotated[
    str, typer.Option("--record", help="Write a run file, for eab replay and the page.")
]

Command = Callable[..., None]


def with_settings(*, without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Give a command one option per setting, in the place of its parameter `config`.

    Args:
        without: Settings that get no option and keep their default.
    """
    offered = {name: each for name, each in SETTINGS.items() if name not in without}

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_options(**given: Any) -> None:
            settings = {name: given.pop(name) for name in offered}
            command(config=BranchingConfig.from_settings(settings), **given)

        own = signature(command)
        parameters: list[Parameter] = []
        for parameter in own.parameters.values():
            if parameter.name == "config":
                parameters += [_option(name, declared) for name, declared in offered.items()]
            else:
                parameters.append(parameter)
        with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate


def _option(name: str, declared: Setting) -> Parameter:
    """The option of one setting; its value is checked by the config, in words."""
    flag = f"--{(declared.option or name).replace('_', '-')}"
    kind: Any = str
    details: dict[str, Any] = {}
    match declared.values:
        case Whole(or_word=word) if word:
            kind = Any
            details = {"metavar": f"<int>|{word}", "parser": _number_or_word}
        case Whole():
            kind = int
        case Real():
            kind = float
        case Switch():
            kind = bool
    option = typer.Option(flag, help=declared.help, rich_help_panel=declared.group, **details)
    return Parameter(
        name,
        Parameter.POSITIONAL_OR_KEYWORD,
        default=declared.default,
        annotation=Annotated[kind, option],
    )


def _number_or_word(given: Any) -> Any:
    return int(given) if str(given).isdecimal() and len(str(given)) <= 20 else given
