"""Events as the compact JSON values of a run file.

Nearly all of a run consists of the predictions and tokens of its paths. They are arrays here. A
token's text is written only where the token first appears, probabilities are in millionths, and
numbers that are exact in float32, as for most models, have only as many digits as float32 needs.

    Predicted:      [path, entropy, [token, probability, token, probability, ...]],
                    then [low, high] if there are bounds
    TokensAppended: [path, token, log probability], then 1 for a control token
    LimitActed:     [path, token, token, ...]
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Final

import numpy as np

from eab.errors import RecordError
from eab.events import Candidate, Event, LimitActed, Predicted, TokensAppended
from eab.formatting import quoted
from eab.record.typed_json import from_json, to_json

_MILLION: Final = 1_000_000
_SMALL: Final = [millionths / _MILLION for millionths in range(20_000)]


class Packer:
    """Packs the events of one run, in order."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}  # the texts of tokens already written

    def pack(self, event: Event) -> dict[str, Any]:
        """The event as JSON values."""
        match event:
            case Predicted():
                return self._predicted(event)
            case TokensAppended():
                return self._appended(event)
            case LimitActed(step, dropped):
                rows = [[path, *tokens] for path, tokens in dropped]
                return {"event": "LimitActed", "step": step, "dropped": rows}
        return to_json(event)

    def _predicted(self, event: Predicted) -> dict[str, Any]:
        entropies, single = _short([seen.entropy for seen in event.predictions])
        pairs = zip(event.predictions, entropies, strict=True)
        rows = [
            [seen.path, entropy, _flat(seen.candidates), *([seen.whole] if seen.whole else [])]
            for seen, entropy in pairs
        ]
        candidates = chain.from_iterable(seen.candidates for seen in event.predictions)
        texts = self._new_texts((each.token, each.text) for each in candidates)
        return {"event": "Predicted", "step": event.step, "predictions": rows} | single | texts

    def _appended(self, event: TokensAppended) -> dict[str, Any]:
        log_probs, single = _short([new.log_prob for new in event.tokens])
        pairs = zip(event.tokens, log_probs, strict=True)
        rows = [
            [new.path, new.token, log_prob, *([1] if new.special else [])]
            for new, log_prob in pairs
        ]
        texts = self._new_texts((new.token, new.text) for new in event.tokens)
        return {"event": "TokensAppended", "step": event.step, "tokens": rows} | single | texts

    def _new_texts(self, tokens: Iterable[tuple[int, str]]) -> dict[str, Any]:
        texts: dict[int, str] = {}
        for token, text in tokens:
            if texts.setdefault(token, text) != text:
                raise RecordError(
                    f"the run cannot be saved: its token {token} is {quoted(text)} and "
                    f"{quoted(texts[token])}"
                )
        new = {token: text for token, text in texts.items() if self._texts.get(token) != text}
        self._texts |= new
        return {"texts": [*new.items()]} if new else {}


