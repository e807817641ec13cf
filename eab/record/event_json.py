"""Events to and from JSON values. On reading nothing is converted, and every limit is checked.

The limits stand with the fields of the events (eab.events.fields). The length of a list is checked
before its elements are, and reading ends at its first bad element.
"""

import math
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import cattrs
from cattrs.gen import make_dict_unstructure_fn
from cattrs.strategies import configure_tagged_union

from eab.config import AUTO, MAX_SEED, MAX_STOP_STRINGS
from eab.errors import ConfigError, PromptError, RecordError
from eab.events import Event, Predicted, RunEnded, RunStarted, Speculated
from eab.events.chat import read_messages, title_of
from eab.events.fields import AtMost, Within
from eab.formatting import quoted

_LONGEST_REASON: Final = 300  # characters
_NAMES: Final = [kind.__name__ for kind in get_args(Event)]

Hook = Callable[[Any, Any], Any]


def to_json(event: Event) -> dict[str, Any]:
    """The event as JSON values, with the name of its class as `event`."""
    made: dict[str, Any] = _converter.unstructure(event, Event)
    return made


def from_json(value: Any) -> Event:
    """The event that JSON values describe.

    Raises:
        RecordError: They describe none, or its fields contradict each other; the message says why.
    """
    if type(value) is not dict:
        raise RecordError(f"expected an object, got {quoted(value)}")
    if (name := value.get("event")) not in _NAMES:
        raise RecordError(f"there is no event {quoted(name)}")
    try:
        event: Event = _converter.structure(value, Event)  # type: ignore[arg-type]
        _check_consistency(event)
        return event
    except Exception as error:  # cattrs raises what the value provokes, in groups
        raise RecordError("; ".join(_reasons(error))[:_LONGEST_REASON]) from error


def _check_consistency(event: Event) -> None:
    """ValueError for fields that contradict each other; readers of a loaded run rely on them."""
    match event:
        case RunStarted():
            for model in filter(None, (event.model, event.draft)):
                texts = (model.name, model.family, model.dtype, model.device)
                "".join((*texts, model.weights, model.layout)).encode("utf-8")
            event.prompt.encode("utf-8")
            if event.messages and event.prompt != title_of(read_messages(event.messages)):
                raise ValueError("prompt is not the title of the messages")
            tokens = len(event.prompt_tokens)
            _within("the length of the prompt", tokens, 1, math.inf)
            _within("the number of its texts", len(event.prompt_texts), tokens, tokens)
            _within("continued", event.continued, 0, tokens)
        case Predicted(whole=bounds) if bounds is not None:
            _within("whole", bounds.low, 0.0, bounds.high)
        case Speculated():
            drafted = len(event.draft_tokens)
            _within("verified", event.verified, 0, drafted)
            _within("accepted", event.accepted, max(0, event.verified - 1), event.verified)
            _within("the number of texts", len(event.draft_texts), drafted, drafted)
        case RunEnded():
            event.message.encode("utf-8")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {quoted(value)}; it must be from {low:g} and {high:g}")


def _reasons(error: BaseException) -> list[str]:
    """What went wrong: the message of a setting, or cattrs' path to the bad field."""
    if isinstance(error, ConfigError | PromptError):
        return [str(error)]
    if isinstance(error, BaseExceptionGroup):
        from_settings = filter(_has_config_error, error.exceptions)
        words = [reason for inner in from_settings for reason in _reasons(inner)]
        return words or cattrs.transform_error(error, format_exception=_in_words)
    return [quoted(error)]


def _in_words(error: BaseException, kind: type | None) -> str:
    """Our own words for a value that a field does not allow, else those of cattrs."""
    return str(error) if isinstance(error, _NotAllowed) else cattrs.v.format_exception(error, kind)


def _has_config_error(error: BaseException) -> bool:
    """Whether a ConfigError is among its causes."""
    if isinstance(error, BaseExceptionGroup):
        return any(_has_config_error(inner) for inner in error.exceptions)
    return isinstance(error, ConfigError)


class _NotAllowed(ValueError):
    """A value in a run file is not of the type, the range or the length that its field declares."""


