"""What `EntropyAdaptiveBranching.score` returns: how likely given texts are after a prompt."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eab.engine.models.base import LanguageModel
from eab.engine.request import Request
from eab.engine.scoring import Bounds, ScoredText, Vocabulary, score
from eab.errors import PromptError
from eab.formatting import quoted

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Scored:
    """One of the texts, in one or several spellings that count as the same.

    Attributes:
        spellings: Each with its tokens and probabilities.
        exactly: The probability that the model writes one of them and then ends.
        begins: The probability that what the model writes begins with one of them.
    """

    spellings: tuple[ScoredText, ...]
    exactly: Bounds
    begins: Bounds

    @property
    def text(self) -> str:
        """The first spelling."""
        return self.spellings[0].text

    @property
    def log_prob(self) -> float:
        """ln of the probability of the tokens of the first spelling."""
        return self.spellings[0].log_prob


@dataclass(frozen=True, slots=True)
class Scores:
    """How likely texts are after a prompt; a sequence of `Scored`, in the given order.

    The probabilities are not made to sum to 1. A text may be the beginning of another, and its
    `begins` then includes that of the other.

    Attributes:
        prompt: The prompt, as text.
        texts: One for each of the given texts.
        neither: The probability that what the model writes begins with none of them.
    """

    prompt: str
    texts: tuple[Scored, ...]
    neither: Bounds

    def __iter__(self) -> Iterator[Scored]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Scored:
        return self.texts[index]

    def to_pandas(self) -> "DataFrame":
        """A row for each text: prompt, first spelling, ln of the probability of its tokens, and the
        bounds of the probabilities of the text exactly and as a beginning.
        """
        from pandas import DataFrame

        return DataFrame([_row(self.prompt, scored) for scored in self.texts])


def _row(prompt: str, scored: Scored) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "text": scored.text,
        "log_prob": scored.log_prob,
        "exactly_low": scored.exactly.low,
        "exactly_high": scored.exactly.high,
        "begins_low": scored.begins.low,
        "begins_high": scored.begins.high,
    }


def scores(model: LanguageModel, request: Request, texts: Any, words: Vocabulary) -> Scores:
    """Score texts, each given as text, as token ids, or as a list of spellings.

    Raises: see `eab.engine.scoring.score`.
    """
    groups = [_spellings(each) for each in _listed(texts)]
    each = iter(score(model, request, [one for group in groups for one in group], words))
    scored = [_together([next(each) for _ in group]) for group in groups]
    every = _together([text for one in scored for text in one.spellings]).begins
    neither = Bounds(max(0.0, 1.0 - every.high), max(0.0, 1.0 - every.low))
    prompt = request.prompt or model.decode(request.token_ids)
    return Scores(prompt, tuple(scored), neither)


def _listed(texts: Any) -> list[Any]:
    """The texts to score."""
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise PromptError(f'the texts are {quoted(texts)}; give a list such as ["yes", "no"]')
    return [*texts]


def _spellings(given: Any) -> list[str | tuple[int, ...]]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, Sequence) and given:
        if all(isinstance(each, int) for each in given):
            return [tuple(given)]
        if all(isinstance(each, str) for each in given):
            return [*given]
    raise PromptError(
        f'a text to score is {quoted(given)}; give text, token ids, or spellings such as ["yes", '
        '"Yes"]'
    )


def _together(spellings: Sequence[ScoredText]) -> Scored:
    """The probability of any of these texts: a text that begins with another counts once."""
    by_text = {spelling.text: spelling for spelling in spellings}
    first = [text for text in by_text if not any(_begins(text, other) for other in by_text)]
    return Scored(
        tuple(spellings),
        _sum([spelling.exactly for spelling in by_text.values()]),
        _sum([by_text[text].begins for text in first]),
    )


def _begins(text: str, other: str) -> bool:
    return text != other and text.startswith(other)


def _sum(bounds: Sequence[Bounds]) -> Bounds:
    low, high = (math.fsum(each) for each in zip(*bounds, strict=True))
    return Bounds(min(1.0, low), min(1.0, high))
