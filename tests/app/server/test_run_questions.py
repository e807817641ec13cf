"""Questions about a token of a run: the text before it, whole words, and what the run chose."""

import re

import pytest
from made_runs import bundled_run

from app.server.class_questions import fork_question, next_question
from eab import EntropyAdaptiveBranching
from eab.lessons import bundled_runs
from eab.run import RunState, fold

BRIDGE = bundled_run("bridge")


def place(run: RunState, text: str) -> tuple[int, int]:
    """The path and the index of the first token with this text."""
    for path in run.paths:
        for index, token in enumerate(path.tokens):
            if token.text == text:
                return path.id, index
    raise AssertionError(text)


def test_a_word_of_several_tokens_is_offered_as_a_whole() -> None:
    path, index = place(BRIDGE, " t")
    question = next_question(BRIDGE, path, index)
    assert question is not None
    assert question.passage.endswith("came to a bridge. On the bridge sat a ___")
    assert question.options == ("cat", "troll")
    assert question.right == 1
    token = BRIDGE.paths[path].tokens[index]
    assert question.probabilities is not None
    chosen = next(each for each in token.candidates if each.text == " t")
    assert question.probabilities[1] == chosen.probability


def test_the_fork_question_is_asked_about_the_same_text() -> None:
    path, index = place(BRIDGE, " t")
    assert fork_question(BRIDGE, path, index).right == 0
    assert fork_question(BRIDGE, path, index + 1).right == 1
    assert fork_question(BRIDGE, path, index + 1).passage.endswith("sat a t___")


@pytest.mark.parametrize("recording", bundled_runs.recordings(), ids=lambda one: one.file)
def test_every_token_of_a_bundled_run_can_be_asked_about(recording: bundled_runs.Recording) -> None:
    run = fold(bundled_runs.events_of(recording))
    for path in run.paths[:12]:
        for index, token in enumerate(path.tokens[:20]):
            assert fork_question(run, path.id, index).passage.endswith("___")
            question = next_question(run, path.id, index)
            if question is None:
                assert len(token.candidates) < 2
                continue
            assert [*question.options] == sorted(question.options)
            assert not any(re.search(r"^\s|\s$", option) for option in question.options)
            probable = dict(zip(question.options, question.probabilities or (), strict=True))
            taken = {each.probability for each in token.candidates}
            assert {*probable.values()} <= taken


def test_a_word_whose_end_no_path_has_ends_in_an_ellipsis(embedded: object) -> None:
    run = EntropyAdaptiveBranching(embedded, policy="greedy", max_new_tokens=4).run("A little")
    question = next_question(run, 0, 0)
    assert question is not None
    assert question.right is not None
    unknown = [option for n, option in enumerate(question.options) if n != question.right]
    assert all(option.endswith("…") for option in unknown if option[0].isalpha())
    assert not question.options[question.right].endswith("…")
