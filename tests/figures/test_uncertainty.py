"""The sentences and tables of uncertainty agree with the numbers for every bundled run."""

import pytest
from made_runs import bundled_run

from eab.analysis.answer_rules import RULES
from eab.analysis.answers import group_answers
from eab.analysis.uncertainty import attribute_to_forks, uncertainty
from eab.figures.tables import forks_table, uncertainty_table
from eab.figures.uncertainty import forks_sentence, nats, uncertainty_sentence
from eab.lessons import bundled_runs
from eab.run import RunState, fold


def said(run: RunState, part: str, rule: str = "exact") -> str:
    answers = group_answers(run, part, RULES[rule])
    return forks_sentence(run, attribute_to_forks(run, answers))


def test_the_first_purchase_decides_the_first_sentence_and_half_of_the_text() -> None:
    market = bundled_run("market")
    sentence = said(market, "sentence")
    assert "bought some” causes 100% of the semantic entropy" in sentence
    assert sentence.endswith("2 forks do not change it, only its wording or what follows.")
    assert "bought some” causes 52%" in said(market, "text")


def test_the_rule_decides_what_counts_as_wording() -> None:
    """Depending on the rule, "Rome." and "The capital of Italy is Rome." are two answers or one."""
    wording = bundled_run("wording")
    assert "decides the answer" in said(wording, "sentence")
    assert said(wording, "sentence", "content").startswith("All texts give one answer")


def test_a_run_that_never_forked_has_no_deciding_fork() -> None:
    assert said(bundled_run("bent"), "sentence") == "No fork leads to two answers."


@pytest.mark.parametrize("number", range(len(bundled_runs.recordings())))
def test_tables_and_sentences_agree(number: int) -> None:
    run = fold(bundled_runs.events_of(bundled_runs.recordings()[number]))
    answers = group_answers(run, "sentence")
    scores, forks = uncertainty(run, answers), attribute_to_forks(run, answers)
    table = forks_table(run, forks)
    total = table["contribution"].sum()
    if scores.semantic is not None and run.started.config.policy != "independent":
        low, high = scores.semantic_bounds
        assert min(max(low, total), high) == pytest.approx(scores.semantic)
    if total > 0:
        assert table["share"].sum() == pytest.approx(1.0)
        assert table["after"][0] in forks_sentence(run, forks)
    rows = uncertainty_table(scores).set_index("score")
    assert nats(rows["nats"]["semantic entropy"]) == nats(scores.semantic)
    assert (rows["explored"] == scores.explored).all()
    words = uncertainty_sentence(scores)
    low, high = scores.semantic_bounds
    assert f"Semantic entropy {nats(scores.semantic)}" in words
    assert f"certainly between {low:.2f} and {high:.2f} nats" in words
    assert f"{scores.explored:.1%} of all probability" in words
    assert (f"not measured, because {scores.reason};" in words) == bool(scores.reason)
