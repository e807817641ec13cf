"""The answers that the leaves of a run give, their estimated probabilities, and certain bounds.

Leaves whose texts, or chosen parts of them (`eab.analysis.answer_parts`), are the same by a rule
(`eab.analysis.same_answer`) give one answer. The sum of their weights estimates its probability,
moved into the certain bounds where it is outside.

There are also certain bounds. The probabilities of the texts seen are known; their sum is
`explored`. An answer has at least the probability of its own texts, and at most 1 - explored more.
These bounds hold for every policy and every seed, up to the rounding of the model's
log-probabilities.

Everything here is about the processed distribution (after temperature and filters) and about texts
of at most max_new_tokens tokens. No model is needed.
"""

import codecs
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from eab import token_text
from eab.analysis.answer_parts import (
    AFTER_THINKING,
    SENTENCE,
    TEXT,
    GivenPart,
    first_sentence,
    part_of,
    reader,
)
from eab.analysis.same_answer import SameAnswer, exact, grouped
from eab.events.chat import end_of_thinking
from eab.run import Path, RunState, Token, largest_first, log_prob_of

_DECODER: Final = codecs.getincrementaldecoder("utf-8")
NO_ANSWER: Final = "(no answer)"  # the answer of texts in which a pattern finds nothing


@dataclass(frozen=True, slots=True)
class LeafAnswer:
    """The answer of one leaf."""

    leaf: int
    weight: float
    tokens: tuple[int, ...]  # the tokens of the leaf's text that decide the answer
    log_prob: float | None  # sum over these tokens, in nats; None if one is not known
    text: str
    matched: bool = True  # whether the text has an answer; if not, `text` is NO_ANSWER

    @property
    def probability(self) -> float:
        """The probability of the tokens that decide the answer; 0 if it is not known."""
        return 0.0 if self.log_prob is None else min(1.0, math.exp(self.log_prob))


