"""A lecturer and two students in real browsers: following, exploring alone, questions, and a
lecturer who disconnects.
"""

import re
from collections.abc import Callable

import pytest
from axe import grave_findings
from browser_steps import OpenPage, box_of, overlap
from made_runs import bundled_run
from page_faults import unreachable
from playwright.sync_api import Locator, Page, expect

from eab.lessons.lesson_files import lessons

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TOKENS = lessons()[0]
OPTIONS = {"reduced_motion": "reduce"}


Student = Callable[[], Page]


def board(page: Page) -> Locator:
    return page.locator(".eab")


def to_step(page: Page, step: int) -> None:
    expect(page.locator(".eab .box.path").first).to_be_visible()
    board(page).focus()
    page.keyboard.press("Home")
    for _ in range(step):
        page.keyboard.press("ArrowRight")
    expect(board(page)).to_have_attribute("data-cursor", str(step))


def answers(page: Page) -> Locator:
    return page.locator(".st-key-class_question [role=radiogroup] label")


def way_in(page: Page) -> Locator:
    """The button in the sidebar that opens the menu to start or join a class."""
    return page.locator(".st-key-class_menu button")


def code_of(lecturer: Page) -> str:
    return lecturer.locator(".st-key-class_lecturer strong").first.inner_text()


@pytest.fixture
def lecturer(open_page: OpenPage) -> Page:
    """A page that has started a class."""
    page = open_page(**OPTIONS)
    expect(page.locator(".eab .box.path").first).to_be_visible()
    way_in(page).click()
    page.get_by_role("button", name="Start a class").click()
    expect(page.locator(".st-key-class_lecturer")).to_contain_text("0 students following")
    return page


@pytest.fixture
def student(open_page: OpenPage, lecturer: Page) -> Student:
    """A function that opens a page by the link of the class."""
    link = f"/?class={code_of(lecturer)}"
    return lambda: open_page(link, **OPTIONS)


def test_students_can_follow_stop_follow_again_and_join_late(
    open_page: OpenPage, lecturer: Page, student: Student
) -> None:
    code, ada = code_of(lecturer), student()
    expect(ada.get_by_text(f"You follow class {code}.")).to_be_visible()
    expect(lecturer.get_by_text("1 student following")).to_be_visible()
    to_step(lecturer, 3)
    expect(board(ada)).to_have_attribute("data-cursor", "3")
    questions = ".st-key-questions button"
    expect(ada.locator(questions)).to_have_count(0)
    expect(ada.get_by_text("Press Run")).to_have_count(0)

    ada.get_by_role("button", name="Stop following").click()
    expect(ada.get_by_text("You explore on your own.")).to_be_visible()
    expect(ada.locator(questions)).to_have_count(lecturer.locator(questions).count())
    expect(lecturer.get_by_text("0 students following")).to_be_visible()
    to_step(ada, 6)
    to_step(lecturer, 4)
    expect(board(ada)).to_have_attribute("data-cursor", "6")
    expect(board(lecturer)).to_have_attribute("data-cursor", "4")
    ada.get_by_role("button", name="Follow again").click()
    expect(board(ada)).to_have_attribute("data-cursor", "4")

    bob = open_page(**OPTIONS)
    expect(bob.locator(".eab .box.path").first).to_be_visible()
    way_in(bob).click()
    bob.get_by_role("textbox", name="Code of the class to join").fill(code.lower())
    bob.keyboard.press("Enter")
    expect(bob.get_by_text(f"You follow class {code}.")).to_be_visible()
    expect(board(bob)).to_have_attribute("data-cursor", "4")
    expect(lecturer.get_by_text("2 students following")).to_be_visible()

    lecturer.get_by_role("link", name="Learn").click()
    for student in (ada, bob):
        expect(student).to_have_url(re.compile("/learn"))
    lecturer.get_by_role("button", name=re.compile("^Next")).click()
    for student in (ada, bob):
        expect(student.get_by_text("2 of ", exact=False).first).to_be_visible()