def _exactly(kind: type) -> Hook:
    """No coercion: "3" is not 3, and True is not 1."""

    def structure(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        raise _NotAllowed(f"expected {kind.__name__}, got {quoted(value)}")

    return structure


def _whole(low: float, high: float) -> Hook:
    def structure(value: Any, _: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise _refusal(value, int, low, high)

    return structure


def _real(low: float, high: float) -> Hook:
    """A whole number may stand for a float."""

    def structure(value: Any, _: Any) -> float:
        if type(value) in (float, int) and low <= value <= high:
            return float(value)
        raise _refusal(value, float, low, high)

    return structure


def _refusal(value: Any, kind: type, low: float, high: float) -> _NotAllowed:
    if type(value) not in (kind, int):
        return _NotAllowed(f"expected {kind.__name__}, got {quoted(value)}")
    return _NotAllowed(f"{quoted(value)} must lie between {low:g} and {high:g}")


def _text(longest: float) -> Hook:
    def structure(value: Any, _: Any) -> str:
        if type(value) is not str:
            raise _NotAllowed(f"expected a text, got {quoted(value)}")
        if len(value) > longest:
            raise _NotAllowed(
                f"a text of {len(value):,} characters; at most {longest:,} are allowed"
            )
        if not value.isascii():
            value.encode("utf-8", "surrogateescape")  # lone surrogates only as in eab.token_text
        return value

    return structure


def _list(element: Any, longest: int, converter: cattrs.Converter) -> Hook:
    hook = converter.get_structure_hook(element)

    def structure(value: Any, _: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _NotAllowed(f"expected a list, got {quoted(value)}")
        if len(value) > longest:
            raise _NotAllowed(f"a list of {len(value):,} elements; at most {longest:,} are allowed")
        return tuple([hook(one, element) for one in value])

    return structure


def _declared(kind: Any, converter: cattrs.Converter) -> Hook:
    """The hook of a type that declares its limit."""
    limit, bare = kind.__metadata__[0], kind.__origin__
    if isinstance(limit, Within):
        return (_whole if bare is int else _real)(limit.low, limit.high)
    if bare is str:
        return _text(limit.length)
    return _list(get_args(bare)[0], limit.length, converter)


def _declares_limit(kind: Any) -> bool:
    return get_origin(kind) is Annotated and isinstance(kind.__metadata__[0], Within | AtMost)


def _one_of(kind: Any) -> Hook:
    names = get_args(kind)

    def structure(value: Any, _: Any) -> Any:
        if type(value) is str and value in names:
            return value
        raise _NotAllowed(f"got {quoted(value)}; it must be one of: {', '.join(map(repr, names))}")

    return structure


def _row(kind: Any, converter: cattrs.Converter) -> Hook:
    """The hook of a NamedTuple: a list with one value per field."""
    columns = [
        (converter.get_structure_hook(column), column)
        for column in get_type_hints(kind, include_extras=True).values()
    ]

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not list or len(value) != len(columns):
            raise _NotAllowed(f"expected a list of {len(columns)} values, got {quoted(value)}")
        return kind(
            *[hook(one, column) for one, (hook, column) in zip(value, columns, strict=True)]
        )

    return structure


def _or_auto(hook: Hook) -> Hook:
    def structure(value: Any, kind: Any) -> Any:
        return value if type(value) is str and value == AUTO else hook(value, kind)

    return structure


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_row(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    whole = _whole(-MAX_SEED, MAX_SEED)
    converter.register_structure_hook(int, whole)
    converter.register_structure_hook(float, _real(-sys.float_info.max, sys.float_info.max))
    converter.register_structure_hook(str, _text(math.inf))
    converter.register_structure_hook(bool, _exactly(bool))
    for kind, hook in ((int, whole), (bool, _exactly(bool))):
        converter.register_structure_hook(kind | Literal["auto"], _or_auto(hook))
    converter.register_structure_hook_func(
        lambda kind: kind == tuple[str, ...], _list(str, MAX_STOP_STRINGS, converter)
    )
    for declares, make in ((_declares_limit, _declared), (_is_row, _row)):
        converter.register_structure_hook_factory(declares, make)
    converter.register_structure_hook_factory(_is_choice, _one_of)
    # A run of a model on this machine says nothing of bounds.
    converter.register_unstructure_hook(
        Predicted, make_dict_unstructure_fn(Predicted, converter, _cattrs_omit_if_default=True)
    )
    configure_tagged_union(Event, converter, tag_name="event")
    return converter


_converter = _make_converter()
