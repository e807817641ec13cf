"""Command-line options that several commands share; those for settings come from eab.config.

`with_settings` replaces a command's parameter `config` by one option per setting. `with_grid` and
`with_model` do the same for `grid` and for `source`, the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from eab.config import BRANCHING, SETTINGS, SPECULATIVE, BranchingConfig
from eab.engine.branching.presets import (
    OF_PRESETS,
    PRESETS,
    START,
    starting_config,
    starting_values,
)
from eab.errors import ConfigError
from eab.formatting import quoted
from eab.labs.tuning.grid import MAX_SEEDS, Grid
from eab.settings import Choice, Real, Setting, Switch, Text, Whole
from eab.text_values import JsonObject, Texts
from eab.timing import MIN_REPEATS
from eab.weight_formats import AS_LOADED, AUTO, LAYOUTS, WEIGHT_FORMATS

MAX_REPEATS = 100
Prompt = Annotated[
    str, typer.Argument(help="The text that the model continues; - reads it from standard input.")
]
PromptOrNone = Annotated[
    str | None,
    typer.Argument(
        help="The text that the model continues; - reads it from standard input. Leave it out "
        "with --messages.",
        show_default=False,
    ),
]
Messages = Annotated[
    str,
    typer.Option(
        help="A chat instead of a prompt: a JSON file with a list of messages, each with role and "
        "content; - reads it from standard input. If the last message is from the assistant, "
        "the model continues it.",
        show_default=False,
    ),
]
RunFile = Annotated[Path, typer.Argument(help="A run file, written by --record or by the page.")]
Model = Annotated[
    str,
    typer.Option(
        help="The model: embedded, smollm2, a folder, a GGUF file or an id on the Hugging Face "
        "Hub; with the prefix llama.cpp: or vllm:, the model of a server (EAB_REMOTE). eab "
        "models lists the models on this machine."
    ),
]
Draft = Annotated[
    str,
    typer.Option(
        help="The draft model for --drafter model. It must have the same vocabulary as the model.",
        rich_help_panel=SPECULATIVE,
    ),
]
PrefixCache = Annotated[
    bool,
    typer.Option(
        "--prefix-cache/--no-prefix-cache",
        help="Compute what prompts have in common once, not for every run, nor for the probe of a "
        "rank threshold. Turn it off to measure runs as they are alone.",
    ),
]
Device = Annotated[str, typer.Option(help="Where the model runs: auto, cpu, cuda, ...")]
Dtype = Annotated[
    str, typer.Option(help="Number format: auto, float32, bfloat16, float16, float64.")
]
Weights = Annotated[str, typer.Option(help=f"Format of the weights: {', '.join(WEIGHT_FORMATS)}.")]
Layout = Annotated[
    str, typer.Option(help=f"Layout of the weights as loaded: {', '.join((AUTO, *LAYOUTS))}.")
]
AnswerPart = Annotated[
    str,
    typer.Option(
        help="Group equal answers by: text, the whole text; sentence, the first sentence; "
        "after-thinking, the text after the last end of thinking, such as </think>; "
        "regex:PATTERN, the only group of a regular expression."
    ),
]
SameAnswer = Annotated[
    str,
    typer.Option(
        "--same-answer",
        help="When two answers are the same. exact: only case, spaces, closing punctuation, "
        "quotes and articles may differ. spelling: also accents, and one letter in long words. "
        "content: words of "
        "the prompt may be missing, and numbers may be written as words. nli:MODEL: each "
        "entails the other, by an NLI model: a folder or a Hub id.",
    ),
]
Repeats = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_REPEATS,
        help="Repeats of each run, alternating, for the times. Times are compared from "
        f"{MIN_REPEATS} repeats on.",
    ),
]
JsonFile = Annotated[
    str, typer.Option("--json", help="Write the results as JSON; - for standard output.")
]
RecordFile = Annotated[
    str, typer.Option("--record", help="Write a run file as the run goes on, for eab replay.")
]
Seeds = Annotated[
    int, typer.Option(help="Number of seeds per cell: --seed and the following ones.")
]
Sample = Annotated[
    int, typer.Option(help="Run only this many combinations, drawn at random; 0 runs all.", min=0)
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="A set of settings for the shape of the tree, with a threshold that fits model and "
        "prompt. Other options override it. "
        + "; ".join(f"{name}: {preset.help}" for name, preset in PRESETS.items())
        + ".",
        rich_help_panel=BRANCHING,
        show_default=False,
    ),
]
MAX_VALUES: Final = 10_000  # per setting
_NOT_GIVEN: Final = frozenset(starting_values())  # None if omitted, because a preset may set them

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The model that a command loads, and how; see `eab.engine.models.loading.load_model`."""

    model: str
    device: str
    dtype: str
    weights: str
    layout: str


def with_model(command: Command) -> Command:
    """Replace `source` by one option per field of `ModelOptions`."""
    defaults = {"model": "embedded", "device": "auto", "dtype": "auto"}
    defaults |= {"weights": AS_LOADED, "layout": AUTO}
    kinds = {"model": Model, "device": Device, "dtype": Dtype, "weights": Weights, "layout": Layout}
    parameters = [_parameter(name, kind, defaults[name]) for name, kind in kinds.items()]
    return _replacing("source", parameters, lambda given: ModelOptions(**given))(command)


def _config_of(options: dict[str, Any]) -> BranchingConfig:
    given = {name: value for name, value in options.items() if value is not None}
    return starting_config(**given)


