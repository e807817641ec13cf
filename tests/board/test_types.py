"""Messages to the browser have the names and types declared in eab/board/static/types.d.ts."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from invented_runs import invented_run, with_each
from places import ROOT

from app.server.links import Link
from app.widgets.board import Offers
from eab.board import STATIC
from eab.board.messages import Feed, deciding_forks, diff_message
from eab.config import AUTO
from eab.lessons import bundled_runs
from eab.lessons.lesson import Guide
from eab.run import RunState, fold
from eab.run.events import EntropyBounds, Event, Labelled, LabelRule, Predicted

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
    "asked": sent(asked={"threshold": 0.5, "r": None}),
    "note": sent(notes={"tree": "The labels are not shown."}),
    "recorded": sent(
        asked={"threshold": None, "r": AUTO, "deciding": deciding_forks(RUN)}, recorded="H4sI"
    ),
    "graft": diff_message(RUN, RUN, "two") | {"graft": True},
}

# which makes the messages of a what-if
OF_BROWSER = {"Message": {"what_if", "unknowns"}}

WRONG = [
    sent() | {field: value}
    for field, value in (
        *(("version", "3"), ("deciding", {}), ("paths", [{"id": 0}]), ("mode", "x")),
        ("surprise", 1),
    )
]
TYPES = STATIC / "types.d.ts"
TSC = ROOT / "node_modules" / ".bin" / "tsc"


@pytest.mark.skipif(not TSC.exists(), reason="TypeScript is not installed (npm ci)")
def test_messages_have_their_declared_type_and_wrong_ones_do_not(tmp_path: Path) -> None:
    lines = [f'import type {{ Message }} from "{TYPES.with_suffix("").with_suffix("")}";']
    for number, message in enumerate([*MESSAGES.values(), *WRONG]):
        lines.append(f"export const m{number}: Message = {json.dumps(message)};")
    file = tmp_path / "messages.ts"
    file.write_text("\n".join(lines), encoding="utf-8")
    command = [TSC, "--ignoreConfig", "--noEmit", "--strict", "--types", "", file]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    wrong = {int(line) for line in re.findall(r"messages\.ts\((\d+),\d+\): error", said)}
    first = 2 + len(MESSAGES)
    assert wrong == {*range(first, first + len(WRONG))}, said[:2000]


def test_every_declared_field_is_sent() -> None:
    declared = {
        "Message": [*MESSAGES.values()],
        "PathMessage": sent()["paths"],
        "StepMessage": sent()["steps"],
        "DecidingMessage": [sent()["deciding"]],
        "Offers": [OFFERS],
    }
    source = TYPES.read_text(encoding="utf-8")
    for name, messages in declared.items():
        [body] = re.findall(rf"^export interface {name} {{\n(.*?)^}}", source, re.M | re.S)
        fields = {*re.findall(r"^  (\w+)\??: ", body, re.M)}
        assert set().union(*messages) == fields - OF_BROWSER.get(name, set()), name
