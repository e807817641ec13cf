"""Prompts of a sweep and questions of an evaluation: the bundled ones, and untrusted files."""

import json
import math
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from any_config import CONFIGS
from hypothesis import given
from hypothesis import strategies as st

from eab.config import BranchingConfig
from eab.engine.branching.presets import PRESETS, starting_config
from eab.engine.request import Request
from eab.errors import ConfigError, EabError
from eab.labs.tuning.grid import Grid
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
from eab.labs.tuning.sweeping import items_of
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


@given(st.lists(CONFIGS, min_size=1, max_size=5), CONFIGS)
def test_a_line_may_set_every_setting(
    folder: Path, configs: list[BranchingConfig], others: BranchingConfig
) -> None:
    lines = [{"prompt": "a\u2028b"} | asdict(config) for config in configs]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (folder / "lines.jsonl").write_text("\ufeff" + text, encoding="utf-8")
    read = read_prompts(str(folder / "lines.jsonl"))
    assert [prompt.request(prompt.config(others)) for prompt in read] == [
        Request("a\u2028b", config) for config in configs
    ]


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({}, {"threshold_unit": "normalised", "entropy_threshold": 0.1}),
        ({"max_paths": 3}, {"threshold_unit": "normalised", "entropy_threshold": 0.1}),
        ({"entropy_threshold": 0.7}, {"threshold_unit": "nats", "entropy_threshold": 0.7}),
        ({"preset": "wide"}, dict(PRESETS["wide"].settings)),
    ],
    ids=str,
)
def test_what_a_line_leaves_open_is_as_in_the_sweep(
    settings: dict[str, Any], config: dict[str, Any]
) -> None:
    base = starting_config(threshold_unit="normalised", entropy_threshold=0.1, top_k=9)
    prompt = TuningPrompt("a", Question("a"), settings=settings)
    own = {name: value for name, value in settings.items() if name != "preset"}
    assert prompt.config(base) == replace(base, **own | config)


@pytest.mark.parametrize(
    ("settings", "varied", "seeds"),
    [
        ({"max_paths": 3}, {"max_paths": [4, 8]}, 1),
        ({"threshold_unit": "nats"}, {"entropy_threshold": [0.3, 0.9]}, 1),
        ({"preset": "wide"}, {"branch_factor": [2, 3]}, 1),
        ({"branch_factor": 2}, {"preset": ["wide", "focused"]}, 1),
        ({"seed": 3}, {}, 2),
    ],
    ids=str,
)
def test_a_line_may_not_set_what_the_sweep_varies(
    settings: dict[str, Any], varied: dict[str, Any], seeds: int
) -> None:
    prompt = TuningPrompt("a", Question("a"), settings=settings)
    with pytest.raises(ConfigError, match="which varies in the sweep"):
        items_of([prompt], Grid(varied, seeds=range(seeds)))
