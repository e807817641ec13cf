"""Which answers the leaves of a run give, how likely each is, and what is certain about it.

Leaves whose texts are equal after `normalised` give one answer. The sum of their weights estimates
its probability.

Beside the estimate there are certain bounds. The probabilities of the texts seen are known; their
sum is `explored`. An answer has at least the probability of its own texts, and at most that plus
1 - explored. These bounds hold for every policy and every seed, up to the rounding of the model's
log-probabilities.

Everything here is about the processed distribution (after temperature, top-k, top-p) and about
texts of at most max_new_tokens tokens. No model is needed.
"""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from eab import token_text
from eab.errors import ConfigError
from eab.run import Path, Run, Token

Part = Literal["text", "sentence"]

_ARTICLE: Final = re.compile(r"\b(?:a|an|the) (?=\w)")
_IN_NUMBER: Final = re.compile(r"(?<=\d)[.,:/](?=\d)|(?<!\w)[-−](?=[.\d])|(?<!\w)\.(?=\d)")
_APOSTROPHE: Final = re.compile(r"(?<=\w)['’](?=\w)")
# A mark after a digit may be a decimal point; only the character after it tells.
_SENTENCE_END: Final = re.compile(r"(?<=\S)(?:\n|(?<!\d)[.!?。！？]|(?<=\d)[.!?](?=\D))")


@dataclass(frozen=True, slots=True)
class Answer:
    """Leaves with the same answer.

    Attributes:
        text: The answer in the words of the leaf with the most weight.
        weight: Estimated probability. Under the policy `original` it is the share of the leaves,
            which estimates nothing.
        low: The probability is at least this, for certain.
        high: The probability is at most this, for certain.
        leaves: Ids of the paths.
    """

    text: str
    weight: float
    low: float
    high: float
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers of a run.

    Attributes:
        ranked: The answers, the one with the most weight first.
        undecided: Leaves whose answer is not complete, in a run that was stopped.
        explored: The probability (0 to 1) of all texts seen. With short answers it comes close to
            1; with stories it is close to 0.
    """

    ranked: tuple[Answer, ...]
    undecided: tuple[int, ...]
    explored: float

    @property
    def entropy(self) -> float:
        """Entropy (nats) of the answers' weights.

        An estimate that is too low on average, because it misses unseen answers.
        """
        return _entropy([answer.weight for answer in self.ranked])

    @property
    def entropy_bounds(self) -> tuple[float, float]:
        """The entropy (nats) lies between these for certain, if all unseen answers count as one."""
        known = [*(answer.low for answer in self.ranked), 0.0]
        unexplored = 1.0 - self.explored
        top = max(range(len(known)), key=known.__getitem__)
        lowest = [mass + unexplored * (index == top) for index, mass in enumerate(known)]
        return _entropy(lowest), _entropy(_filled(known, unexplored))

    @property
    def winner(self) -> Answer | None:
        """The answer that is certainly the most likely one, seen or unseen; None if there is none
        yet.
        """
        unexplored = 1.0 - self.explored
        by_low = sorted(self.ranked, key=lambda answer: -answer.low)
        second = by_low[1].low if len(by_low) > 1 else 0.0
        return (
            by_low[0]
            if by_low and by_low[0].low >= second + unexplored and by_low[0].low > 0
            else None
        )


@dataclass(frozen=True, slots=True)
class _LeafAnswer:
    """The answer of one leaf.

    Attributes:
        leaf: The path.
        tokens: The tokens of its text that decide the answer.
        probability: Their probability.
        text: The answer.
    """

    leaf: Path
    tokens: tuple[int, ...]
    probability: float
    text: str


def check_part(part: str) -> None:
    """Check the name of a part.

    Raises:
        ConfigError: A text has no such part.
    """
    if part not in get_args(Part):
        allowed = ", ".join(get_args(Part))
        raise ConfigError(f"answers are grouped by {part!r}; it must be one of: {allowed}")


def group_answers(run: Run, part: Part | str = "text") -> Answers:
    """The answers of a run.

    Args:
        run: The run.
        part: What of a text is its answer: all of it (`text`) or its first `sentence`. A sentence
            ends at a line break, or at `.`, `!` or `?` (after a digit only if no digit follows).

    Raises:
        ConfigError: There is no such part.
    """
    check_part(part)
    decided, undecided = [], []
    for leaf in run.leaves():
        found = _leaf_answer(run, leaf, part)
        if found is None:
            undecided.append(leaf.id)
        else:
            decided.append(found)
    seen = {one.tokens: one.probability for one in decided}
    explored = min(1.0, math.fsum(seen.values()))
    return Answers(_ranked(decided, 1.0 - explored), tuple(undecided), explored)


def normalised(text: str) -> str:
    """The text in the form in which equal answers are equal.

    Letter case, Unicode variants (NFKC), white space, punctuation and the articles a, an, the
    before a word do not count. Numbers and signs that carry meaning stay: 1.5 is not 15, -3 is not
    3, 12:30 is not 1230, $5 is not 5. A text of punctuation alone stays as it is.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    kept = {match.start() for match in _IN_NUMBER.finditer(text)}
    dropped = {match.start() for match in _APOSTROPHE.finditer(text)}
    signs = [
        sign if index in kept or not _is_punctuation(sign) else "" if index in dropped else " "
        for index, sign in enumerate(text)
    ]
    words = " ".join("".join(signs).replace("−", "-").split())
    return _ARTICLE.sub("", words) or " ".join(text.split())


