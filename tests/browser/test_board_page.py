"""The board in a real Chromium, on a bare page without Streamlit. It is the same class that a
notebook feeds.
"""

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from board_page import BOARD, DARK, LIGHT, BoardPage, Boards
from browser_steps import box_of, overlap
from invented_runs import HOSTILE, WORDS, invented_run
from made_runs import bundled_run
from playwright.sync_api import expect

from eab.board.messages import board_message, greedy_message
from eab.run import RunState, fold
from eab.run.events import Forked, Probed, StepTimed

pytestmark = pytest.mark.browser
SVG = "{http://www.w3.org/2000/svg}"
STORY = invented_run(5, 20, 8)


def test_a_live_run_grows_without_replacing_elements(board: Boards) -> None:
    shown = board()
    started, *events = STORY
    run, sent = RunState(started), 0
    names = ["svg.tree", "svg.entropy", "svg.memory", ".box.path"]
    keep = f"window.first = [{BOARD}, ...{names}.map(name => {BOARD}.querySelector(name))]"
    for event in events:
        run.apply(event)
        if isinstance(event, StepTimed):
            shown.feed(run, since=sent, mode="live")
            sent = max(0, event.step - 3)
            if event.step == 0:
                shown.page.evaluate(keep)
    shown.feed(run, since=sent, mode="live")
    shown.expect_cursor(19)
    assert shown.data("paths") == len(run.paths) > 8
    assert shown.page.evaluate(f"first[0] === {BOARD} && first.every(node => node.isConnected)")
    assert shown.page.evaluate("triggers") == []


def test_after_a_gap_the_board_asks_for_the_rest_and_ignores_old_messages(board: Boards) -> None:
    shown = board()
    half = [isinstance(one, StepTimed) and one.step == 5 for one in STORY].index(True)
    shown.feed(fold(STORY[: half + 1]), mode="live")
    shown.expect_cursor(5)
    shown.feed(fold(STORY), since=15, mode="live")
    assert shown.page.evaluate("triggers") == ["missed"]
    before = shown.data("paths")
    shown.feed(fold(STORY), since=15, mode="live", name="two")  # this run is new to the board
    assert shown.page.evaluate("triggers") == ["missed"] * 2
    assert shown.page.evaluate("requests") == [{"since": 5}, {"since": 0}]
    assert shown.data("paths") == before > 0
    assert shown.inside("store.run.key") == "one"
    shown.feed(fold(STORY), mode="live")
    shown.expect_cursor(19)
    shown.feed(fold(STORY[: half + 1]), mode="live")
    shown.expect_cursor(19)


def test_the_tree_takes_over_calmly_from_the_greedy_text(board: Boards) -> None:
    """Scales, camera and prompt stay; the greedy text fades and is no part of the run."""
    shown = board()
    texts = [f" {word}" for word in WORDS[:12]]
    probed = [Probed(step, 3.0 - step / 10, text) for step, text in enumerate(texts)]
    first = next(index for index, one in enumerate(STORY) if isinstance(one, StepTimed))
    run = fold(STORY[: first + 1])
    greedy = greedy_message("one", run.started.beginning, probed, run.started.config.max_new_tokens)
    shown.page.evaluate("message => feed(message)", greedy)
    shown.expect_cursor(11)
    places = f"""() => {{ const {{ tree, entropy }} = {BOARD}.getRootNode().__board;
        const {{ x, y }} = tree.prompt.group.getBoundingClientRect();
        return [x, y, tree.camera.goal.k, entropy.top, entropy.band].map((value) => value.toFixed(1)); }}"""
    before = shown.page.evaluate(places)
    shown.feed(run, mode="live")
    assert shown.page.evaluate(places) == before
    assert shown.drawn_paths() == {0}
    assert shown.data("paths") == 1
    assert shown.page.evaluate("triggers") == []
    expect(shown.find(".fading text")).to_have_count(0)  # after less than a second


def test_a_new_box_is_placed_before_the_next_frame(board: Boards) -> None:
    shown = board()
    forked = next(index for index, event in enumerate(STORY) if isinstance(event, Forked))
    shown.feed(fold(STORY[:forked]), mode="live")
    without_place = shown.page.evaluate(
        f"""message => {{ feed(message);
        const boxes = [...{BOARD}.querySelectorAll('.box.path, .edge')];
        return boxes.filter(box => !box.hasAttribute(box.matches('.edge') ? 'd' : 'transform')).length; }}""",
        board_message(fold(STORY)) | {"run": "one", "mode": "replay", "autoplay": False},
    )
    assert without_place == 0


