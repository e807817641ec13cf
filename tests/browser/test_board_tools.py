"""The board's tools in a real Chromium: weights and sentences at the cursor, focus, fold, search,
tables, growing.
"""

import re

import pytest
from board_page import Boards
from browser_steps import box_of
from invented_runs import invented_run
from made_runs import bundled, bundled_run
from msgspec import structs
from playwright.sync_api import expect

from eab.figures.captions import sentences_at
from eab.run import RunState, fold
from eab.run.events import EntropyBounds, KvMeasured, PathPrediction, Predicted

pytestmark = [pytest.mark.browser, pytest.mark.slow]
STORY = fold(invented_run(5, 20, 8))
REAL, BRIDGE, PET = map(bundled_run, ("ball", "bridge", "pet"))


def kin(run: RunState, path: int) -> set[int]:
    return {
        one.id for one in run.paths if path in run.lineage(one.id) or one.id in run.lineage(path)
    }


def test_sentences_and_weights_are_those_at_the_cursor(still: Boards) -> None:
    shown = still(REAL)
    changed = max(REAL.paths, key=lambda path: len(path.weights))
    assert len(changed.weights) > 2, "a path that others' pruning makes heavier"
    widths = set()
    for step, weight in changed.weights[:4]:
        shown.page.get_by_label("Step", exact=True).fill(str(step))
        said = sentences_at(REAL, [step])[0]
        for name in ("tree", "entropy", "memory"):
            expect(shown.find(f".{name}-panel .sentence")).to_have_text(said[name])
        width = shown.inside(f"tree.boxes.get({changed.id}).edge.style.strokeWidth")
        assert float(width) == pytest.approx(1 + 6 * weight**0.5, abs=0.01)
        widths.add(width)
    assert len(widths) > 1


def test_focus_shows_only_the_selected_path_with_ancestors_and_descendants(still: Boards) -> None:
    shown = still(STORY)
    shown.root.focus()
    everything = shown.drawn_paths()
    shown.press("End", "ArrowDown", "ArrowDown", "ArrowDown", "o")
    assert shown.drawn_paths() == kin(STORY, shown.selected()["path"]) & everything < everything
    shown.press("Escape", "Escape")  # closes the drawer, then ends the focus
    assert shown.drawn_paths() == everything


def test_unsure_tokens_that_did_not_fork_are_marked_and_explained(still: Boards) -> None:
    shown = still(REAL)
    threshold = REAL.started.threshold_nats
    missed = [
        (path.id, index)
        for path in REAL.paths
        for index, token in enumerate(path.tokens)
        if token.entropy >= threshold and not (index == 0 and path.parent >= 0)
    ]
    unlucky = next(path for path in reversed(REAL.paths) if path.id in dict(missed))
    shown.select(unlucky.id, 0)
    drawn = shown.find("svg.entropy .missed").get_attribute("d") or ""
    line = REAL.lineage(unlucky.id)
    assert not unlucky.children
    assert drawn.count("M") == sum(path in line for path, _ in missed)
    for path, token in missed[:3]:
        shown.select(path, token)
        expect(shown.find(".inspector .why")).to_contain_text("reached the threshold")
        expect(shown.find(".inspector .why")).to_contain_text(
            re.compile("path limit|weighed less than")
        )


def with_bounds(seen: PathPrediction) -> PathPrediction:
    return seen._replace(whole=EntropyBounds(seen.entropy + 0.3, seen.entropy + 0.7))


def test_a_band_shows_the_bounds_of_the_entropy_of_all_tokens(board: Boards) -> None:
    bounded = fold(
        structs.replace(event, predictions=tuple(map(with_bounds, event.predictions)))
        if isinstance(event, Predicted)
        else event
        for event in invented_run(seed=3, steps=12, paths=6)
    )
    shown = board(reduced_motion="reduce")
    entry = shown.find(".entropy-panel .only-bands")
    shown.feed(STORY)
    expect(entry).to_be_hidden()
    expect(shown.find("svg.entropy polygon.band")).to_have_count(0)
    shown.feed(bounded, name="another")
    expect(entry).to_be_visible()
    grown = [path for path in bounded.paths if path.tokens]
    expect(shown.find("svg.entropy polygon.band")).to_have_count(len(grown))
    expect(shown.find(".entropy-panel .sentence")).to_contain_text("nats (the band)")
    # Along its path's line, the band lies above it, from 0.3 to 0.7 nats higher.
    band, line = (
        shown.find(f"svg.entropy {name}").first.evaluate(
            "shape => [...shape.points].map(({ x, y }) => [x, y])"
        )
        for name in ("polygon.band", "polyline.trace")
    )
    assert len(band) == 2 * len(line)
    for (x, y), (low_x, low), (high_x, high) in zip(
        line, band[: len(line)], reversed(band[len(line) :]), strict=True
    ):
        assert (low_x, high_x) == (x, x)
        assert high < low < y
        assert (low - high) / (y - low) == pytest.approx(4 / 3, rel=0.05)


