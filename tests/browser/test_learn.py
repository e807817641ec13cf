"""The Learn page in a real browser: every lesson from its first stage to its last, guesses, a
threshold, use by keyboard alone, axe, narrow screens.
"""

import re

import pytest
from axe import grave_findings
from browser_steps import OpenPage, box_of
from playwright.sync_api import Page, expect

from eab.lessons.lesson import QuestionSection, ReadingSection
from eab.lessons.lesson_files import lessons

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NEXT = re.compile("^Next")


def answer(page: Page, choice: int = 0) -> None:
    page.get_by_role("radiogroup").locator("label").nth(choice).click()
    show = page.get_by_role("button", name="Show me")
    expect(show).to_be_enabled()
    show.click()
    expect(show).to_have_count(0)


def picture_is_drawn(page: Page, script_picture: str) -> None:
    drawn = ".js-plotly-plot .main-svg" if script_picture else ".eab .box.path"
    expect(page.locator(f".st-key-lesson_picture {drawn}").first).to_be_visible()


def test_every_lesson_from_its_first_stage_to_its_last(open_page: OpenPage) -> None:
    page = open_page("/learn", reduced_motion="reduce")
    for lesson in lessons():
        expect(page.get_by_role("heading", name=lesson.title, exact=True)).to_be_visible()
        expect(page.get_by_text(lesson.summary)).to_be_visible()
        for section in lesson.sections:
            page.get_by_role("button", name=NEXT).click()
            expect(page.get_by_role("heading", name=section.title, exact=True)).to_be_visible()
            if isinstance(section, QuestionSection):
                guess_and_read(page)
            if not isinstance(section, ReadingSection):
                picture_is_drawn(page, section.script.picture)
        expect(page.get_by_text(re.compile(r"More on the .+ page"))).to_be_visible()
        expect(page.get_by_text("Lesson done.")).to_be_visible()
        if lesson is not lessons()[-1]:
            page.get_by_role("button", name="Next lesson").click()
    page.get_by_role("link", name="Now ask your own question").click()
    expect(page.locator(".st-key-run_bar")).to_be_visible()
    page.get_by_role("link", name="Learn").click()
    page.get_by_role("combobox", name="Lesson").click()
    page.get_by_role("option", name="1. What").click()
    expect(page.get_by_role("radio", name=re.compile("min, guess (right|wrong)"))).to_have_count(10)
    page.get_by_text("2. Where it forks").click()
    expect(page.get_by_role("heading", name="Where it forks", exact=True)).to_be_visible()


def guess_and_read(page: Page) -> None:
    card = page.locator(".st-key-lesson_picture .st-key-lesson_card")
    expect(card.get_by_role("button", name="Show me")).to_be_visible()
    answer(page)
    expect(card).to_have_count(0)
    expect(page.locator("[data-testid=stAlert]")).to_be_visible()


def test_the_opening_plays_by_itself_unless_motion_is_reduced(open_page: OpenPage) -> None:
    page = open_page("/learn")
    expect(page.locator(".eab")).not_to_have_attribute("data-cursor", "0")
    expect(page.get_by_role("radio", name=re.compile("min$"))).to_have_count(10)
    for panel in (".entropy-panel", ".memory-panel"):
        expect(page.locator(f".eab {panel}")).to_be_hidden()
    still = open_page("/learn", reduced_motion="reduce")
    expect(still.locator(".eab")).to_have_attribute("data-cursor", "23")
    still.wait_for_timeout(1000)
    expect(still.locator(".eab")).to_have_attribute("data-cursor", "23")


def test_the_drawer_says_only_what_was_introduced(open_page: OpenPage) -> None:
    later = re.compile(r"KV|\brow|path|weight|threshold|semantic")
    page = open_page("/learn?lesson=tokens&stage=3", reduced_motion="reduce")
    expect(page.locator(".eab .inspector")).to_contain_text("0.70 nats")
    assert not later.search(page.locator(".eab .drawer").inner_text())
    expect(page.locator(".eab .memory-panel")).to_be_hidden()
    page = open_page("/learn?lesson=forks&stage=2", reduced_motion="reduce")
    expect(page.locator(".eab .inspector .why")).to_contain_text("reached the threshold")
    assert not re.search("KV|semantic", page.locator(".eab .drawer").inner_text())


