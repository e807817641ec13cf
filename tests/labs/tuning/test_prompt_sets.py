"""Prompts of a sweep and questions of an evaluation: the bundled ones, and untrusted files."""

import json
import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.errors import EabError
from eab.labs.tuning.prompt_sets import (
    QUESTIONS,
    SETS,
    STORIES,
    Question,
    TuningPrompt,
    bundled_prompts,
    read_prompts,
    read_questions,
)
from scripts import write_questions


@pytest.mark.parametrize("name", SETS)
def test_the_bundled_sets_have_prompts_with_different_ids(name: str) -> None:
    prompts = bundled_prompts(name)
    assert len({prompt.id for prompt in prompts}) == len(prompts) >= 8
    assert {prompt.question.group for prompt in prompts} == {*SETS[name]}
    known = [bool(prompt.question.answers or prompt.question.distribution) for prompt in prompts]
    assert set(known) == {name != "stories"}
    assert read_prompts(name) == prompts


def test_the_stories_equal_those_of_the_script() -> None:
    lines = [json.loads(line) for line in STORIES.read_text(encoding="utf-8").splitlines()]
    assert lines == [*write_questions.stories()]


def test_the_same_prompts_can_be_read_from_json_lines_csv_and_text(tmp_path: Path) -> None:
    given = {"prompt": 'The capital, "Paris" of', "id": "a", "group": "g", "answers": ["x", "y z"]}
    given |= {"label": "w"}
    (tmp_path / "a.jsonl").write_text(json.dumps(given) + "\n\n" + '{"prompt": "b"}\n')
    (tmp_path / "a.csv").write_text(
        'id,prompt,group,answers,label\na,"The capital, ""Paris"" of",g,x|y z,w\n,b,,,\n'
    )
    (tmp_path / "a.txt").write_text("first\n\nb\n")
    lines, rows, texts = (
        read_prompts(str(tmp_path / f"a.{end}")) for end in ("jsonl", "csv", "txt")
    )
    assert lines == rows
    assert lines[0] == TuningPrompt("a", Question(given["prompt"], ("x", "y z"), {}, "g", "w"))
    assert [prompt.id for prompt in lines] == ["a", "00003"]
    assert [(one.id, one.question.prompt) for one in texts] == [("00001", "first"), ("00003", "b")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@given(st.text(), st.sampled_from(["jsonl", "csv", "txt"]))
def test_any_text_is_read_or_refused_with_a_reason(folder: Path, content: str, end: str) -> None:
    file = folder / f"a.{end}"
    file.write_text(content, encoding="utf-8", errors="surrogateescape")
    with suppress(EabError):
        assert read_prompts(str(file))


def test_the_bundled_questions_equal_those_of_the_script() -> None:
    lines = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    assert lines == [*write_questions.facts(), *write_questions.chances()]


def test_the_bundled_questions_have_known_answers() -> None:
    questions = read_questions(str(QUESTIONS))
    assert all(bool(one.answers) != bool(one.distribution) for one in questions)
    by_prompt = {one.prompt: one for one in questions}
    assert by_prompt["The capital of France is"].answers == ("Paris",)
    assert by_prompt["Question: What is 3 + 4?\nAnswer:"].answers == ("7",)
    assert by_prompt["I tossed three coins:"].entropy == pytest.approx(3 * math.log(2))
    assert by_prompt["At night the sky is"].entropy == 0.0