def with_settings(*, without: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Replace `config` by one option per setting, except for those in `without`."""
    offered = {name: each for name, each in SETTINGS.items() if name not in without}
    parameters = [_parameter("preset", PresetName, None)]
    parameters += [_option(name, declared) for name, declared in offered.items()]
    return _replacing("config", parameters, _config_of)


def with_grid(command: Command) -> Command:
    """Replace `grid` by options for the values of each setting, the seeds and the sample size."""
    parameters = [_parameter("preset", PresetName, None)]
    parameters += [_grid_option(name, declared) for name, declared in SETTINGS.items()]
    parameters += [_parameter("seeds", Seeds, 1), _parameter("sample", Sample, 0)]
    return _replacing("grid", parameters, grid_of)(command)


def _replacing(
    name: str, parameters: Sequence[Parameter], make: Callable[[dict[str, Any]], Any]
) -> Callable[[Command], Command]:
    """Replace a command's parameter by others; `make` builds its value from theirs."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_options(**given: Any) -> None:
            own = {each.name: given.pop(each.name) for each in parameters}
            command(**{name: make(own)}, **given)

        whole = signature(command)
        replaced: list[Parameter] = []
        for parameter in whole.parameters.values():
            replaced += parameters if parameter.name == name else [parameter]
        with_options.__signature__ = whole.replace(parameters=replaced)  # type: ignore[attr-defined]
        return with_options

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return Parameter(name, kind, default=default, annotation=annotation)


def _flag(name: str, declared: Setting) -> str:
    return f"--{(declared.option or name).replace('_', '-')}"


def _option(name: str, declared: Setting) -> Parameter:
    kind: Any = str
    flag = _flag(name, declared)
    details = _shown_default(name)
    match declared.values:
        case Whole(or_word=word) if word:
            kind = Any
            details |= {"metavar": f"<int>|{word}", "parser": _number_or_word}
        case Whole():
            kind = int
        case Real():
            kind = float
        case Texts():
            kind = list[str]
        case Switch(or_word=word):
            kind = bool | None if word else bool
            details |= {"show_default": word} if word else {}
            flag = f"{flag}/--no-{flag.removeprefix('--')}" if word else flag
    option = typer.Option(flag, help=declared.help, rich_help_panel=declared.group, **details)
    default = declared.default
    if isinstance(declared.values, Switch) and not isinstance(default, bool):
        default = None
    if name in _NOT_GIVEN:
        return _parameter(name, Annotated[kind | None, option], None)
    return _parameter(
        name, Annotated[kind, option], [*default] if isinstance(default, tuple) else default
    )


def _shown_default(name: str) -> dict[str, Any]:
    return {"show_default": f"{getattr(START, name)}"} if name in _NOT_GIVEN else {}


def _number_or_word(given: Any) -> Any:
    return int(given) if str(given).isdecimal() and len(str(given)) <= 20 else given


def _grid_option(name: str, declared: Setting) -> Parameter:
    if name == "seed" or isinstance(declared.values, Switch | Text | Texts | JsonObject):
        return _option(name, declared)
    ranges = isinstance(declared.values, Whole | Real)
    option = typer.Option(
        _flag(name, declared),
        help=declared.help,
        rich_help_panel=declared.group,
        metavar="a,b,...|from:to:step" if ranges else "a,b,...",
        **_shown_default(name),
    )
    default = None if name in _NOT_GIVEN else str(declared.default)
    return _parameter(name, Annotated[str | None, option], default)


def grid_of(given: dict[str, Any]) -> Grid:
    """The grid that the options of `with_grid` describe; ConfigError if a value is not allowed."""
    values = {
        name: list_of_values(_flag(name, declared), declared, given[name])
        for name, declared in SETTINGS.items()
        if given[name] is not None
    }
    presets = [None] if given["preset"] is None else _parts(given["preset"])
    own = OF_PRESETS if len(presets) > 1 else ()  # given options override every preset
    varied = {name: some for name, some in values.items() if len(some) > 1 or name in own}
    varied |= {"preset": presets} if own else {}
    base = {name: some[0] for name, some in values.items()} | {"preset": presets[0]}
    first, count = base["seed"], given["seeds"]
    if not 1 <= count <= MAX_SEEDS:
        raise ConfigError(f"--seeds is {count}; it must be a whole number from 1 to {MAX_SEEDS}")
    return Grid(varied, starting_config(**base), range(first, first + count), given["sample"])


def list_of_values(flag: str, declared: Setting, given: Any) -> list[Any]:
    """Parse `0.3,0.65` or `0.2:1.2:0.2` (both ends included); ConfigError if invalid."""
    if not isinstance(given, str) or isinstance(declared.values, Text | JsonObject):
        return [given]
    parts = _parts(given)
    if isinstance(declared.values, Choice):
        return [*parts]
    number = _whole if isinstance(declared.values, Whole) else float
    values: list[Any] = []
    for part in parts:
        if isinstance(declared.values, Whole) and part and part == declared.values.or_word:
            values.append(part)
            continue
        try:
            values += [number(value) for value in _range(part)]
        except (ArithmeticError, ValueError) as error:
            raise ConfigError(
                f"{flag} has {quoted(part)}; write numbers such as 4,8 or a range from:to:step "
                f"with at most {MAX_VALUES:,} values"
            ) from error
    return values


def _parts(given: str) -> list[str]:
    return [part.strip() for part in given.split(",")]


def _whole(value: Decimal) -> int:
    if value != value.to_integral_value():
        raise ValueError(value)
    return int(value)


def _range(part: str) -> list[Decimal]:
    """The numbers of `from:to:step`, or the one number; Decimal, because 3 * 0.1 must be 0.3."""
    ends = [Decimal(end) for end in part.split(":")]
    if len(ends) == 1:
        return ends
    low, high, step = ends
    if not (low <= high and step > 0 and (high - low) / step < MAX_VALUES):
        raise ValueError(part)
    return [low + step * index for index in range(int((high - low) / step) + 1)]
