"""The answers that the texts of a run give, each a label with an estimate and certain bounds.

Texts that are the same by a rule, or of which a chosen part is (`eab.analysis.answer_rules`), give
one answer: a label of these texts (`eab.analysis.labels`). The probabilities of the texts seen are
known; their sum is `explored`. An answer has at least the
probability of its own texts, and at most 1 - explored more. These bounds hold for every policy and
every seed, up to the rounding of the model's log-probabilities.

Everything here is about the processed distribution (after temperature and filters) and about texts
of at most max_new_tokens tokens. No model is needed.
"""

import codecs
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eab import token_text
from eab.analysis.answer_rules import (
    AFTER_THINKING,
    SENTENCE,
    TEXT,
    GivenPart,
    SameAnswer,
    exact,
    first_sentence,
    grouped,
    part_of,
    reader,
)
from eab.analysis.labels import (
    KnownText,
    Label,
    Labelling,
    Labels,
    certain_winner,
    known_texts,
    labels_of,
    place_of,
)
from eab.config import MAX_LABEL
from eab.formatting import shortened
from eab.run import RunState, Token, largest_first, log_prob_of
from eab.run.events import LabelRule
from eab.run.events.chat import end_of_thinking

_DECODER: Final = codecs.getincrementaldecoder("utf-8")
NO_ANSWER: Final = "(no answer)"  # the answer of texts in which a pattern finds nothing


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """The answer of one text."""

    known: KnownText
    count: int  # how many tokens of the text decide the answer
    text: str
    matched: bool = True  # whether the text has an answer; if not, `text` is NO_ANSWER

    @property
    def weight(self) -> float:
        """The weight of its text in the run itself."""
        return self.known.weight if self.known.seed is None else 0.0

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens that decide the answer."""
        return self.known.ids[: self.count]

    @property
    def log_prob(self) -> float | None:
        """Sum over these tokens, in nats; None if one is not known."""
        return log_prob_of(self.known.tokens[: self.count])


@dataclass(frozen=True, slots=True)
class Answer(Label):
    """Texts with the same answer, as a label. Its name is the wording of the text with the most
    weight; its estimate counts a drawn token for all that were not followed.
    """

    leaves: tuple[int, ...] = ()  # ids of the paths with this answer
    texts: int = 0  # how many texts have it, explored ones and those of other seeds included
    matched: bool = True  # False for NO_ANSWER, which groups all texts without a match


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers of a run."""

    # The most probable first, by what is certain: by `low`, then by estimate. For independent
    # texts, by low + estimate * (1 - explored): their shares say where unseen texts are.
    ranked: tuple[Answer, ...]
    undecided: tuple[int, ...]  # leaves of a stopped run whose answer is not complete
    explored: float  # probability (0 to 1) of all texts seen
    # The answers of the other leaves, in order of birth
    decided: Mapping[int, TextAnswer] = field(default_factory=dict)
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
        first = certain_winner([answer.low for answer in self.ranked], 1.0 - self.explored)
        return None if first is None else self.ranked[first]


def group_answers(
    run: RunState, part: GivenPart | Callable[[str], str | None] = TEXT, same: SameAnswer = exact
) -> Answers:
    """The answers of a run: of its leaves, of explored texts, and of the texts of other seeds.

    Args:
        part: Which part of a text is its answer: the whole `text`, its first `sentence`, the text
            `after-thinking` (after the last end of thinking, such as `</think>`, by the markers
            that the chat template names, or else by those of the common families; all of it if
            there is none; a thought that is not closed is undecided), the one group of a regular
            expression's first match, given as `re.compile(...)` or as `regex:PATTERN`, which type
            checkers accept from `check_part`, or what a function of the whole text returns. A
            sentence ends at a line break, or where `sentencex` finds its end (see
            `eab.analysis.answer_rules`).
        same: The rule that decides whether two texts are the same answer.

    Raises:
        ConfigError: The part is unknown, or its pattern is wrong or takes too long.
    """
    found = text_answers(run, part)
    answers = [answer for _, answer in found if answer is not None]
    heaviest_first = [answers[at] for at in largest_first([each.weight for each in answers])]
    numbers = answer_numbers(run.started.prompt, heaviest_first, same)
    groups: defaultdict[str, list[TextAnswer]] = defaultdict(list)
    for number, answer in zip(numbers, heaviest_first, strict=True):
        groups[str(number)].append(answer)
    labels = labels_of([run], _labelling(groups))
    leaves = [(text.leaf, answer) for text, answer in found if text.leaf and text.in_estimate]
    undecided = [leaf for leaf, answer in leaves if answer is None]
    return Answers(
        _ranked(run, labels, groups),
        tuple(leaf.id for leaf in undecided),
        1.0 - labels.unexplored,
        {leaf.id: answer for leaf, answer in leaves if answer is not None},
        math.fsum(leaf.weight for leaf in undecided),
        run.started.config.max_new_tokens * math.log(run.started.model.vocab_size),
    )


