"""Runs in the browser, from their events, are those that Python has: the messages to the board, and
what-ifs at any threshold and growth step.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest
from invented_runs import WORDS, invented_run
from made_runs import bundled
from msgspec import structs
from playwright.sync_api import Browser

from eab.board import STATIC, javascript
from eab.board.messages import Feed, board_message
from eab.config import AUTO, AllocationStep
from eab.engine.what_if.resimulate import WhatIf, resimulate
from eab.figures.run_comparison import (
    exactness_sentence,
    marks,
    rows_sentence,
    tree_change_sentence,
)
from eab.lessons import bundled_runs
from eab.run import RunState, fold
from eab.run.events import Event, Forked, RunEnded, RunStarted, StepTimed
from eab.run.record.run_file import decode, encode

pytestmark = [pytest.mark.browser, pytest.mark.slow]

Asked: TypeAlias = tuple[float | None, AllocationStep | None]
InBrowser: TypeAlias = Callable[..., Any]

NAMES: Final = [run.file.removesuffix(".eab") for run in bundled_runs.recordings()]
THRESHOLDS: Final = 20
STEPS: Final[list[AllocationStep]] = [AUTO, 1, 7, 256]
_OF_PYTHON: Final = {"file", "labels", "deciding"}  # what hosts bring along
_HOST: Final = """
import { Feed, boardMessage, fold } from "./messages.js";
import { resimulate, Trace } from "./resimulate.js";
import { WhatIf } from "./what_if_messages.js";
globalThis.called = {
  message: (events, since) => boardMessage(fold(events), since),
  grown: (events, sizes) => {
    const feed = new Feed("a", "live");
    let at = 0;
    return sizes.map((size) => feed.message(events.slice(at, (at += size))));
  },
  resimulated: (events, asked) => {
    const trace = new Trace(events);
    return asked.map(([threshold, r]) => resimulate(trace, threshold, r));
  },
  whatIf: (events, asked) => {
    const recorded = { ...boardMessage(fold(events)), run: "a", mode: "replay", autoplay: false };
    const whatIf = new WhatIf(events);
    return asked.map(([threshold, r]) => whatIf.message(recorded, { threshold, r }));
  },
};
"""


@pytest.fixture(scope="module")
def in_browser(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InBrowser]:
    """Call a function of _HOST with the events of a run and another argument."""
    folder = shutil.copytree(STATIC, tmp_path_factory.mktemp("host") / "static")
    (folder / "page.js").write_text(_HOST, encoding="utf-8")
    page = browser.new_page()
    page.add_script_tag(content=javascript("page", folder), type="module")
    page.wait_for_function("() => 'called' in globalThis")  # a module runs later

    def call(name: str, events: Sequence[Event], argument: Any) -> Any:
        lines = b",".join(map(encode, events)).decode("utf-8")
        code = (
            "([name, lines, argument]) => JSON.stringify(called[name](JSON.parse(lines), argument))"
        )
        return json.loads(page.evaluate(code, [name, f"[{lines}]", argument]))

    yield call
    page.close()


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """A message as JSON values, without what only Python can say."""
    sent: dict[str, Any] = json.loads(json.dumps(message))
    return {name: value for name, value in sent.items() if name not in _OF_PYTHON}


def restarted(events: Sequence[Event], **header: Any) -> list[Event]:
    """The same events, with these values in their RunStarted."""
    return [
        structs.replace(event, **header) if isinstance(event, RunStarted) else event
        for event in events
    ]


def with_settings(events: Sequence[Event], **settings: Any) -> list[Event]:
    """The same events, as if the run had had these settings."""
    return restarted(events, config=replace(fold(events).started.config, **settings))


def stopped(events: Sequence[Event], step: int) -> list[Event]:
    """The same run, stopped after this step."""
    end = 1 + max(
        at for at, one in enumerate(events) if isinstance(one, StepTimed) and one.step <= step
    )
    return [*events[:end], RunEnded(step + 1, "stopped")]


def long_prompt(events: Sequence[Event]) -> list[Event]:
    """The same run with a prompt that is read in three chunks."""
    started = fold(events).started
    count = 1 + 1100 // len(started.prompt_tokens)
    tokens, texts = count * started.prompt_tokens, count * started.prompt_texts
    return restarted(events, prompt_tokens=tokens, prompt_texts=texts)


HOSTILE: Final = [*WORDS, "line\nbreak", "\udce2\udc82", "\udcac", "\u202e", "", "\U0001f600", "é"]
ODD_RUNS: Final = {
    "invented": invented_run(5, 30, 12, HOSTILE),
    "many paths": invented_run(7, 12, 64, HOSTILE),
    "stop strings": with_settings(bundled("bridge"), stop=(" the", "m.")),
    "no fork": with_settings(bundled("bent"), policy="greedy"),
    "stopped": stopped(bundled("recipe"), 17),
}


@pytest.mark.parametrize("name", [*NAMES, *ODD_RUNS])
def test_the_messages_are_those_of_python(in_browser: InBrowser, name: str) -> None:
    events = ODD_RUNS.get(name) or bundled(name)
    expected = as_sent(board_message(fold(events)))
    assert as_sent(in_browser("message", events, 0)) == expected


@pytest.mark.parametrize("name", ["ball", "recipe", "invented"])
def test_a_live_run_is_sent_in_parts(in_browser: InBrowser, name: str) -> None:
    events = ODD_RUNS.get(name) or bundled(name)
    begun = 1 + next(at for at, event in enumerate(events) if isinstance(event, RunStarted))
    sizes = [begun, 40, 1, 90, 2, len(events)]
    feed, end = Feed(), 0
    for size, message in zip(sizes, in_browser("grown", events, sizes), strict=True):
        end += size
        expected = feed.message(fold(events[:end]), "a", "live")
        assert as_sent(message) == as_sent(expected)


def asked_of(run: RunState) -> list[Asked]:
    """Thresholds from 0 to above all entropies, and growth steps, alone and together."""
    top = 1.05 * run.highest_entropy
    thresholds = [round(top * at / (THRESHOLDS - 1), 2) for at in range(THRESHOLDS)]
    if run.started.config.policy != "fair":
        thresholds = []
    both: list[Asked] = [(threshold, STEPS[at % 4]) for at, threshold in enumerate(thresholds[::3])]
    return [*((threshold, None) for threshold in thresholds), *((None, r) for r in STEPS), *both]


def same(found: dict[str, Any], expected: WhatIf) -> bool:
    """Whether the browser found these events, to the last bit, and these unknown places."""
    events = tuple(decode(json.dumps(event).encode()) for event in found["events"])
    unknowns = [(one["step"], one["path"], one["why"]) for one in found["unknowns"]]
    return events == expected.events and unknowns == [
        (one.step, one.path, one.why) for one in expected.unknowns
    ]


ODD_WHAT_IFS: Final = {
    "stopped": ODD_RUNS["stopped"],
    "long prompt": long_prompt(bundled("ball")),
    "memory limit": with_settings(bundled("long"), kv_limit_mib=1),
    "least weight": with_settings(bundled("ball"), min_fork_weight=0.05),
    "other cache": with_settings(bundled("market"), cache="deep-copy", drafter="prompt-lookup"),
}


@pytest.mark.parametrize("name", [*NAMES, *ODD_WHAT_IFS])
def test_a_what_if_is_that_of_python(in_browser: InBrowser, name: str) -> None:
    events = ODD_WHAT_IFS.get(name) or bundled(name)
    asked = asked_of(fold(events))
    found = in_browser("resimulated", events, asked)
    results = [resimulate(events, *one) for one in asked]
    assert [one for one, *pair in zip(asked, found, results, strict=True) if not same(*pair)] == []
    forks = {sum(isinstance(event, Forked) for event in one.events) for one in results}
    assert len(forks) > 1 or name in ("original", "bent"), "the thresholds make no difference"


@pytest.mark.parametrize("name", ["bent", "coins", "recipe", "tomato"])
def test_a_board_is_told_of_a_what_if_as_by_python(in_browser: InBrowser, name: str) -> None:
    run = fold(bundled(name))
    top = round(run.highest_entropy + 0.01, 2)
    wanted: list[Asked] = [(0.0, None), (round(top / 2, 2), None), (top, None), (None, 8)]
    wanted.append((round(top / 3, 2), AUTO))
    for asked, found in zip(wanted, in_browser("whatIf", run.events, wanted), strict=True):
        expected = resimulate(run.events, *asked)
        what_if = fold(expected.events)
        words = [tree_change_sentence(run, what_if), exactness_sentence(what_if, expected.unknowns)]
        assert found["notes"]["entropy"] == " ".join(["Recomputed from the recording.", *words])
        if asked[1] is not None:
            assert found["notes"]["memory"] == rows_sentence(run.events, expected.events)
        assert found["unknowns"] == marks(what_if, expected.unknowns)
        sent = as_sent(board_message(what_if))
        assert {name: found[name] for name in sent} == sent


def test_of_a_model_with_its_own_memory_the_tree_is_recomputed(in_browser: InBrowser) -> None:
    events = bundled("ball")
    model = structs.replace(fold(events).started.model, own_memory="It has states.", state_bytes=64)
    events = restarted(events, model=model)
    [found] = in_browser("whatIf", events, [(2.0, None)])
    expected = as_sent(board_message(fold(resimulate(events, 2.0).events)))
    for name in ("paths", "threshold", "limit", "ended"):
        assert found[name] == expected[name]
    assert "eab what-if" in found["notes"]["memory"]
    assert {(step["private"], step["sentences"]["memory"]) for step in found["steps"]} == {(0, "")}
