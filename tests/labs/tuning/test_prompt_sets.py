"""Prompts of a sweep and questions of an evaluation: the bundled ones, and untrusted files."""

import json
import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.errors import ConfigError, EabError, RecordError
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


def test_the_stories_equal_those_of_the_script_and_unknown_sets_are_explained() -> None:
    lines = [json.loads(line) for line in STORIES.read_text(encoding="utf-8").splitlines()]
    assert lines == [*write_questions.stories()]
    with pytest.raises(
        ConfigError, match="the prompt set is 'coins'; it must be one of: facts, chances"
    ):
        bundled_prompts("coins")


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


BAD = {
    '{"prompt": "a"': "it is not JSON: Expecting ',' delimiter",
    '{"id": "a"}': "it is not a question: object missing required field prompt",
    '{"prompt": "  "}': "it has an empty prompt",
    '{"prompt": "a", "id": "../a"}': "id is '../a'",
    '{"prompt": "a", "seed": 1}': "there is no field 'seed'; a prompt has: prompt, id, group",
    '{"prompt": "a", "answers": [1]}': "it is not a question: answers[0]: expected str, got 1",
    '{"prompt": "a", "distribution": {"a": 2}}': "it is not a question: distribution",
    '{"prompt": "a", "answers": ["b"], "distribution": {"b": 1}}': "it has answers and a distrib",
    '{"prompt": "\\ud800"}': "it is not a question: '\\ud800' is not valid text",
    '{"prompt": "a", "id": "ONE"}': "line 1 also has the id 'ONE'",
}


def test_every_bad_line_is_named_with_its_number_and_reason(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(['{"prompt": "fine", "id": "one"}', *BAD]), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_prompts(str(file))
    first, *others = str(caught.value).splitlines()
    assert first == f"{file} has {len(BAD)} problems, so nothing was run:"
    for number, (words, reason) in enumerate(zip(others, BAD.values(), strict=False), start=2):
        assert words.startswith(f"  line {number}: {reason}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no column prompt; name it in the first line"),
        ("prompt\n", "has no prompts; write one per line"),
        ("prompt\na,b\n", "line 2: it has more fields than the first line"),
        ('prompt\n"a\n', "is not CSV after line .: unexpected end of data"),
        ("prompt,distribution\na,b\n", "line 2: a CSV file cannot contain a distribution"),
        ("prompt,seed\na,1\n", "line 2: there is no field 'seed'"),
        (f"prompt\n{'a' * 200_000}\n", "is not CSV after line 1: field larger than field limit"),
    ],
)
def test_bad_csv_is_refused_with_a_reason(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ConfigError, match=words):
        read_prompts(str(tmp_path / "a.csv"))


def test_files_that_cannot_be_read_are_explained(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        read_prompts(str(tmp_path / "none.jsonl"))
    (tmp_path / "a.csv").write_bytes(b"prompt\n\xff\n")
    with pytest.raises(RecordError, match="is not UTF-8 text"):
        read_prompts(str(tmp_path / "a.csv"))


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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: it is not JSON"),
        ("[1]", "line 1: it is .* it must be an object"),
        ('{"prompt": "a", "id": "b"}', "has 1 prompt with neither .* the first with the id 'b'"),
        ('{"prompt": "a", "answers": "b"}', "answers: expected array, got 'b'"),
        ('{"prompt": "a", "distribution": {"b": 0.5}}', "sum to 1"),
        ('{"prompt": "a", "distribution": {"b": "x"}}', "expected float, got"),
    ],
)
def test_bad_questions_are_refused_with_a_reason(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        read_questions(str(file))
