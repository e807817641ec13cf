"""Run files of version 2, which have one event per path where there is now one per step."""

from typing import Any, Final

from eab.errors import RecordError
from eab.events import Event
from eab.formatting import quoted
from eab.record.typed_json import from_json

VERSION: Final = 2

# For each kind of event that was per path: the event and list that now hold its rows, and its
# fields in the order of such a row
_ROWS: Final = {
    "Predicted": ("Predicted", "predictions", ("path", "entropy", "candidates")),
    "LimitActed": ("LimitActed", "dropped", ("path", "dropped")),
    "TokenAppended": (
        "TokensAppended",
        "tokens",
        ("path", "token", "text", "log_prob", "special"),
    ),
    "Reweighted": ("Reweighted", "weights", ("path", "weight")),
}
_ORDER: Final = (
    *("Predicted", "LimitActed", "Pruned", "Forked", "TokensAppended", "Reweighted"),
    "PathFinished",
)


class Version2Unpacker:
    """Unpacks the events of one run, in order, and merges those of each step.

    Attributes:
        characters: Always 0: texts are written where they are used, so the file's size counts them.
    """

    characters: Final = 0

    def __init__(self) -> None:
        self._step: Any = None
        self._gathered: list[dict[str, Any]] = []

    def unpack(self, value: Any) -> list[Event]:
        """The events that these JSON values complete; RecordError says what is wrong."""
        event = value.get("event") if type(value) is dict else None
        if not isinstance(event, str) or (event not in _ROWS and event not in _ORDER):
            return [*self.rest(), from_json(value)]
        complete = [] if value.get("step") == self._step else self.rest()
        self._step = value.get("step")
        self._gathered.append(_as_row(value) if event in _ROWS else value)
        return complete

    def rest(self) -> list[Event]:
        """The events of the last step."""
        gathered, self._gathered = self._gathered, []
        gathered.sort(key=lambda value: _ORDER.index(value["event"]))
        joined: list[dict[str, Any]] = []
        for value in gathered:
            if "row" not in value:
                joined.append(value)
                continue
            _, rows, _ = next(kind for kind in _ROWS.values() if kind[0] == value["event"])
            if not joined or joined[-1]["event"] != value["event"]:
                joined.append({"event": value["event"], "step": self._step, rows: []})
            joined[-1][rows].append(value["row"])
        return list(map(from_json, joined))


def _as_row(value: dict[str, Any]) -> dict[str, Any]:
    event, _, names = _ROWS[value["event"]]
    optional = {"whole"} if event == "Predicted" else set()
    if wrong := (value.keys() - optional) ^ {"event", "step", *names}:
        raise RecordError(f"{event} of version 2 has no or too many {quoted(min(wrong))}")
    row = [value[name] for name in names]
    if value.get("whole") is not None:
        row.append(value["whole"])
    return {"event": event, "row": row}
