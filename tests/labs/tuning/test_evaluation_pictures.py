"""The chart and the sentence of a recorded evaluation."""

from dataclasses import asdict
from typing import Any

import pytest

from eab.labs.tuning.evaluation import Gain, Report, ScoreRow, verdict
from eab.labs.tuning.evaluation_pictures import evaluation_figure, evaluation_sentence
from eab.labs.tuning.scores import Interval


def recorded(gain: Interval, best: float) -> dict[str, Any]:
    """A report as `eab evaluate --json` writes it."""
    rows = tuple(
        ScoreRow(way, score, Interval(value, value - 0.05, value + 0.02), Interval(0.9, 0.8, 1.0))
        for way, score, value in (
            ("greedy", "-ln p of the answer", best),
            ("tree", "semantic entropy", 0.8),
            ("independent", "semantic entropy", 0.82),
        )
    )
    tokens = {"greedy": 100, "tree": 1000, "independent": 1100}
    gains = (Gain("semantic entropy", gain),)
    report = Report(50, 10, 0, tokens, 6, rows, gains, (), None)
    return {"verdict": verdict(report), **asdict(report)}


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (Interval(-0.02, -0.05, 0.01), "shows no measurable difference"),
        (Interval(-0.10, -0.15, -0.05), "is worse than that of independent texts"),
        (Interval(0.10, 0.05, 0.15), "is better than that of independent texts"),
    ],
)
def test_the_sentence_says_whether_the_tree_helps_also_if_not(gain: Interval, words: str) -> None:
    assert words in evaluation_sentence(recorded(gain, 0.9))


def test_the_best_score_is_computed_from_the_report() -> None:
    gain = Interval(0.0, -0.1, 0.1)
    words = evaluation_sentence(recorded(gain, 0.9))
    assert "-ln p of the answer (greedy) has the highest AUROC, 0.900, from 0.850 to 0.920" in words
    words = evaluation_sentence(recorded(gain, 0.6))
    assert "semantic entropy (independent) has the highest AUROC, 0.820" in words


def test_the_chart_has_every_score_with_its_interval() -> None:
    report = recorded(Interval(0.0, -0.1, 0.1), 0.9)
    figure = evaluation_figure(report)
    shown = {
        (trace.name.split(",")[0], score): (x, x - down, x + up)
        for trace in figure.data
        for score, x, up, down in zip(
            trace.y, trace.x, trace.error_x.array, trace.error_x.arrayminus, strict=True
        )
    }
    for row in report["rows"]:
        interval = row["auroc"]
        expected = (interval["value"], interval["low"], interval["high"])
        assert shown[row["way"], row["score"]] == pytest.approx(expected)
    assert "1,000 tokens" in figure.data[0].name
    assert len({trace.marker.symbol for trace in figure.data}) == 3, "a second cue besides colour"
