"""The notebook widget without a browser, the still picture, and an execution of the notebook
itself.
"""

import base64
import gzip
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from equality import untimed
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import WORDS, invented_run
from made_runs import bundled_run, events_of
from places import ROOT

import eab
from eab.board.messages import board_message
from eab.board.still import tree_svg
from eab.engine.caches.base import ForwardBatch
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.errors import NotebookError, PromptError
from eab.formatting import counted
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import fold
from eab.run.events import Event
from eab.run.record.run_file import decode
from eab.share import widget as board_widget

NOTEBOOK = ROOT / "notebooks" / "explore.ipynb"
WIDGET = "application/vnd.jupyter.widget-view+json"
STORY = invented_run(5, 20, 8)
HOSTILE = ["<script>alert(1)</script>", "]]>", "&amp;", "\x00", "\uffff", "\udce2\udc82", "\u202e"]


class PatientModel(TableModel):
    """A table model whose forward passes each wait until the test lets them continue."""

    def __init__(self) -> None:
        super().__init__(random_table(3, 5))
        self.may_go_on = threading.Semaphore(0)

    def forward(self, passes: Sequence[ForwardBatch]) -> Any:
        assert self.may_go_on.acquire(timeout=120)
        return super().forward(passes)


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments and the data of each call that displays something."""
    found: list[Any] = []
    monkeypatch.setattr(
        board_widget, "display", lambda data, **more: found.append({"data": data, **more})
    )
    return found


def test_show_sends_the_whole_run_and_displays_a_still_picture(displayed: list[Any]) -> None:
    widget = eab.show(STORY)
    assert widget.message.items() >= board_message(fold(STORY)).items()
    widget._ipython_display_()
    still, live = displayed
    assert [*live["data"]] == [WIDGET]
    svg = base64.b64decode(still["data"]["text/html"].split("base64,")[1].split('"')[0])
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "forks in 20 steps" in still["data"]["text/plain"]
    assert f'="{still["display_id"]}"' in widget.hides_still
    widget._ipython_display_()  # as in another cell
    assert displayed[2] == still | {"update": False}
    assert eab.show(fold(STORY)).message == widget.message


def test_the_still_of_a_live_run_is_replaced_by_one_of_its_end(
    displayed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_widget, "get_ipython", lambda: SimpleNamespace(kernel=None))
    model = PatientModel()
    live = eab.explore(model, "0", entropy_threshold=0.5, max_new_tokens=4)
    live._ipython_display_()
    model.may_go_on.release(9)
    live.wait()
    first, _, *_, last = displayed
    assert [first["update"], last["update"]] == [False, True]
    assert first["display_id"] == last["display_id"]
    assert "in 4 steps" in last["data"]["text/plain"]
    assert "<img" in last["data"]["text/html"]


def test_the_boards_of_a_notebook_share_their_code() -> None:
    one, other = eab.show(STORY), eab.show(STORY)
    assert one.code is other.code
    assert len(one._esm) < 1000 < len(one.code._esm)
    one.code.close()
    assert eab.show(STORY).code.comm is not None


def test_explore_makes_the_same_run_as_the_engine() -> None:
    model = TableModel(random_table(3, 5))
    live = eab.explore(model, "0", entropy_threshold=1.0, max_new_tokens=6, seed=4)
    run = live.wait()
    config = eab.starting_config(entropy_threshold=1.0, max_new_tokens=6, seed=4)
    plain = events_of(model, "0", config)
    assert untimed(live.events) == untimed(plain)
    assert live.status == "Done after 6 steps"
    assert not live.running
    assert live.message.items() >= board_message(run).items()  # in full, for saved notebooks


@pytest.mark.parametrize(
    "stop",
    [
        lambda live: live._handle_custom_msg({"request": "stop"}, []),  # Stop button
        lambda live: live.close(),
    ],
    ids=["button", "widget"],
)
def test_a_stopped_run_ends_at_its_next_step(stop: Callable[[Any], None]) -> None:
    model = PatientModel()
    live = eab.explore(model, "0", entropy_threshold=1.0, max_new_tokens=50)
    model.may_go_on.release(3)
    stop(live)
    model.may_go_on.release(2)
    run = live.wait()
    assert run.ended.reason == "stopped"
    assert 1 <= len(run.steps) <= 5
    assert live.status == f"Stopped after {counted(len(run.steps), 'step')}"


def test_a_board_that_missed_a_message_is_sent_the_whole_run() -> None:
    live = eab.explore(TableModel(random_table(3, 5)), "0", entropy_threshold=1.0, max_new_tokens=4)
    run = live.wait()
    live.message = {}
    live._handle_custom_msg({"request": "missed"}, [])
    assert live.message.items() >= board_message(run).items()


def unpacked(recorded: str) -> list[Event]:
    """The events that a board has, to recompute its run."""
    lines = json.loads(gzip.decompress(base64.b64decode(recorded)))
    return [decode(json.dumps(line).encode()) for line in lines]


def test_the_board_has_the_events_of_a_finished_run() -> None:
    run = bundled_run("market")
    assert unpacked(eab.show(run).recorded) == list(run.events)
    model = PatientModel()
    live = eab.explore(model, "0", entropy_threshold=1.0, max_new_tokens=4)
    assert live.recorded == ""
    model.may_go_on.release(9)
    live.wait()
    assert unpacked(live.recorded) == list(live.events)


def test_running_a_cell_again_stops_the_runs_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    model, executing = PatientModel(), [("cell", "first")]
    monkeypatch.setattr("eab.share.widget._executing", lambda: executing[-1])
    both = [eab.explore(model, "0", entropy_threshold=1.0, max_new_tokens=50) for _ in range(2)]
    executing.append(("another cell", "second"))
    third = eab.explore(model, "0", entropy_threshold=1.0, max_new_tokens=2)
    executing.append(("cell", "third"))
    again = eab.explore(model, "0", entropy_threshold=1.0, max_new_tokens=2)
    model.may_go_on.release(20)
    ended = [live.wait().ended.reason for live in (*both, third, again)]  # type: ignore[union-attr]
    assert ended == ["stopped", "stopped", "finished", "finished"]


def test_a_bad_prompt_fails_immediately_and_a_failed_run_raises_in_wait() -> None:
    model = TableModel(random_table(3, 5))
    with pytest.raises(PromptError):
        eab.explore(model, " ")
    broken = PatientModel()
    broken.forward = _break  # type: ignore[method-assign]
    live = eab.explore(broken, "0", entropy_threshold=1.0)
    with pytest.raises(ZeroDivisionError):
        live.wait()
    assert "the model is broken" in live.status


def _break(passes: Sequence[ForwardBatch]) -> Iterator[Any]:
    raise ZeroDivisionError("the model is broken")


def test_without_anywidget_both_functions_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(NotebookError, match=r'pip install "eab-explorer\[notebook\]"'):
        eab.show(STORY)
    with pytest.raises(ImportError, match="save_html"):
        eab.explore("embedded", "Once")


@given(st.integers(0, 500), st.integers(0, 15), st.integers(1, 10), st.floats(0, 1))
def test_the_still_picture_of_every_prefix_of_a_run_is_well_formed(
    seed: int, steps: int, paths: int, until: float
) -> None:
    events = invented_run(seed, steps, paths, WORDS + HOSTILE)
    run = fold(events[: max(1, int(until * len(events)))])
    picture = ElementTree.fromstring(tree_svg(run))
    assert len(picture.findall(".//{*}path")) == len(run.paths)
    assert not picture.findall(".//{*}script")


def test_the_still_picture_of_an_empty_run_says_that_it_is_empty() -> None:
    assert "Nothing generated yet" in tree_svg(fold(STORY[:1]))


@pytest.mark.slow
def test_the_notebook_runs_and_shows_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (EMBEDDED_FOLDER / "model.safetensors").is_file():
        pytest.skip("the embedded model is not in assets/model")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    from nbclient import NotebookClient

    notebook = read_notebook()
    NotebookClient(
        notebook,
        timeout=240,
        resources={"metadata": {"path": str(tmp_path)}},
        # Let the run end between two cells, when the client receives nothing.
        on_cell_executed=lambda **_: time.sleep(1),
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output["data"] for output in outputs if WIDGET in output.get("data", {})]
    assert len(shown) == 3
    live, replay, lesson = stills(notebook)
    assert live["text/plain"] == replay["text/plain"]
    assert "<img" in live["text/html"]
    assert "### Where it forks" in lesson["text/plain"]
    states = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"][
        "state"
    ].values()
    told = [state["state"]["message"] for state in states if "message" in state["state"]]
    assert (
        len({len(message["paths"]) for message in told}) == 1
    )  # the live board ended like the replay
    assert (tmp_path / "job.html").is_file()


def test_the_notebook_in_the_repository_contains_stills_and_no_widget() -> None:
    notebook = read_notebook()
    live, replay, _lesson = stills(notebook)
    assert live["text/plain"] == replay["text/plain"]
    assert WIDGET not in NOTEBOOK.read_text("utf-8")


def read_notebook() -> Any:
    import nbformat  # takes seconds, which the other tests do not need

    return nbformat.read(NOTEBOOK, as_version=4)


def stills(notebook: Any) -> list[Any]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    found = [output.get("data", {}) for output in outputs]
    return [data for data in found if "data-eab-still" in data.get("text/html", "")]
