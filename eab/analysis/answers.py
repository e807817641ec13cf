"""Which answers the leaves of a run give, how likely each is, and what is certain about it. Needs
no model.

Leaves that say the same after `normalised` are one answer. Its weight, the sum of theirs, estimates
its probability.
Beside the estimate stands what is certain: the texts seen have known probabilities, so with
`explored` for the sum of them, an answer has at least its own part of it, and at most that part
plus 1 - explored. This holds for every policy, without chance, up to the rounding of the model's
log-probabilities. All of it is about the processed distribution (after temperature, top-k, top-p)
and texts of at most max_new_tokens tokens.
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
# A mark after a digit may be a decimal point: only the character after it tells.
_SENTENCE_END: Final = re.compile(r"(?<=\S)(?:\n|(?<!\d)[.!?。！？]|(?<=\d)[.!?](?=\D))")


@dataclass(frozen=True, slots=True)
class Answer:
    """Leaves that say the same.

    text: what the heaviest of them says. weight: estimated probability (under the policy
    `original`: the share of the leaves, which estimates nothing). low, high: the probability lies
    between them for certain. leaves: ids of paths.
    """

    text: str
    weight: float
    low: float
    high: float
    leaves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers of a run, the heaviest first.

    undecided: leaves that have not said their answer yet, in a run that was stopped. explored: the
    probability (0 to 1) of all that was seen; with short answers it comes close to 1, with stories
    it is almost nothing.
    """

    ranked: tuple[Answer, ...]
    undecided: tuple[int, ...]
    explored: float

    @property
    def entropy(self) -> float:
        """Entropy (nats) of the answers' weights; an estimate, too low on average, since it misses
        unseen answers.
        """
        return _entropy([answer.weight for answer in self.ranked])

    @property
    def entropy_bounds(self) -> tuple[float, float]:
        """Between these (nats) the entropy lies for certain, all unseen answers counted as one."""
        known = [*(answer.low for answer in self.ranked), 0.0]
        unexplored = 1.0 - self.explored
        top = max(range(len(known)), key=known.__getitem__)
        lowest = [mass + unexplored * (index == top) for index, mass in enumerate(known)]
        return _entropy(lowest), _entropy(_filled(known, unexplored))

    @property
    def winner(self) -> Answer | None:
        """The answer that no other one, seen or unseen, can exceed; None while that is not
        certain.
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
class _Said:
    """What one leaf answers: the tokens that decide it, and their probability."""

    leaf: Path
    tokens: tuple[int, ...]
    probability: float
    text: str


def check_part(part: str) -> None:
    """ConfigError unless a text has such a part."""
    if part not in get_args(Part):
        raise ConfigError(f"answers is {part!r}; it must be one of: {', '.join(get_args(Part))}")


def group_answers(run: Run, part: Part | str = "text") -> Answers:
    """The answers of a run. part: what of a text is its answer, all of it or its first sentence.

    A sentence ends at a line break, or at `.`, `!` or `?` (after a digit only if no digit follows).
    ConfigError for another part.
    """
    check_part(part)
    said, undecided = [], []
    for leaf in run.leaves():
        found = _said(run, leaf, part)
        if found is None:
            undecided.append(leaf.id)
        else:
            said.append(found)
    seen = {one.tokens: one.probability for one in said}
    explored = min(1.0, math.fsum(seen.values()))
    return Answers(_ranked(said, 1.0 - explored), tuple(undecided), explored)


def normalised(text: str) -> str:
    """What two texts must share to be the same answer.

    Letter case, Unicode variants (NFKC), white space, punctuation and the articles a, an, the
    before a word do not
    count. Numbers and signs that carry meaning stay: 1.5 is not 15, -3 not 3, 12:30 not 1230, $5
    not 5. A text of punctuation alone stays as it is.
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


def _said(run: Run, leaf: Path, part: str) -> _Said | None:
    tokens = list(run.tokens(leaf.id))
    text = "".join(token.text for token in tokens if not token.special)
    if part == "sentence" and (match := _SENTENCE_END.search(text)) is not None:
        tokens = tokens[: _tokens_that_decide(tokens, match)]
        text = text[: match.end()]
    elif leaf.status != "finished":
        return None
    log_prob = math.fsum(token.log_prob for token in tokens)
    return _Said(
        leaf,
        tuple(token.token for token in tokens),
        min(1.0, math.exp(log_prob)),
        token_text.join([text]),
    )


def _tokens_that_decide(tokens: Sequence[Token], end: "re.Match[str]") -> int:
    """How many tokens it takes to know that the sentence ends there; whatever follows them, the
    answer is the same.
    """
    after_digit = end.start() > 0 and end[0] != "\n" and end.string[end.start() - 1].isdecimal()
    needed = end.end() + after_digit
    length = 0
    for count, token in enumerate(tokens, start=1):
        length += 0 if token.special else len(token.text)
        if length >= needed:
            return count
    return len(tokens)


def _ranked(said: Sequence[_Said], unexplored: float) -> tuple[Answer, ...]:
    groups: defaultdict[str, list[_Said]] = defaultdict(list)
    for one in sorted(said, key=lambda one: -one.leaf.weight):
        groups[normalised(one.text)].append(one)
    answers = [_answer(members, unexplored) for members in groups.values()]
    return tuple(sorted(answers, key=lambda answer: (-answer.weight, -answer.low)))


def _answer(members: Sequence[_Said], unexplored: float) -> Answer:
    known = {
        one.tokens: one.probability for one in members
    }  # leaves may share the tokens that decide
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
    """Nats; the masses are made to sum to 1."""
    total = math.fsum(masses)
    shares = [mass / total for mass in masses if mass > 0] if total > 0 else []
    return abs(math.fsum(-share * math.log(share) for share in shares))


def _filled(known: Sequence[float], unexplored: float) -> list[float]:
    """The masses with the rest poured over the smallest until it is used up: the most even they can
    be.
    """
    levels = sorted(known)
    level = min(
        (math.fsum(levels[:count]) + unexplored) / count for count in range(1, len(levels) + 1)
    )
    return [max(mass, level) for mass in known]