def test_a_repeated_message_changes_nothing(board: Boards) -> None:
    shown = board()
    shown.feed(fold(STORY))
    shown.page.evaluate(
        "m => { feed(m); feed(m); }",
        board_message(fold(STORY), 15) | {"run": "one", "mode": "replay"},
    )
    tokens = shown.inside("store.paths.values().map(path => path.tokens.length).toArray()")
    assert tokens == [len(path.tokens) for path in fold(STORY).paths]


def test_the_cursor_starts_at_the_step_in_the_message(board: Boards) -> None:
    shown = board()
    shown.feed(fold(STORY), cursor=7, autoplay=True)
    shown.expect_cursor(7)
    shown.keys("ArrowRight", "ArrowRight")
    shown.feed(fold(STORY), cursor=7)
    shown.expect_cursor(9)  # only a run that is new to the board moves its cursor


def test_another_run_starts_with_nothing_selected(board: Boards) -> None:
    shown = board()
    shown.feed(fold(STORY))
    shown.keys("End", "ArrowDown")
    expect(shown.find(".inspector .candidates")).to_have_count(1)
    shown.feed(fold(invented_run(9, 5, 3)), name="another")
    expect(shown.find(".inspector .candidates")).to_have_count(0)
    expect(shown.find(".eab.highlighting")).to_have_count(0)
    shown.expect_cursor(4)


def test_one_cursor_moves_all_three_pictures(board: Boards) -> None:
    shown = board()
    shown.feed(fold(STORY))
    shown.root.focus()
    seen = []
    for key in ("Home", "ArrowRight", "End"):
        shown.press(key)
        memory = shown.find("svg.memory").inner_html()
        line = shown.find("svg.entropy line.cursor").get_attribute("x1")
        texts = shown.find(".box.path:not(.hidden) .label").all_text_contents()
        seen.append((memory, line, tuple(texts)))
    for picture in zip(*seen, strict=True):
        assert len(set(picture)) == 3
    shown.page.get_by_label("Step", exact=True).fill("7")
    shown.expect_cursor(7)


def test_a_replay_keeps_every_box_where_it_is(still: Boards) -> None:
    shown = still(fold(STORY))
    shown.root.focus()
    places = {}
    for _ in range(20):
        for box in shown.find(".box.path:not(.hidden)").all():
            places.setdefault(box.get_attribute("data-path"), set()).add(
                box.get_attribute("transform")
            )
        shown.press("ArrowLeft")
    assert all(len(found) == 1 for found in places.values())


def test_the_board_can_be_used_by_keyboard_alone(board: Boards) -> None:
    shown = board()
    shown.feed(fold(STORY))
    shown.keys("Home", "ArrowRight", "ArrowRight", "ArrowLeft")
    shown.expect_cursor(1)
    forks = sorted({path.tokens[0].step for path in fold(STORY).paths if path.parent >= 0})
    shown.press("Home", "Shift+ArrowRight")
    shown.expect_cursor(forks[0] if forks[0] > 0 else forks[1])
    shown.press("End", "ArrowDown")
    expect(shown.find(".inspector .candidates li")).to_have_count(4)
    assert (
        shown.page.evaluate(f"{BOARD}.getRootNode().activeElement.getAttribute('role')")
        == "treeitem"
    )
    shown.press("Escape")
    expect(shown.find(".inspector .candidates")).to_have_count(0)
    shown.press("?")
    expect(shown.find(".help")).to_be_visible()
    shown.press(" ")
    expect(shown.root).to_have_attribute("data-playing", "true")
    shown.press(" ")
    expect(shown.root).to_have_attribute("data-playing", "false")


def test_hovering_a_path_marks_its_lineage_in_all_pictures(board: Boards) -> None:
    shown = board(reduced_motion="reduce")
    run = fold(STORY)
    shown.feed(run)
    leaf = run.steps[-1].kv.paths[0].path  # type: ignore[union-attr]
    shown.box(leaf).locator(".label tspan").first.hover()
    lineage = run.lineage(leaf)
    expect(shown.find(".box.path.highlighted")).to_have_count(len(lineage))
    expect(shown.find("polyline.trace.highlighted")).to_have_count(len(lineage))
    expect(shown.find(".path-bar .shared.highlighted")).to_have_count(1)
    tip = shown.find(".tooltip")
    expect(tip).to_contain_text("nats")
    fork = next(path for path in run.paths if path.parent >= 0 and not path.children)
    shown.box(fork.id).locator(".label").hover(position={"x": 8, "y": 8})  # its first token
    expect(tip.locator("li")).to_have_count(min(5, len(fork.tokens[0].candidates)))
    expect(tip).to_contain_text("reached the threshold")