class Unpacker:
    """Unpacks the events of one run, in order.

    Attributes:
        characters: Total characters of token texts so far, counted at each use of a token.
    """

    def __init__(self) -> None:
        self.characters = 0
        self._texts: dict[int, str] = {}
        self._numbers: dict[int, int] = {}  # one object for each token or path number

    def unpack(self, value: Any) -> list[Event]:
        """The one event described by these JSON values; RecordError says what is wrong."""
        kind = value.get("event") if type(value) is dict else None
        unpack = self._unpackers.get(kind) if isinstance(kind, str) else None
        if unpack is None:
            return [from_json(value)]
        try:
            self._learn(value.pop("texts", []))
            unpack(self, value, bool(value.pop("single", False)))
        except (IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise RecordError(f"the rows of {value['event']} are not as declared") from error
        return [from_json(value)]

    def rest(self) -> list[Event]:
        """The events left at the end of the file: none, because each line is a whole event."""
        return []

    def _learn(self, texts: list[list[Any]]) -> None:
        for token, text in texts:
            if type(token) is not int or type(text) is not str:
                raise RecordError(f"the text of token {quoted(token)} is {quoted(text)}")
            text.encode("utf-8", "surrogateescape")
            self._texts[token] = text

    def _texts_of(self, tokens: list[Any]) -> list[str]:
        try:
            texts = [self._texts[token] for token in tokens]
        except KeyError as error:
            raise RecordError(f"the token {quoted(error.args[0])} has no text") from error
        self.characters += sum(map(len, texts))
        return texts

    def _predicted(self, value: dict[str, Any], single: bool) -> None:
        rows = value["predictions"]
        entropies = _whole([row[1] for row in rows], single)
        paths = self._shared([row[0] for row in rows])
        # one call for all candidates, because a call costs more than the work on a number
        tokens = self._shared([token for row in rows for token in row[2][::2]])
        shares = [share for row in rows for share in row[2][1::2]]
        candidates = zip(tokens, self._texts_of(tokens), map(_probability, shares), strict=True)
        value["predictions"] = [
            (path, entropy, [*islice(candidates, (len(flat) + 1) // 2)], *bounds)
            for path, entropy, (_, _, flat, *bounds) in zip(paths, entropies, rows, strict=True)
        ]

    def _shared(self, numbers: list[Any]) -> list[Any]:
        """Use one object for equal numbers, which would otherwise be a fifth of a run's memory."""
        if not {*map(type, numbers)} <= {int}:  # True and 1.0 are equal to 1
            return numbers
        return [*map(self._numbers.setdefault, numbers, numbers)]

    def _appended(self, value: dict[str, Any], single: bool) -> None:
        rows = value["tokens"]
        log_probs = _whole([row[2] for row in rows], single)
        paths = self._shared([row[0] for row in rows])
        tokens = self._shared([row[1] for row in rows])
        texts = self._texts_of(tokens)
        value["tokens"] = [
            (path, token, text, log_prob, _is_special(special))
            for path, token, text, log_prob, (_, _, _, *special) in zip(
                paths, tokens, texts, log_probs, rows, strict=True
            )
        ]

    def _limited(self, value: dict[str, Any], _single: bool) -> None:
        value["dropped"] = [[path, tokens] for path, *tokens in value["dropped"]]

    _unpackers: Final[dict[Any, Callable[["Unpacker", dict[str, Any], bool], None]]] = {
        "Predicted": _predicted,
        "TokensAppended": _appended,
        "LimitActed": _limited,
    }


def _probability(share: Any) -> Any:
    if type(share) is not int:
        return share
    return _SMALL[share] if 0 <= share < len(_SMALL) else share / _MILLION


def _is_special(more: list[Any]) -> bool:
    if more not in ([], [1]):
        raise ValueError(more)
    return bool(more)


def _flat(candidates: Sequence[Candidate]) -> list[float]:
    flat: list[float] = []
    for candidate in candidates:
        token, probability = candidate.token, candidate.probability
        millionths = round(probability * _MILLION) if 0 < probability <= 1 else 0
        is_exact = millionths > 0 and millionths / _MILLION == probability
        flat += (token, millionths if is_exact else probability)
    return flat


def _short(numbers: list[float | None]) -> tuple[Sequence[float | None], dict[str, bool]]:
    """The numbers with only the digits that float32 needs, and the key that says so. If they are
    not exact in float32, they are returned unchanged, without the key.
    """
    if None in numbers:
        return numbers, {}
    with np.errstate(over="ignore"):
        single = np.array(numbers, np.float32)
    if single.tolist() != numbers:
        return numbers, {}
    return [float(number) for number in single.astype("U")], {"single": True}


def _whole(numbers: list[Any], single: bool) -> list[Any]:
    """Undo `_short`; values that are not numbers are refused later, when the event is read."""
    if not single or any(type(number) is not float for number in numbers):
        return numbers
    with np.errstate(over="ignore"):
        whole: list[Any] = np.array(numbers, np.float32).tolist()
    return whole
