"""Which answers the leaves of a run give, how likely each is, and what is certain about it.

Leaves whose texts are the same by a rule (`eab.analysis.same_answer`) give one answer. The sum of
their weights estimates its probability.

Beside the estimate there are certain bounds. The probabilities of the texts seen are known; their
sum is `explored`. An answer has at least the probability of its own texts, and at most that plus
1 - explored. These bounds hold for every policy and every seed, up to the rounding of the model's
log-probabilities.

Everything here is about the processed distribution (after temperature, top-k, top-p) and about
texts of at most max_new_tokens tokens. No model is needed.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from eab import token_text
from eab.analysis.same_answer import SameAnswer, exact, grouped
from eab.errors import ConfigError
from eab.run import Path, Run, Token

Part = Literal["text", "sentence"]

# A mark after a digit may be a decimal point; only the character after it tells.
_SENTENCE_END: Final = re.compile(r"(?<=\S)(?:\n|(?<!\d)[.!?。！？]|(?<=\d)[.!?](?=\D))")


@dataclass(frozen=True, slots=True)
class LeafAnswer:
    """The answer of one leaf.

    Attributes:
        leaf: Id of the path.
        weight: Its weight.
        tokens: The tokens of its text that decide the answer.
        log_prob: Sum over these tokens, in nats.
        text: The answer.
    """

    leaf: int
    weight: float
    tokens: tuple[int, ...]
    log_prob: float
    text: str

    @property
    def probability(self) -> float:
        """Of the tokens that decide."""
        return min(1.0, math.exp(self.log_prob))


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
        decided: What each of the other leaves says, in order of birth.
    """

    ranked: tuple[Answer, ...]
    undecided: tuple[int, ...]
    explored: float
    decided: tuple[LeafAnswer, ...] = ()

    @property
    def entropy(self) -> float:
        """Semantic entropy (nats), the entropy of the answers' weights.

        An estimate that is too low on average, because it misses unseen answers.
        """
        return entropy([answer.weight for answer in self.ranked])

    @property
    def entropy_bounds(self) -> tuple[float, float]:
        """The entropy (nats) lies between these for certain, if all unseen answers count as one."""
        known = [*(answer.low for answer in self.ranked), 0.0]
        unexplored = 1.0 - self.explored
        top = max(range(len(known)), key=known.__getitem__)
        lowest = [mass + unexplored * (index == top) for index, mass in enumerate(known)]
        return entropy(lowest), entropy(_filled(known, unexplored))

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


def check_part(part: str) -> Part:
    """The part of this name.

    Raises:
        ConfigError: A text has no such part.
    """
    allowed: tuple[Part, ...] = get_args(Part)
    for name in allowed:
        if name == part:
            return name
    raise ConfigError(f"answers are grouped by {part!r}; it must be one of: {', '.join(allowed)}")


def group_answers(run: Run, part: Part | str = "text", same: SameAnswer = exact) -> Answers:
    """The answers of a run.

    Args:
        run: The run.
        part: What of a text is its answer: all of it (`text`) or its first `sentence`. A sentence
            ends at a line break, or at `.`, `!` or `?` (after a digit only if no digit follows).
        same: The rule that says which texts are the same answer.

    Raises:
        ConfigError: There is no such part.
    """
    decided, undecided = leaf_answers(run, part)
    seen = {one.tokens: one.probability for one in decided}
    explored = min(1.0, math.fsum(seen.values()))
    ranked = _ranked(run.started.prompt, decided, 1.0 - explored, same)
    return Answers(ranked, undecided, explored, decided)


def leaf_answers(
    run: Run, part: Part | str = "text"
) -> tuple[tuple[LeafAnswer, ...], tuple[int, ...]]:
    """What each leaf says, and the ids of the leaves whose answer is not complete.

    Raises:
        ConfigError: There is no such part.
    """
    check_part(part)
    found = {leaf.id: _leaf_answer(run, leaf, part) for leaf in run.leaves()}
    decided = tuple(one for one in found.values() if one is not None)
    return decided, tuple(leaf for leaf, one in found.items() if one is None)


def _leaf_answer(run: Run, leaf: Path, part: str) -> LeafAnswer | None:
    """The answer of a leaf; None while it is undecided."""
    tokens = list(run.tokens(leaf.id))
    text = "".join(token.text for token in tokens if not token.special)
    if part == "sentence" and (match := _SENTENCE_END.search(text)) is not None:
        tokens = tokens[: _tokens_that_decide(tokens, match)]
        text = text[: match.end()]
    elif leaf.status != "finished":
        return None
    return LeafAnswer(
        leaf.id,
        leaf.weight,
        tuple(token.token for token in tokens),
        math.fsum(token.log_prob for token in tokens),
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


def _ranked(
    question: str, decided: Sequence[LeafAnswer], unexplored: float, same: SameAnswer
) -> tuple[Answer, ...]:
    heaviest_first = sorted(decided, key=lambda one: -one.weight)
    groups: defaultdict[int, list[LeafAnswer]] = defaultdict(list)
    numbers = grouped(question, [one.text for one in heaviest_first], same)
    for number, one in zip(numbers, heaviest_first, strict=True):
        groups[number].append(one)
    answers = [_answer(members, unexplored) for members in groups.values()]
    return tuple(sorted(answers, key=lambda answer: (-answer.weight, -answer.low)))


def _answer(members: Sequence[LeafAnswer], unexplored: float) -> Answer:
    # leaves may share the tokens that decide, which count once
    known = {one.tokens: one.probability for one in members}
    low = min(1.0, math.fsum(known.values()))
    weight = math.fsum(one.weight for one in members)
    return Answer(
        members[0].text.strip(),
        weight,
        low,
        min(1.0, low + unexplored),
        tuple(one.leaf for one in members),
    )


def entropy(masses: Sequence[float]) -> float:
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