def test_a_lesson_moves_the_board_once_per_stage_and_never_replaces_it(open_page: OpenPage) -> None:
    page = open_page("/learn?lesson=tokens&stage=1", reduced_motion="reduce")
    answer(page, 1)
    board = page.locator(".eab")
    expect(page.locator(".eab .inspector li").first).to_be_visible()
    board.evaluate("node => { node.dataset.mine = 'yes'; }")
    page.get_by_role("button", name=NEXT).click()
    expect(board).to_have_attribute("data-cursor", "0")
    expect(page.locator(".eab .inspector li")).to_have_count(0)
    board.focus()
    page.keyboard.press("End")
    expect(board).to_have_attribute("data-cursor", "9")
    page.get_by_role("button", name="Open a lesson file").or_(
        page.get_by_text("Open a lesson file")
    ).first.click()
    expect(board).to_have_attribute("data-cursor", "9")  # the lesson moved it only once
    expect(board).to_have_attribute("data-mine", "yes")  # and never replaced the board


def test_a_lesson_can_be_solved_by_keyboard_alone(open_page: OpenPage) -> None:
    page = open_page("/learn?lesson=tokens&stage=1", reduced_motion="reduce")
    page.get_by_role("radio").nth(0).focus()
    page.keyboard.press("ArrowDown")
    show = page.get_by_role("button", name="Show me")
    expect(show).to_be_enabled()
    show.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Right: 0.70 nats.")).to_be_visible()
    for _ in range(4):
        stage = page.get_by_role("heading", level=2).first.text_content()
        following = page.get_by_role("button", name=NEXT)
        following.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=2).first).not_to_have_text(stage or "")
    slider = page.get_by_role("slider", name="What if? Threshold (nats)")
    slider.focus()
    page.keyboard.press("End")
    expect(page.get_by_text("Solved.")).to_be_visible()


def test_the_answer_and_all_three_pictures_are_visible_together(open_page: OpenPage) -> None:
    page = open_page("/learn?lesson=sharing&stage=1", reduced_motion="reduce")
    page.set_viewport_size({"width": 1024, "height": 768})
    answer(page)
    picture_is_drawn(page, "")
    page.mouse.move(1019, 5)  # not over the sidebar
    seen = ["[data-testid=stAlert]", ".eab svg.tree", ".eab svg.entropy", ".eab svg.memory"]
    for part in seen:
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
    words, picture = box_of(page.locator(seen[0])), box_of(page.locator(".eab"))
    assert words["x"] + words["width"] <= picture["x"]
    assert picture["width"] > 640  # room for pictures side by side


def test_on_a_small_screen_the_sidebar_is_shown_in_full_while_in_use(open_page: OpenPage) -> None:
    page = open_page("/learn?lesson=forks")
    page.set_viewport_size({"width": 1024, "height": 768})
    sidebar = page.get_by_test_id("stSidebar")
    expect(sidebar).to_have_css("clip-path", "inset(0px 216px 0px 0px)")
    sidebar.get_by_role("link", name="Memory").focus()
    expect(sidebar).to_have_css("clip-path", "none")
    expect(page.get_by_text("Open a lesson file")).to_be_visible()


def test_a_term_is_explained_on_focus_on_hover_and_on_tap(open_page: OpenPage) -> None:
    page = open_page("/learn?lesson=tokens", reduced_motion="reduce")
    word, explained = (
        page.get_by_role("link", name="token", exact=True),
        page.get_by_role("tooltip"),
    )
    expect(page.locator("html")).to_have_attribute("data-eab-glossary", "ready")
    word.focus()
    expect(explained).to_contain_text("A word or a piece of one.")
    page.keyboard.press("Escape")
    expect(explained).to_be_hidden()
    word.hover()
    expect(explained).to_be_visible()
    page.mouse.move(1, 1)
    expect(explained).to_be_hidden()
    word.click()
    expect(explained).to_be_visible()
    assert "#term" not in page.url
    assert grave_findings(page) == []
    page.locator("h1").click()
    expect(explained).to_be_hidden()


def test_back_goes_one_page_back_and_nothing_stays_faded(open_page: OpenPage) -> None:
    page = open_page("/", reduced_motion="reduce")
    expect(page.locator(".eab .box.path").first).to_be_visible()
    page.get_by_role("link", name="BMC").click()
    expect(page).to_have_url(re.compile("/bmc.experiment="))
    page.go_back()
    expect(page.locator(".st-key-run_bar")).to_be_visible()
    page.get_by_role("link", name="Learn").click()
    page.get_by_role("button", name=NEXT).click()
    expect(page.get_by_text("2 of ")).to_be_visible()
    expect(page).to_have_url(re.compile("stage=1"))
    page.go_back()
    expect(page.get_by_text("1 of ")).to_be_visible()
    page.go_back()
    expect(page.locator(".st-key-run_bar")).to_be_visible()
    page.goto(re.sub(r"(:\d+)/.*", r"\1/learn?lesson=answers&stage=4", page.url))
    expect(page.locator(".eab.highlighting")).to_have_count(1)
    page.get_by_role("button", name=NEXT).click()
    expect(page.locator(".eab .inspector li")).to_have_count(0)
    expect(page.locator(".eab.highlighting")).to_have_count(0)
