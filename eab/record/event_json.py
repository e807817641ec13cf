"""Convert events to and from JSON values (see `eab.record.typed_json`, `eab.events.fields`)."""

import math
from typing import Any, Final, get_args

import msgspec

from eab.errors import RecordError
from eab.events import Event, Predicted, RunEnded, RunStarted, Speculated
from eab.events.chat import read_messages, title_of
from eab.formatting import quoted
from eab.record.typed_json import read

_KINDS: Final = {kind.__name__: kind for kind in get_args(Event)}


def to_json(event: Event) -> dict[str, Any]:
    """The event as JSON values, with the name of its class as `event`."""
    made: dict[str, Any] = msgspec.to_builtins(event) | {"event": type(event).__name__}
    for name in ("logits_processors", "parse_special", "by_token_ids"):
        if not made.get(name, True):
            del made[name]  # so that older versions of the program can read the file
    return made


def from_json(value: Any) -> Event:
    """The event described by JSON values; RecordError says what is wrong."""
    if type(value) is not dict:
        raise RecordError(f"expected an object, got {quoted(value)}")
    name = value.get("event")
    if not isinstance(name, str) or name not in _KINDS:
        raise RecordError(f"there is no event {quoted(name)}")
    try:
        own = {key: value[key] for key in value if key != "event"}
        event: Event = read(own, _KINDS[name], surrogates="surrogateescape")
        _check_consistency(event)
        return event
    except ValueError as error:
        raise RecordError(str(error)) from error


def _check_consistency(event: Event) -> None:
    """Raise ValueError if fields contradict each other; readers of a loaded run rely on this."""
    match event:
        case RunStarted():
            for model in filter(None, (event.model, event.draft)):
                texts = (model.name, model.family, model.dtype, model.device)
                "".join((*texts, model.weights, model.layout)).encode("utf-8")
            event.prompt.encode("utf-8")
            "".join(event.logits_processors).encode("utf-8")
            if event.messages and event.prompt != title_of(read_messages(event.messages)):
                raise ValueError("prompt is not the title of the messages")
            tokens = len(event.prompt_tokens)
            _within("the length of the prompt", tokens, 1, math.inf)
            _within("the number of its texts", len(event.prompt_texts), tokens, tokens)
            _within("continued", event.continued, 0, tokens)
        case Predicted():
            for bounds in [seen.whole for seen in event.predictions if seen.whole is not None]:
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
        raise ValueError(f"{name} is {quoted(value)}; it must be from {low:g} to {high:g}")