def _labelling(groups: Mapping[str, Sequence[TextAnswer]]) -> Labelling:
    """Labels each text with the number of its answer, from the token on that decides it."""
    labels = {
        answer.known.ids: (answer.count, number)
        for number, answers in groups.items()
        for answer in answers
    }
    return Labelling(tuple(groups), lambda _, text: labels.get(text.ids))


def _ranked(
    run: RunState, labels: Labels, groups: Mapping[str, Sequence[TextAnswer]]
) -> tuple[Answer, ...]:
    answers = [_answer(label, groups[label.name]) for label in labels]
    answers = [answers[at] for at in largest_first([answer.estimate for answer in answers])]
    unseen = labels.unexplored if run.started.config.policy == "independent" else 0.0
    known = [answer.low + unseen * answer.estimate for answer in answers]
    return tuple(answers[at] for at in largest_first(known))


def _answer(label: Label, members: Sequence[TextAnswer]) -> Answer:
    leaves = [each.known.leaf for each in members if each.known.in_estimate]
    return Answer(
        token_text.encodable(members[0].text.strip()),
        label.estimate,
        label.low,
        label.high,
        label.standard_error,
        tuple(leaf.id for leaf in leaves if leaf is not None),
        len(members),
        members[0].matched,
    )


def marks_of_answers(run: RunState, answers: Answers, most: int) -> tuple[LabelRule, ...]:
    """Marks that label the tree with its most likely answers, at the tokens that decide them."""
    names = list[str]()
    for answer in answers.ranked[:most]:
        words = token_text.visible(answer.name) or "(nothing)"
        name = shortened(words, MAX_LABEL)
        if name in names:  # it begins like another answer
            number = f" ({len(names) + 1})"
            name = f"{shortened(words, MAX_LABEL - len(number))}{number}"
        names.append(name)
    places = {
        place_of(run, leaf, answers.decided[leaf].count): name
        for name, answer in zip(names, answers.ranked, strict=False)
        for leaf in answer.leaves
    }
    return tuple(
        LabelRule(name, "mark", path=path, token=token) for (path, token), name in places.items()
    )


def text_answers(
    run: RunState, part: GivenPart | Callable[[str], str | None] = TEXT
) -> list[tuple[KnownText, TextAnswer | None]]:
    """Each known text of a run and its answer, None if that is not complete."""
    read = part if callable(part) else reader(part_of(part))
    named = {SENTENCE: _first_sentence, AFTER_THINKING: _after_thinking}
    own = named.get(part) if isinstance(part, str) else None
    texts = known_texts(run)
    return [(each, own(run, each) if own else _answer_in(each, read)) for each in texts]


def _first_sentence(run: RunState, known: KnownText) -> TextAnswer | None:
    tokens = known.tokens
    # before any stop string cut it; a character that is not complete is not read
    raw = b"".join(token_text.to_bytes(token.text) for token in tokens if not token.special)
    text = _DECODER("surrogateescape").decode(raw)
    if found := first_sentence(text, whole=False):
        count = _tokens_that_decide(tokens, text, found, run.started.config.stop)
        if count is not None and not (known.cut and count == len(tokens)):
            return _text_answer(known, count, text[: found[0]])
    if known.text is None:
        return None
    found = first_sentence(known.text, whole=True)
    return _text_answer(known, len(tokens), known.text[: found[0]] if found else known.text)


def _after_thinking(run: RunState, known: KnownText) -> TextAnswer | None:
    text = token_text.exact(token.text for token in known.tokens)
    prompt = token_text.join(run.started.prompt_texts)
    start = end_of_thinking(prompt, text, run.started.model.thinking)
    if known.text is None or start is None:
        return None
    left, kept = len(token_text.to_bytes(text[:start])), b""
    for token in known.tokens:
        raw = token_text.to_bytes(token.text)
        kept += b"" if token.special else raw[max(0, left) :]
        left -= len(raw)
    answer = token_text.from_bytes(kept[: max(0, len(kept) - known.cut)])
    return _text_answer(known, len(known.tokens), answer)


def _answer_in(known: KnownText, read: Callable[[str], str | None]) -> TextAnswer | None:
    if known.text is None:
        return None
    return _text_answer(known, len(known.tokens), read(known.text))


def _text_answer(known: KnownText, count: int, text: str | None) -> TextAnswer:
    return TextAnswer(known, count, NO_ANSWER if text is None else text, text is not None)


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


def answer_numbers(
    question: str, decided: Sequence[TextAnswer], same: SameAnswer = exact
) -> list[int]:
    """For each text, the number of its answer; same answer, same number; -1 for no answer."""
    numbers = iter(grouped(question, [leaf.text for leaf in decided if leaf.matched], same))
    return [next(numbers) if leaf.matched else -1 for leaf in decided]


def entropy(probabilities: Sequence[float]) -> float:
    """Entropy (nats) of the probabilities after scaling them to sum to 1."""
    total = math.fsum(probabilities)
    shares = [value / total for value in probabilities if value > 0] if total > 0 else []
    return abs(math.fsum(-share * math.log(share) for share in shares))