def test_find_goes_from_match_to_match_even_across_a_fork(still: Boards) -> None:
    shown = still(STORY)
    shown.root.focus()
    child = next(
        path for path in STORY.paths if path.parent >= 0 and STORY.paths[path.parent].tokens
    )
    words = STORY.paths[child.parent].tokens[-1].text + child.tokens[0].text
    shown.press("Home", "/")
    shown.page.keyboard.type(words)
    assert shown.inside(f"view.found.has({child.id})")
    found = shown.inside("finder.places.length")
    visited = set()
    for _ in range(found):
        shown.press("Enter")
        place = shown.selected()
        visited.add((place["path"], place["token"]))
        assert shown.data("cursor") >= STORY.paths[place["path"]].tokens[place["token"]].step
    assert (child.id, 0) in visited
    assert len(visited) == found
    shown.press("Escape")
    expect(shown.find(".finder")).to_be_hidden()
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("no such words")
    expect(shown.find(".finder output")).to_have_text("0 found")


def test_the_tables_say_what_the_pictures_show(still: Boards) -> None:
    shown = still(REAL)
    shown.keys("Home", *["ArrowRight"] * 9, "t")
    lines = shown.find(".table-box").nth(1).locator("tbody tr")
    tokens = [(path, token) for path in REAL.paths for token in path.tokens if token.step <= 9]
    expect(lines).to_have_count(len(tokens))
    expect(shown.find(".table-box").first.locator("tbody tr")).to_have_count(
        len({id(p) for p, _ in tokens})
    )
    cells = [line.locator("th, td").all_text_contents() for line in lines.all()]
    expected = [[str(path.id), str(token.step), f"{token.entropy:.2f}"] for path, token in tokens]
    assert [[line[0], line[1], line[4].split()[0]] for line in cells] == expected


def test_the_selected_token_moves_with_the_cursor(still: Boards) -> None:
    shown = still(STORY)
    shown.keys("End", "ArrowDown", "ArrowDown", *["ArrowLeft"] * 5)
    place = shown.selected()
    assert STORY.paths[place["path"]].tokens[place["token"]].step == shown.data("cursor")


def test_the_kv_row_of_a_token_is_described_with_the_paths_that_read_it(still: Boards) -> None:
    shown = still(REAL)
    step = len(REAL.steps) - 1
    kv = REAL.steps[step].kv
    path = next(one for one in REAL.paths if one.status == "forked" and one.tokens)
    readers = [rows.path for rows in kv.paths if path.id in REAL.lineage(rows.path)]
    assert len(readers) > 1
    shown.select(path.id, 0)
    said = shown.find(".inspector .why").text_content() or ""
    assert f"shared by {len(readers)} paths at step {step}" in said
    assert sorted(map(int, said.rsplit(": ", 1)[1].rstrip(".").split(", "))) == sorted(readers)
    shown.inside(f"send('goTo', {path.tokens[-1].step})")
    expect(shown.find(".inspector .why")).to_contain_text("written in the next step")


def test_the_kv_chart_names_the_cache_and_the_one_it_is_compared_with(still: Boards) -> None:
    shown = still(REAL)
    expect(shown.find("svg.memory")).to_contain_text("EAB")
    expect(shown.find("svg.memory")).to_contain_text("separate caches")
    shown.feed(REAL, name="two", cache="deep-copy")
    expect(shown.find("svg.memory")).to_contain_text("deep-copy")
    expect(shown.find("svg.memory")).not_to_contain_text("EAB")


def test_growing_is_offered_only_where_runs_can_start_and_names_the_forced_token(
    still: Boards,
) -> None:
    shown = still(REAL)
    path = next(one for one in REAL.paths if one.tokens)
    shown.select(path.id, 0)
    expect(shown.find(".inspector .candidates li")).to_have_count(len(path.tokens[0].candidates))
    expect(shown.find(".inspector .candidates button")).to_have_count(0)
    expect(shown.button("Grow from here")).to_have_count(0)
    shown.feed(REAL, name="two", offers={"grow": True})
    shown.select(path.id, 0)
    shown.find(".inspector .candidates button").nth(2).click()
    forced = path.tokens[0].candidates[2].text
    grow = shown.button(f"Grow from here with “{forced}”")
    grow.focus()
    shown.press("Enter")
    assert shown.page.evaluate("requests") == [
        {"run": "two", "path": path.id, "token": 0, "candidate": 2}
    ]