def test_laid_out_by_step_the_tree_and_the_trace_share_their_axis(still: Boards) -> None:
    shown = still(fold(STORY))
    shown.button("Lay the tree out by step").click()
    shown.root.focus()
    for key in ("Home", "ArrowRight", "End"):
        shown.press(key)
        lines = [box_of(shown.find(f"svg.{name} line.cursor")) for name in ("tree", "entropy")]
        assert lines[0]["x"] == pytest.approx(lines[1]["x"], abs=1)


def test_the_text_of_a_long_path_is_shortened(board: Boards) -> None:
    shown = board()
    shown.page.set_viewport_size({"width": 700, "height": 900})
    shown.feed(fold(invented_run(0, 98, 1, [word * 4 for word in WORDS])))
    lines = shown.box(0).locator(".label tspan").all_text_contents()
    assert sum("…" in line for line in lines) == 1
    assert 1 < len(lines) <= 40
    assert all(len(line) <= 120 for line in lines)


def test_a_text_gets_several_lines_where_there_is_room(board: Boards) -> None:
    shown = board(reduced_motion="reduce")
    run = fold(invented_run(0, 30, 1))
    shown.feed(run)
    lines = shown.box(0).locator(".label tspan").all_text_contents()
    pieces = [token.text for token in run.paths[0].tokens]
    assert len(lines) > 1
    assert " ".join("".join(pieces).split()) == " ".join(" ".join(lines).split())
    place = box_of(shown.box(0).locator(".label tspan").nth(1))
    shown.page.mouse.click(place["x"] + 3, place["y"] + place["height"] / 2)
    before = len(lines[0].split())
    assert "".join(pieces[: shown.selected()["token"]]).split() == lines[0].split()[:before]


def test_boxes_do_not_overlap(still: Boards) -> None:
    shown = still(fold(invented_run(1, 30, 24)))
    places = [box_of(frame) for frame in shown.find(".box:not(.hidden) .frame").all()]
    assert len(places) >= 24
    assert all(overlap(one, other) < 1 for one, other in combinations(places, 2))


@pytest.mark.slow
def test_autoplay_repeats_until_touched(board: Boards) -> None:
    shown = board()
    last = 19
    shown.page.clock.install()
    shown.feed(fold(STORY), autoplay=True)
    shown.page.clock.run_for(5_000)
    shown.expect_cursor(last)
    expect(shown.root).to_have_attribute("data-playing", "false")
    shown.page.clock.run_for(5_200)
    expect(shown.root).to_have_attribute("data-playing", "true")
    shown.page.mouse.click(5, 5)
    shown.page.clock.run_for(30_000)
    expect(shown.root).to_have_attribute("data-playing", "false")
    shown.expect_cursor(last)


def test_a_live_run_stays_at_its_end(board: Boards) -> None:
    shown = board()
    shown.page.clock.install()
    shown.feed(fold(STORY[:-1]), mode="live")
    shown.page.clock.run_for(10_000)
    shown.feed(fold(STORY), mode="live")
    shown.page.clock.run_for(15_000)
    shown.expect_cursor(19)


def test_without_motion_a_recording_opens_at_its_end(board: Boards) -> None:
    shown, bridge = board(reduced_motion="reduce"), bundled_run("bridge")
    for _ in range(2):  # a repeated message moves nothing
        shown.feed(bridge, autoplay=True)
        shown.expect_cursor(len(bridge.steps) - 1)


@pytest.mark.parametrize(
    ("view", "theme"), [("tree of texts", DARK), ("entropy per step", LIGHT), ("kv cache", DARK)]
)
def test_a_downloaded_picture_needs_no_other_file(
    board: Boards, tmp_path: Path, view: str, theme: str
) -> None:
    shown = board(theme, reduced_motion="reduce")
    run = fold(invented_run(5, 20, 8, WORDS + HOSTILE))
    shown.feed(run)
    file = download(shown, f"Download the {view} as SVG", tmp_path)
    picture = ElementTree.parse(file).getroot()
    assert picture.tag == f"{SVG}svg"
    assert file.suffix == ".svg"
    text = file.read_text(encoding="utf-8")
    assert "var(" not in text
    assert "color-mix" not in text
    assert "color(" not in text
    alone = shown.page.context.new_page()
    alone.goto(file.as_uri())
    ground = alone.evaluate("getComputedStyle(document.querySelector('rect')).fill")
    assert ground == ("rgb(248, 248, 247)" if theme == LIGHT else "rgb(45, 43, 39)")
    if view == "tree of texts":
        labels = [
            label.text for label in picture.iter(f"{SVG}text") if label.get("class") == "label"
        ]
        assert len(labels) == 1 + shown.find(".box.path:not(.hidden)").count()


def download(shown: BoardPage, button: str, folder: Path) -> Path:
    with shown.page.expect_download() as waiting:
        shown.button(button).click()
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file
