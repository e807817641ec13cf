"""The part of a text that is its answer. A bad or slow pattern is refused with an explanation."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saying_model import flat_run

from eab.analysis import answer_parts
from eab.analysis.answer_parts import check_part, reader
from eab.analysis.answers import NO_ANSWER, entropy, group_answers
from eab.analysis.uncertainty import attribute_to_forks, semantic_entropy_of_runs, uncertainty
from eab.errors import ConfigError
from eab.run import RunState
from eab.run.events.chat import end_of_thinking, markers_in


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Hm. 3?</think>\nParis", "Paris"),
        ("Hm.</think>no</think> Paris", "Paris"),
        ("Paris", "Paris"),
        ("<think>still", None),
        ("Hm.</think>", ""),
        ("[THINK]Hm.[/THINK]Paris", "Paris"),
        ("<seed:think>Hm.</seed:think>Paris", "Paris"),
        ("◁think▷Hm.", None),
        ("<|channel|>analysis<|message|>Hm.", None),
        ("<|START_THINKING|>Hm.<|END_THINKING|>Paris", "Paris"),
        ("<|begin_of_thought|>Hm.", None),
    ],
)
def test_the_answer_follows_the_last_thought_and_waits_for_its_end(
    text: str, answer: str | None
) -> None:
    answers = group_answers(flat_run([(text, 1.0, 0.5, True)]), "after-thinking")
    assert [each.name for each in answers.ranked] == ([] if answer is None else [answer])
    assert answers.undecided == (() if answer is not None else (1,))


@pytest.mark.parametrize(("prompt", "start"), [("A<think>\n", None), ("<think> is a tag", 0)])
def test_a_template_may_open_the_thought(prompt: str, start: int | None) -> None:
    assert end_of_thinking(prompt, "Hm. It") == start
    assert end_of_thinking(prompt, "Hm.</think>It") == 11


@pytest.mark.parametrize(
    ("template", "opened", "closed"),
    [
        ("{{ content.split('</think>')[-1] }}", "<think>", "</think>"),
        ("[THINK]{{ x }}[/THINK]", "[THINK]", "[/THINK]"),
        ("<reasoning>", "<reasoning>", "</reasoning>"),
        (
            "<|channel|>analysis<|message|>",
            "<|channel|>analysis<|message|>",
            "<|channel|>final<|message|>",
        ),
        ("<|begin_of_thought|>", "<|begin_of_thought|>", "<|end_of_thought|>"),
    ],
)
def test_only_the_markers_that_a_template_names_count(template, opened, closed) -> None:
    named = markers_in(template)
    assert end_of_thinking("", f"{opened}Hm.", named) is None
    assert end_of_thinking(f"A{opened}\n", "Hm.", named) is None
    assert end_of_thinking("", f"{opened}Hm.{closed}It", named) == len(f"{opened}Hm.{closed}")
    assert end_of_thinking("", "The tag <thinking> opens it", named) == 0
    assert markers_in("{{ message['reasoning_content'] }}") == ()


@pytest.mark.parametrize(
    ("pattern", "text", "answer"),
    [
        (r"is (?P<city>\w+)", "It is Rome, it is Paris", "Rome"),
        (r"(x)|y", "y", None),
        (r"a(b*)", "a", ""),
    ],
)
def test_a_pattern_gives_the_group_of_its_first_match(pattern, text, answer) -> None:
    assert reader(f"regex:{pattern}")(text) == answer


@given(st.text("ab1 "), st.sampled_from([r"(\d)", r"a(b+)", r"^(\w+) ", r"(?:a|b)(1?)"]))
def test_a_pattern_matches_as_in_the_module_re(text: str, pattern: str) -> None:
    found = re.search(pattern, text)
    assert reader(f"regex:{pattern}")(text) == (found[1] if found else None)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("word", "grouped by 'word'; it must be one of: text, sentence, after-thinking"),
        ("regex:(", "'(' is not a regular expression"),
        ("regex:", "has 0 groups; it must have exactly one"),
        ("regex:(a)(b)", "has 2 groups; it must have exactly one"),
        ("regex:" + "(" * 400, "is not a regular expression"),
        ("regex:" + "x" * 501, "the pattern has 501 characters; at most 500 are allowed"),
    ],
    ids=lambda value: value[:20],
)
def test_an_invalid_part_is_refused_with_an_explanation(part: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_part(part)
    assert why in str(error.value)
    assert len(str(error.value)) < 400


def test_a_pattern_that_takes_too_long_is_refused_in_time(monkeypatch) -> None:
    monkeypatch.setattr(answer_parts, "MOST_SECONDS", 0.3)
    texts = ["a" * 60 + f"!{number}" for number in range(50)]
    run = flat_run([(text, 0.02, 0.02, True) for text in texts])
    start = time.process_time()
    with pytest.raises(ConfigError, match=r"takes more than 0\.3 s"):
        group_answers(run, r"regex:^(?:a|aa)+(\d)$")
    assert time.process_time() - start < 3


@pytest.mark.parametrize("flags", [0, re.IGNORECASE, re.IGNORECASE | re.VERBOSE])
def test_a_compiled_pattern_keeps_its_flags(run: RunState, flags: int) -> None:
    letters = {0: "", re.IGNORECASE: "(?i)", re.IGNORECASE | re.VERBOSE: "(?ix)"}[flags]
    given = group_answers(run, re.compile(r"IT IS (\w+)", flags))
    assert given == group_answers(run, check_part(rf"regex:{letters}IT IS (\w+)"))
    assert len({answer.name for answer in given.ranked} - {"(no answer)"}) == (flags == re.I)


def test_an_unknown_part_is_refused(run: RunState) -> None:
    with pytest.raises(ConfigError, match=r"answers are grouped by re\.compile"):
        group_answers(run, re.compile(b"(x)"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'paragraph'; it must be one of: text, sentence"):
        group_answers(run, "paragraph")


@pytest.fixture
def run() -> RunState:
    return flat_run(
        [
            ("It is Rome.", 0.3, 0.2, True),
            ("I say it is Rome", 0.2, 0.1, True),
            ("It was Paris", 0.3, 0.3, True),
            ("(no answer) is (no answer)", 0.1, 0.1, True),
            ("It is Ro", 0.1, 0.1, False),
        ]
    )


def test_texts_without_a_match_form_a_separate_answer(run: RunState) -> None:
    answers = group_answers(run, r"regex:is (\(no answer\)|\w+)")
    found = {(one.name, one.matched): (one.estimate, one.low, one.high) for one in answers.ranked}
    assert found == {
        ("Rome", True): pytest.approx((0.5, 0.3, 0.6)),
        (NO_ANSWER, False): pytest.approx((0.3, 0.3, 0.6)),
        (NO_ANSWER, True): pytest.approx((0.1, 0.1, 0.4)),
    }
    assert len(answers.undecided) == 1
    parts = sum(fork.contribution for fork in attribute_to_forks(run, answers))
    assert uncertainty(run, answers).semantic == pytest.approx(parts)
    whole = semantic_entropy_of_runs([run], r"regex:is (\(no answer\)|\w+)")
    assert whole.value == pytest.approx(entropy([0.5, 0.3, 0.1]))


def test_a_pattern_for_the_whole_text_groups_like_the_whole_text(run: RunState) -> None:
    assert group_answers(run, "regex:(?s)(.*)") == group_answers(run, "text")
    assert group_answers(run, "after-thinking") == group_answers(run, "text")