def test_students_see_how_likely_a_word_is_but_cannot_change_it(
    lecturer: Page, student: Student
) -> None:
    ada = student()
    expect(lecturer.get_by_text("1 student following")).to_be_visible()
    board(lecturer).press("End")
    board(lecturer).press("l")
    for word, shown in (("a", 1), ("e", 2)):
        lecturer.get_by_role("textbox", name="Word, or pattern").fill(word)
        lecturer.keyboard.press("Enter")
        expect(ada.locator(".eab .label-chip")).to_have_count(shown)
    expect(ada.get_by_role("button", name="How likely?")).to_be_hidden()
    lecturer.get_by_role("button", name="Remove the label a").click()
    expect(ada.locator(".eab .label-chip")).to_have_count(1)


def test_students_see_the_run_at_the_threshold_of_the_lecturer(
    lecturer: Page, student: Student
) -> None:
    ada = student()
    expect(lecturer.get_by_text("1 student following")).to_be_visible()
    lecturer.get_by_role("slider", name="What if? Threshold (nats)").fill("0.6")
    for page in (lecturer, ada):
        expect(page.get_by_text("Recomputed from the recording.")).to_be_visible()
        expect(page.get_by_role("slider", name="What if? Threshold (nats)")).to_have_value("0.6")
    lecturer.get_by_role("button", name="Reset: back").click()
    for page in (lecturer, ada):
        expect(page.get_by_text("Recomputed from the recording.")).to_have_count(0)


def test_a_lesson_shows_the_numbers_of_the_class_until_a_student_chooses_others(
    lecturer: Page, student: Student
) -> None:
    lecturer.get_by_role("button", name="Run", exact=True).click()
    expect(lecturer.get_by_text("Done after").first).to_be_visible()
    ada = student()
    expect(ada.get_by_text("You follow class ")).to_be_visible()
    lecturer.get_by_role("link", name="Learn").click()
    lecturer.get_by_role("radio", name="Yours").click()
    theirs = ada.get_by_text("These numbers come from the class.")
    expect(theirs).to_be_visible()
    ada.get_by_role("button", name="Stop following").click()
    ada.get_by_role("button", name=re.compile("^Use ")).click()
    expect(theirs).to_have_count(0)
    expect(lecturer.get_by_role("radio", name="Yours")).to_be_checked()


def test_a_question_is_answered_and_revealed(lecturer: Page, student: Student) -> None:
    students = [student() for _ in range(2)]
    expect(lecturer.get_by_text("2 students following")).to_be_visible()
    to_step(lecturer, 0)
    lecturer.keyboard.press("Enter")
    expect(lecturer.locator(".eab .inspector li").first).to_be_visible()
    lecturer.get_by_role("button", name="Ask the class").click()
    lecturer.get_by_role("button", name="Which word comes next?").click()
    token = next(path for path in bundled_run("bridge").paths if path.tokens).tokens[0]
    highest = max(one.probability for one in token.candidates)
    for student in students:
        expect(answers(student)).to_have_count(min(6, len(token.candidates)))
        expect(student.locator(".st-key-board")).to_be_hidden()
        expect(student.locator(".js-plotly-plot")).to_have_count(0)
        expect(student.locator("blockquote")).to_contain_text("___")
    expect(lecturer.locator(".st-key-board")).to_be_hidden()
    assert grave_findings(students[0]) == []
    ada, bob = students
    answers(ada).nth(0).click()
    chart = lecturer.locator(".st-key-class_bar [data-testid=stPlotlyChart]")
    expect(chart).to_be_visible()
    expect(lecturer.get_by_text("was chosen by 1 of 1 student.")).to_be_visible()
    answers(bob).nth(1).click()
    expect(lecturer.get_by_text("were each chosen by 1 of 2 students.")).to_be_visible()
    answers(ada).nth(1).click()
    expect(lecturer.get_by_text("was chosen by 2 of 2 students.")).to_be_visible()
    assert grave_findings(lecturer) == []
    expect(lecturer.locator(".st-key-class_bar")).not_to_contain_text("The model gives")
    lecturer.get_by_role("button", name="Reveal").click()
    expect(lecturer.locator(".st-key-board")).to_be_visible()
    for student in students:
        expect(student.get_by_text("was chosen by 2 of 2 students.")).to_be_visible()
        expect(student.get_by_text(f" {highest:.0%}, more than any other.")).to_be_visible()
        expect(student.locator(".st-key-board")).to_be_visible()
    lecturer.get_by_role("button", name="Close the question").click()
    expect(ada.get_by_text("was chosen by 2 of 2 students.")).to_have_count(0)


