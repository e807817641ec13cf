"""Files of questions: the bundled one, and what is refused."""

import json
import math
from pathlib import Path

import pytest

from eab.errors import QuestionsError
from eab.labs.tuning.questions import BUNDLED, load_questions
from scripts import write_questions


def test_the_bundled_questions_are_those_that_the_script_writes() -> None:
    lines = [json.loads(line) for line in BUNDLED.read_text(encoding="utf-8").splitlines()]
    assert lines == [*write_questions.facts(), *write_questions.chances()]


def test_the_bundled_questions_have_known_answers() -> None:
    questions = load_questions()
    assert all(bool(one.answers) != bool(one.distribution) for one in questions)
    by_prompt = {one.prompt: one for one in questions}
    assert by_prompt["The capital of France is"].answers == ("Paris",)
    assert by_prompt["Question: What is 3 + 4?\nAnswer:"].answers == ("7",)
    assert by_prompt["I tossed three coins:"].entropy == pytest.approx(3 * math.log(2))
    assert by_prompt["At night the sky is"].entropy == 0.0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "has no question"),
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1 is not a question: expected object, got"),
        ('{"group": "a"}', "missing required field prompt"),
        ('{"prompt": " "}', "has an empty prompt"),
        ('{"prompt": "a"}', "needs either answers or a distribution"),
        ('{"prompt": "a", "answers": ["b"], "distribution": {"b": 1}}', "needs either"),
        ('{"prompt": "a", "answers": "b"}', "answers: expected array, got 'b'"),
        ('{"prompt": "a", "answers": [1]}', r"answers\[0\]: expected str, got 1"),
        ('{"prompt": "a", "distribution": {"b": 0.5}}', "sum to 1"),
        ('{"prompt": "a", "distribution": {"b": "x"}}', "expected float, got"),
    ],
)
def test_bad_files_are_refused_in_words(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(QuestionsError, match=words):
        load_questions(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(QuestionsError, match="cannot be read"):
        load_questions(tmp_path / "none.jsonl")
