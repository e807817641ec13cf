"""The entropy histogram below the threshold slider: bars, counts, and the sentence."""

import re

import pytest

from app.widgets.threshold import empty, html


def per_step(drawn: str) -> list[int]:
    found = re.search(r'data-per-step="([^"]*)"', drawn)
    return [int(count or 0) for count in found[1].split(",")]


def text(drawn: str) -> str:
    return re.sub(r"<[^>]+>", "", drawn)


def test_the_counts_per_slider_step_add_up_to_the_tokens_above_a_threshold() -> None:
    entropies = [0.0, 0.29, 0.3, 1.0, 1.0, 9.0]
    counts = per_step(html(entropies, "", 0.3))
    assert (len(counts), sum(counts), counts[100], counts[-1]) == (401, 6, 2, 1)
    for step, threshold in enumerate(index / 100 for index in range(401)):
        assert sum(counts[step:]) == sum(entropy >= threshold for entropy in entropies)


def test_the_sentence_says_what_forks_and_whose_tokens_they_are() -> None:
    drawn = html([0.1, 0.7, 1.2], " of a greedy run", 0.69)
    assert text(drawn) == ("Unsure (≥ 2.0 equally likely tokens): 2 of 3 tokens of a greedy run.")
    assert text(html([], "", 0.0)) == "Unsure (≥ 1.0 equally likely tokens)."
    assert text(empty("Not known.")) == "Not known."


@pytest.mark.parametrize("entropies", [[0.0] * 5, [1.5] * 5, [0.0], [20.0]])
def test_equal_entropies_have_one_bar_of_full_height(entropies: list[float]) -> None:
    assert re.findall(r"height:([1-9]\d*%)", html(entropies, "", 0.3)) == ["100%"]