def test_a_lecturer_asks_and_reveals_in_the_presenter(lecturer: Page, student: Student) -> None:
    lecturer.set_viewport_size({"width": 1024, "height": 768})
    ada = student()
    expect(lecturer.get_by_text("1 student following")).to_be_visible()
    to_step(lecturer, 0)
    lecturer.keyboard.press("p")
    bar = lecturer.locator(".st-key-class_bar:popover-open")
    question = bar.get_by_role("button", name="Which word comes next?")
    expect(question).to_be_disabled()
    assert overlap(box_of(bar), box_of(board(lecturer).locator(".screen"))) <= 0
    lecturer.keyboard.press("Enter")
    question.click()
    answers(ada).nth(0).click()
    expect(bar.get_by_text("was chosen by 1 of 1 student.")).to_be_visible()
    bar.get_by_role("button", name="Reveal").click()
    expect(bar.get_by_text("more than any other")).to_be_visible()
    bar.get_by_role("button", name="Close the question").click()
    expect(bar.locator("blockquote")).to_have_count(0)
    assert overlap(box_of(bar), box_of(board(lecturer).locator(".screen"))) <= 0
    lecturer.keyboard.press("p")
    expect(bar).to_have_count(0)
    expect(lecturer.get_by_role("button", name="Ask the class")).to_be_visible()


def test_the_question_of_a_lesson_is_answered_by_the_class(
    lecturer: Page, student: Student
) -> None:
    ada = student()
    expect(lecturer.get_by_text("1 student following")).to_be_visible()
    lecturer.get_by_role("link", name="Learn").click()
    lecturer.get_by_role("button", name=re.compile("^Next")).click()
    expect(ada.get_by_text("2 of ")).to_be_visible()
    lecturer.get_by_role("button", name="Ask the class").click()
    lecturer.get_by_role("button", name="The lesson’s question: How unsure is it?").click()
    expect(answers(ada)).to_have_count(len(TOKENS.question.ranges()))
    answers(ada).nth(0).click()
    expect(lecturer.get_by_text("was chosen by 1 of 1 student.")).to_be_visible()
    lecturer.get_by_role("button", name="Reveal").click()
    run = bundled_run(TOKENS.run.removesuffix(".eab"))
    highest = max(token.entropy for path in run.paths for token in path.tokens)
    assert highest >= TOKENS.question.bounds[0]
    expect(
        ada.get_by_text(f"You guessed less than 0.30 nats. It is {highest:.2f} nats.")
    ).to_be_visible()
    expect(lecturer.get_by_text(f"Right: {highest:.2f} nats.")).to_be_visible()


def test_a_lecturer_disconnects_comes_back_and_ends_the_class(
    lecturer: Page, student: Student
) -> None:
    ada = student()
    to_step(lecturer, 5)
    bob = student()
    expect(board(ada)).to_have_attribute("data-cursor", "5")
    expect(board(bob)).to_have_attribute("data-cursor", "5")
    link, code = lecturer.url, code_of(lecturer)
    assert "lecture=" in link
    assert "lecture" not in ada.url
    lecturer.goto(link.partition("?")[0] + "healthz")
    expect(ada.get_by_text("The lecturer has lost the connection.")).to_be_visible()
    expect(board(ada)).to_have_attribute("data-cursor", "5")
    lecturer.goto(link)
    expect(lecturer.get_by_text("2 students following")).to_be_visible()
    expect(ada.get_by_text("The lecturer has lost the connection.")).to_have_count(0)
    expect(board(lecturer)).to_have_attribute("data-cursor", "5")
    to_step(lecturer, 2)
    expect(board(ada)).to_have_attribute("data-cursor", "2")
    bob.get_by_role("button", name="Leave the class").click()
    expect(way_in(bob)).to_be_visible()
    expect(lecturer.get_by_text("1 student following")).to_be_visible()
    lecturer.get_by_role("button", name="End the class").click()
    for page in (lecturer, ada):
        expect(page.get_by_text("This class has ended")).to_be_visible()
    late = student()
    expect(late.get_by_text(re.compile(f"There is no class .?{code}")).first).to_be_visible()
    ada.get_by_role("button", name="Close").click()
    expect(way_in(ada)).to_be_visible()


