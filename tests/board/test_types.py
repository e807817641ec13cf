"""Messages to the browser have the names and types declared in eab/board/static/types.d.ts."""

from typing import Any

import pytest
from declared_types import FIELDS, fits
from invented_runs import invented_run, with_each

from app.server.links import Link
from app.widgets.board import Offers
from eab.board.guide import Guide
from eab.board.messages import Feed, diff_message
from eab.config import AUTO
from eab.events import EntropyBounds, Event, Labelled, LabelRule, Predicted
from eab.figures.run_comparison import marks
from eab.lessons import bundled_runs
from eab.run import RunState, fold
from eab.what_if.trace import Unknown

EVENTS = bundled_runs.events_of(bundled_runs.named(bundled_runs.STORY))
RUN = fold(EVENTS)


def bounded(event: Event) -> Event:
    whole = EntropyBounds(1.0, 2.5)
    return with_each(event, whole=whole) if isinstance(event, Predicted) else event


def sent(run: RunState | None = RUN, **more: Any) -> dict[str, Any]:
    return Feed().message(run, "one", "replay") | more


OFFERS = Offers(
    grow=lambda address: None,
    label=lambda run, rules: None,
    growth_steps=(AUTO, 8),
    link=Link(prompt="Hi"),
    tour=False,
).as_message()
MESSAGES = {
    "not started": sent(None),
    "replay": sent(offers=OFFERS, guide=Guide("one", 3, (0, 1), "help").as_message()),
    "nothing offered": sent(offers=Offers().as_message(), guide=Guide("one").as_message()),
    "live": Feed().message(fold(EVENTS[: len(EVENTS) // 2]), "one", "live", cursor=2),
    "invented": sent(fold(invented_run(5, 20, 8))),
    "bounds": sent(fold([bounded(event) for event in EVENTS])),
    "labels": sent(fold([*EVENTS, Labelled(1, (LabelRule("a", "contains", "a"),))])),
    "diff": diff_message(RUN, fold(EVENTS[: len(EVENTS) // 2]), "two"),
    "graft": diff_message(RUN, RUN, "two") | {"graft": True},
    "what-if": sent(
        what_if="0.5 auto",
        unknowns=marks(RUN, [Unknown(5, 1, "fork")]),
        notes={"entropy": "Recomputed."},
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_has_its_declared_type(name: str) -> None:
    for field, value in MESSAGES[name].items():
        assert field in FIELDS["Message"], field
        assert fits(value, FIELDS["Message"][field][1]), f"{field}: {value}"
    assert fits(MESSAGES[name], "Message")


def test_every_declared_field_is_sent() -> None:
    declared = {
        "Message": [*MESSAGES.values()],
        "PathMessage": sent()["paths"],
        "StepMessage": sent()["steps"],
        "DecidingMessage": [sent()["deciding"]],
        "Offers": [OFFERS],
    }
    for name, messages in declared.items():
        assert set().union(*messages) == FIELDS[name].keys(), name


@pytest.mark.parametrize(
    ("field", "value"),
    [("version", "3"), ("deciding", {}), ("paths", [{"id": 0}]), ("mode", "x"), ("surprise", 1)],
)
def test_a_wrong_type_or_name_is_detected(field: str, value: Any) -> None:
    assert not fits(sent() | {field: value}, "Message")