def test_texts_that_were_cut_go_on_all_or_the_selected_one_by_button_and_by_key(
    still: Boards,
) -> None:
    shown = still(STORY)
    expect(shown.button("Continue")).to_have_count(0)
    shown.feed(STORY, name="two", offers={"grow": True, "go_on": 20})
    shown.button("Continue all: 20 more tokens").click()
    leaf = next(one for one in STORY.leaves() if one.finish_reason == "length" and one.tokens)
    shown.select(leaf.id, 0)
    shown.button("Continue this text: let").click()
    shown.keys("c")
    one = {"run": "two", "path": leaf.id, "token": len(leaf.tokens) - 1, "candidate": -1}
    assert shown.page.evaluate("triggers") == ["go_on", "grow", "grow"]
    assert shown.page.evaluate("requests") == [{"run": "two"}, one, one]


def test_a_live_run_without_new_messages_says_so_and_can_be_replayed(board: Boards) -> None:
    shown = board()
    shown.page.clock.install()
    half = fold(invented_run(5, 20, 8)[:60])
    shown.feed(half, mode="live")
    news = shown.find(".news")
    expect(news).to_be_hidden()
    shown.page.clock.run_for(9_000)
    expect(news).to_contain_text("No news for 8 seconds")
    shown.keys("Home")
    shown.expect_cursor(0)
    shown.feed(STORY, mode="live")
    expect(news).to_be_hidden()


def test_a_ring_marks_the_forks_that_decide_the_answer(still: Boards) -> None:
    shown = still(BRIDGE, cursor=None)
    shown.keys("End")
    switch = shown.button("Deciding forks")
    rings = shown.find(".decides:visible")
    tree = shown.find(".tree-panel .picture")
    sentence = shown.find(".tree-panel .sentence")
    said, place = sentence.inner_text(), box_of(tree)
    expect(rings).to_have_count(0)
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(rings).to_have_count(1)  # the first fork decides all, six others only the wording
    expect(shown.find(".box.wording")).to_have_count(6)
    expect(sentence).to_contain_text("causes 100% of the semantic entropy")
    assert box_of(tree) == place, "the board does not jump"
    shown.keys("d")
    expect(rings).to_have_count(0)
    expect(sentence).to_have_text(said)


def test_a_larger_ring_means_a_larger_contribution_and_the_fork_names_it(still: Boards) -> None:
    shown = still(PET)
    shown.keys("End", "d")
    radii = {
        path: float(ring.get_attribute("r") or 0)
        for path in (1, 2, 3)
        for ring in [shown.box(path).locator(".decides")]
    }
    prompt = float(shown.find(".prompt .decides").get_attribute("r") or 0)
    assert radii[1] > radii[2] > radii[3] > 0, "36, 34 and 5% of the semantic entropy"
    assert radii[2] > prompt > 0, "25%"
    shown.point_at(1, 0)
    tip = shown.find(".tooltip")
    expect(tip).to_contain_text(
        "This fork decides the first sentence: it causes 25% of the semantic"
    )
    shown.point_at(1, 0, clicks=True)
    expect(shown.find(".inspector .why")).to_contain_text("This fork decides the first sentence")
    shown.point_at(1, -1, clicks=True)
    expect(shown.find(".inspector .why")).to_contain_text("The fork after it decides")


def test_during_a_run_no_answers_are_joined_and_no_forks_called_deciding(board: Boards) -> None:
    shown = board(reduced_motion="reduce")
    growing = fold(bundled("pet")[:-1])
    shown.feed(growing, mode="live")
    for name in ("Deciding forks", "Same answers"):
        expect(shown.button(name)).to_be_disabled()
    shown.keys("d")
    expect(shown.find(".decides:visible")).to_have_count(0)
    shown.feed(PET, mode="live")
    expect(shown.button("Deciding forks")).to_be_enabled()


@pytest.mark.parametrize("shares", [True, False])
def test_states_are_part_of_the_bars_and_shared_appears_only_if_rows_are_shared(
    board: Boards, shares: bool
) -> None:
    events = invented_run(seed=3, steps=12, paths=6)
    card = structs.replace(events[0].model, own_memory="It is its own.", shares_rows=shares)
    told = fold(
        structs.replace(
            event, usage=structs.replace(event.usage, own_bytes=(4096,) * len(event.usage.paths))
        )
        if isinstance(event, KvMeasured)
        else event
        for event in (structs.replace(events[0], model=card), *events[1:])
    )
    shown = board(reduced_motion="reduce")
    shown.feed(STORY)
    state, shared = shown.find(".state-key"), shown.find(".memory-panel .shared-key")
    expect(state).to_be_hidden()
    expect(shared).to_be_visible()
    shown.feed(told, name="another")
    expect(state).to_be_visible(visible=shares)
    expect(shared).to_be_visible(visible=shares)
    tall = float(shown.find("svg.memory > g > rect.state").get_attribute("height") or 0)
    assert (tall > 0) == shares