def test_a_lecturer_who_came_back_is_led_to_the_old_step_only_once(
    lecturer: Page, student: Student
) -> None:
    ada = student()
    to_step(lecturer, 5)
    expect(board(ada)).to_have_attribute("data-cursor", "5")
    link = lecturer.url
    lecturer.goto(link.partition("?")[0] + "healthz")
    lecturer.goto(link)
    expect(board(lecturer)).to_have_attribute("data-cursor", "5")
    to_step(lecturer, 2)
    expect(board(ada)).to_have_attribute("data-cursor", "2")
    for name in ("Learn", "Explore"):
        lecturer.get_by_test_id("stSidebarNavLink").filter(has_text=name).click()
        expect(lecturer.get_by_test_id("stSidebarNavLink").filter(has_text=name)).to_have_attribute(
            "aria-current", "page"
        )
        expect(lecturer.locator(".eab .box.path").first).to_be_visible()
    lecturer.wait_for_timeout(2000)  # the class bar is drawn last
    assert board(lecturer).get_attribute("data-cursor") != "5"


def test_on_a_phone_nothing_covers_the_class_the_answers_or_the_prompt(
    lecturer: Page, open_page: OpenPage
) -> None:
    """A touch reaches every button and answer, and the prompt stays on the screen."""
    phone = open_page(f"/?class={code_of(lecturer)}", has_touch=True, **OPTIONS)
    phone.set_viewport_size({"width": 390, "height": 844})
    expect(phone.get_by_text("You follow class ")).to_be_visible()
    expect(phone.locator(".eab .outline-item").first).to_be_visible()
    for name in ("Stop following", "Leave the class"):
        phone.get_by_role("button", name=name).tap(trial=True)
    to_step(lecturer, 0)
    lecturer.keyboard.press("Enter")
    expect(lecturer.locator(".eab .inspector li").first).to_be_visible()
    lecturer.get_by_role("button", name="Ask the class").click()
    lecturer.get_by_role("button", name="Which word comes next?").click()
    expect(lecturer.get_by_test_id("stPopoverBody")).to_have_count(0)
    expect(answers(phone)).to_have_count(2)
    assert unreachable(phone) == []
    for answer in answers(phone).all():
        answer.tap()
        expect(answer.locator("input")).to_be_checked()
    expect(lecturer.get_by_text("was chosen by 1 of 1 student.")).to_be_visible()
    lecturer.get_by_role("button", name="Close the question").click()
    expect(answers(phone)).to_have_count(0)
    phone.locator(".st-key-prompt textarea").tap()
    phone.keyboard.type("Why do cats purr, and why do dogs bark at night?")
    field = box_of(phone.locator(".st-key-prompt [data-testid=stTextAreaRootElement]"))
    run = box_of(phone.get_by_role("button", name="Run", exact=True))
    assert field["x"] >= 0
    assert overlap(field, run) <= 0
    phone.keyboard.press("Enter")
    expect(phone.locator(".eab .outline-item.prompt")).to_contain_text("Why do cats purr")
    expect(phone.get_by_text("Done after").first).to_be_visible()
    assert unreachable(phone) == []
    phone.locator(".eab .outline-item.path").first.tap()
    expect(phone.locator(".eab .inspector li").first).to_be_visible()
