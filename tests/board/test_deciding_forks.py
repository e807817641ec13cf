"""The board's message about the deciding forks of a finished run."""

from typing import Any

import pytest
from made_runs import bundled

from eab.analysis.answers import group_answers
from eab.analysis.uncertainty import attribute_to_forks
from eab.board.messages import Feed, deciding_forks, diff_message
from eab.run import RunState, fold


def found_in(name: str) -> tuple[RunState, dict[str, Any]]:
    """A bundled run, and the message about its deciding forks."""
    run = fold(bundled(name))
    found = deciding_forks(run)
    assert found is not None
    return run, found


@pytest.mark.parametrize("name", ["pet", "ball", "rare"])
def test_the_shares_add_up_to_one_and_the_sentence_names_the_largest(name: str) -> None:
    run, found = found_in(name)
    shares = [share for _, share, _ in found["forks"]]
    assert sum(shares) == pytest.approx(1.0, abs=1e-3)
    assert shares == sorted(shares, reverse=True)
    assert f"{shares[0]:.0%} of the semantic entropy" in found["sentence"]
    forks = attribute_to_forks(run, group_answers(run, "sentence"))
    entropy = sum(fork.contribution for fork in forks)
    for _, share, words in found["forks"]:
        assert ("wording" in words) == (share < 0.0005 / entropy)


def test_a_fork_after_the_answer_decides_only_the_wording() -> None:
    _, found = found_in("bridge")
    first, *others = found["forks"]
    assert first[:2] == [0, 1.0]
    assert first[2].startswith("decides the first sentence")
    assert {share for _, share, _ in others} == {0.0}
    assert all("only its wording" in words for *_, words in others)


def test_one_answer_in_two_wordings_leaves_nothing_to_decide() -> None:
    _, found = found_in("capital")
    assert [share for _, share, _ in found["forks"]] == [0.0]
    assert found["sentence"].startswith("All texts give one answer")


def test_answers_that_several_texts_give_are_sent_with_their_paths() -> None:
    run, found = found_in("market")
    assert found["answers"] == [
        [answer.name, list(answer.leaves)]
        for answer in group_answers(run, "sentence").ranked
        if answer.name != "flour."  # has a single text
    ]


def test_a_run_without_a_fork_or_an_end_and_a_merged_tree_have_no_deciding_forks() -> None:
    assert deciding_forks(fold(bundled("bent"))) is None, "it has no fork"
    events, feed = bundled("pet"), Feed()
    live = feed.message(fold(events[:-1]), "one", "live")
    assert live["deciding"] is None
    run = fold(events)
    assert feed.message(run, "one", "live")["deciding"] == deciding_forks(run)
    assert diff_message(run, run, "both")["deciding"] is None