def _is_punctuation(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "PC" and sign != "%"


def _leaf_answer(run: Run, leaf: Path, part: str) -> _LeafAnswer | None:
    """The answer of a leaf; None while it is undecided."""
    tokens = list(run.tokens(leaf.id))
    text = "".join(token.text for token in tokens if not token.special)
    if part == "sentence" and (match := _SENTENCE_END.search(text)) is not None:
        tokens = tokens[: _tokens_that_decide(tokens, match)]
        text = text[: match.end()]
    elif leaf.status != "finished":
        return None
    log_prob = math.fsum(token.log_prob for token in tokens)
    return _LeafAnswer(
        leaf,
        tuple(token.token for token in tokens),
        min(1.0, math.exp(log_prob)),
        token_text.join([text]),
    )


def _tokens_that_decide(tokens: Sequence[Token], end: "re.Match[str]") -> int:
    """How many tokens it takes to know that the sentence ends there.

    Whatever follows them, the answer is the same.
    """
    after_digit = end.start() > 0 and end[0] != "\n" and end.string[end.start() - 1].isdecimal()
    needed = end.end() + after_digit
    length = 0
    for count, token in enumerate(tokens, start=1):
        length += 0 if token.special else len(token.text)
        if length >= needed:
            return count
    return len(tokens)


def _ranked(decided: Sequence[_LeafAnswer], unexplored: float) -> tuple[Answer, ...]:
    groups: defaultdict[str, list[_LeafAnswer]] = defaultdict(list)
    for one in sorted(decided, key=lambda one: -one.leaf.weight):
        groups[normalised(one.text)].append(one)
    answers = [_answer(members, unexplored) for members in groups.values()]
    return tuple(sorted(answers, key=lambda answer: (-answer.weight, -answer.low)))


def _answer(members: Sequence[_LeafAnswer], unexplored: float) -> Answer:
    # leaves may share the tokens that decide, which count once
    known = {one.tokens: one.probability for one in members}
    low = min(1.0, math.fsum(known.values()))
    weight = math.fsum(one.leaf.weight for one in members)
    return Answer(
        members[0].text.strip(),
        weight,
        low,
        min(1.0, low + unexplored),
        tuple(one.leaf.id for one in members),
    )


def _entropy(masses: Sequence[float]) -> float:
    """Entropy (nats) of the masses, scaled to sum to 1."""
    total = math.fsum(masses)
    shares = [mass / total for mass in masses if mass > 0] if total > 0 else []
    return abs(math.fsum(-share * math.log(share) for share in shares))


def _filled(known: Sequence[float], unexplored: float) -> list[float]:
    """The masses after the rest was added to the smallest ones so that all are as equal as
    possible.
    """
    levels = sorted(known)
    level = min(
        (math.fsum(levels[:count]) + unexplored) / count for count in range(1, len(levels) + 1)
    )
    return [max(mass, level) for mass in known]