@dataclass(frozen=True, slots=True)
class Answer:
    """Leaves with the same answer."""

    text: str  # the wording of the leaf with the most weight
    # Estimated probability, within the bounds; a drawn token stands for all that were not followed
    weight: float
    low: float  # certain lower bound of the probability
    high: float  # certain upper bound of the probability
    leaves: tuple[int, ...]  # ids of the paths
    matched: bool = True  # False for NO_ANSWER, which groups all leaves without a match


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers of a run."""

    # The most probable first, by what is certain: by `low`, then by weight. For independent texts,
    # by low + weight * (1 - explored), because their shares say where unseen texts are.
    ranked: tuple[Answer, ...]
    undecided: tuple[int, ...]  # leaves of a stopped run whose answer is not complete
    explored: float  # probability (0 to 1) of all texts seen
    decided: tuple[LeafAnswer, ...] = ()  # the answers of the other leaves, in order of birth
    unfinished: float = 0.0  # weight of the undecided leaves
    log_texts: float = 0.0  # ln of the number of texts that are possible

    @property
    def entropy_bounds(self) -> tuple[float, float]:
        """Certain bounds of the entropy (nats) over all answers: for unseen texts that all give the
        most likely answer, and for all possible texts, each with an answer of its own.
        """
        unexplored = 1.0 - self.explored
        known = sorted(answer.low for answer in self.ranked) or [0.0]
        lowest = entropy([*known[:-1], known[-1] + unexplored])
        return lowest, entropy([*known, unexplored]) + unexplored * self.log_texts

    @property
    def winner(self) -> Answer | None:
        """The answer that is certainly the most likely, counting unseen ones; None if undecided."""
        unexplored = 1.0 - self.explored
        by_low = sorted(self.ranked, key=lambda answer: -answer.low)
        second = by_low[1].low if len(by_low) > 1 else 0.0
        return (
            by_low[0]
            if by_low and by_low[0].low >= second + unexplored and by_low[0].low > 0
            else None
        )


def group_answers(run: RunState, part: GivenPart = TEXT, same: SameAnswer = exact) -> Answers:
    """The answers of a run.

    Args:
        part: Which part of a text is its answer: the whole `text`, its first `sentence`, the text
            `after-thinking` (after the last end of thinking, such as `</think>`, by the markers
            that the chat template names, or else by those of the common families; all of it if
            there is none; a thought that is not closed is undecided), or the one group of a
            regular expression's first match, given as `re.compile(...)` or as `regex:PATTERN`,
            which type checkers accept from `check_part`. A sentence ends at a line break, or where
            `sentencex` finds its end (see `eab.analysis.answer_parts`).
        same: The rule that decides whether two texts are the same answer.

    Raises:
        ConfigError: The part is unknown, or its pattern is wrong or takes too long.
    """
    decided, undecided = leaf_answers(run, part)
    seen = {leaf.tokens: leaf.probability for leaf in decided}
    explored = min(1.0, math.fsum(seen.values()))
    return Answers(
        _ranked(run, decided, 1.0 - explored, same),
        undecided,
        explored,
        decided,
        math.fsum(run.paths[leaf].weight for leaf in undecided),
        run.started.config.max_new_tokens * math.log(run.started.model.vocab_size),
    )


def leaf_answers(
    run: RunState, part: GivenPart = TEXT
) -> tuple[tuple[LeafAnswer, ...], tuple[int, ...]]:
    """The answer of each leaf, and the ids of the leaves whose answer is not complete."""
    part = part_of(part)
    read = reader(part)
    own = {SENTENCE: _first_sentence, AFTER_THINKING: _after_thinking}.get(part)
    by_leaf = {
        leaf.id: own(run, leaf) if own else _answer_in(run, leaf, read) for leaf in run.leaves()
    }
    decided = tuple(answer for answer in by_leaf.values() if answer is not None)
    return decided, tuple(leaf for leaf, answer in by_leaf.items() if answer is None)


def _first_sentence(run: RunState, leaf: Path) -> LeafAnswer | None:
    tokens = list(run.tokens(leaf.id))
    # before any stop string cut it; a character that is not complete is not read
    raw = b"".join(token_text.to_bytes(token.text) for token in tokens if not token.special)
    text = _DECODER("surrogateescape").decode(raw)
    if found := first_sentence(text, whole=False):
        count = _tokens_that_decide(tokens, text, found, run.started.config.stop)
        if count is not None and not (leaf.cut and count == len(tokens)):
            return _leaf_answer(leaf, tokens[:count], text[: found[0]])
    if leaf.status != "finished":
        return None
    text = run.text(leaf.id)
    found = first_sentence(text, whole=True)
    return _leaf_answer(leaf, tokens, text[: found[0]] if found else text)


def _after_thinking(run: RunState, leaf: Path) -> LeafAnswer | None:
    tokens = list(run.tokens(leaf.id))
    text = token_text.exact(token.text for token in tokens)
    prompt = token_text.join(run.started.prompt_texts)
    start = end_of_thinking(prompt, text, run.started.model.thinking)
    if leaf.status != "finished" or start is None:
        return None
    left, kept = len(token_text.to_bytes(text[:start])), b""
    for token in tokens:
        raw = token_text.to_bytes(token.text)
        kept += b"" if token.special else raw[max(0, left) :]
        left -= len(raw)
    answer = token_text.from_bytes(kept[: max(0, len(kept) - leaf.cut)])
    return _leaf_answer(leaf, tokens, answer)


def _answer_in(run: RunState, leaf: Path, read: Callable[[str], str | None]) -> LeafAnswer | None:
    if leaf.status != "finished":
        return None
    return _leaf_answer(leaf, list(run.tokens(leaf.id)), read(run.text(leaf.id)))


def _leaf_answer(leaf: Path, tokens: Sequence[Token], text: str | None) -> LeafAnswer:
    return LeafAnswer(
        leaf.id,
        leaf.weight,
        tuple(token.id for token in tokens),
        log_prob_of(tokens),
        NO_ANSWER if text is None else text,
        text is not None,
    )


def _tokens_that_decide(
    tokens: Sequence[Token], text: str, found: tuple[int, int], stop: Sequence[str]
) -> int | None:
    """How many tokens it takes to be sure of the sentence, so that no later token can complete a
    stop string that cuts it off; None if more are needed.

    Args:
        found: The end of the sentence, and how many characters show it.
    """
    end, known = (len(token_text.to_bytes(text[:place])) for place in found)
    longest = max((len(each.encode("utf-8")) for each in stop), default=1)
    needed, length = max(known, end + longest - 1), 0
    for count, token in enumerate(tokens, start=1):
        length += 0 if token.special else len(token_text.to_bytes(token.text))
        if length >= needed:
            return count
    return None


def _ranked(
    run: RunState, decided: Sequence[LeafAnswer], unexplored: float, same: SameAnswer
) -> tuple[Answer, ...]:
    heaviest_first = [decided[at] for at in largest_first([leaf.weight for leaf in decided])]
    groups: defaultdict[int, list[LeafAnswer]] = defaultdict(list)
    numbers = answer_numbers(run.started.prompt, heaviest_first, same)
    for number, leaf in zip(numbers, heaviest_first, strict=True):
        groups[number].append(leaf)
    answers = [_answer(members, unexplored) for members in groups.values()]
    answers = [answers[at] for at in largest_first([answer.weight for answer in answers])]
    unseen = unexplored if run.started.config.policy == "independent" else 0.0
    known = [answer.low + unseen * answer.weight for answer in answers]
    return _within_bounds([answers[at] for at in largest_first(known)], unexplored)


def _within_bounds(answers: Sequence[Answer], unexplored: float) -> tuple[Answer, ...]:
    lows, weights = [one.low for one in answers], [one.weight for one in answers]
    moved = within_bounds(lows, weights, unexplored)
    return tuple(replace(one, weight=weight) for one, weight in zip(answers, moved, strict=True))


def within_bounds(
    lows: Sequence[float], weights: Sequence[float], unexplored: float
) -> list[float]:
    """Weights moved into their bounds, of which `lows` are the lower ones, so that together they
    leave no more than all unseen probability.
    """
    unseen = [
        min(max(0.0, weight - low), unexplored) for low, weight in zip(lows, weights, strict=True)
    ]
    scale = unexplored / max(unexplored, math.fsum(unseen)) if unexplored else 0.0
    return [low + part * scale for low, part in zip(lows, unseen, strict=True)]


def _answer(members: Sequence[LeafAnswer], unexplored: float) -> Answer:
    # several leaves may share the same deciding tokens; count them once
    known = {leaf.tokens: leaf.probability for leaf in members}
    low = min(1.0, math.fsum(known.values()))
    weight = math.fsum(leaf.weight for leaf in members)
    return Answer(
        token_text.encodable(members[0].text.strip()),
        weight,
        low,
        min(1.0, low + unexplored),
        tuple(leaf.leaf for leaf in members),
        members[0].matched,
    )


def answer_numbers(
    question: str, decided: Sequence[LeafAnswer], same: SameAnswer = exact
) -> list[int]:
    """For each leaf, the number of its answer; same answer, same number; -1 for no answer."""
    numbers = iter(grouped(question, [leaf.text for leaf in decided if leaf.matched], same))
    return [next(numbers) if leaf.matched else -1 for leaf in decided]


def entropy(probabilities: Sequence[float]) -> float:
    """Entropy (nats) of the probabilities after scaling them to sum to 1."""
    total = math.fsum(probabilities)
    shares = [value / total for value in probabilities if value > 0] if total > 0 else []
    return abs(math.fsum(-share * math.log(share) for share in shares))
