"""Answers: what counts as the same answer, groups that partition the leaves, valid bounds, and
unbiased estimates.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_runs import CARD, WORDS, appended, invented_run, predicted
from made_runs import run_of
from policies import FORKING
from saying_model import exact_answers, flat_run, saying_model

from eab.analysis.answer_rules import RULES, check_part, first_sentence, grouped, normalised, reader
from eab.analysis.answers import Answers, entropy, group_answers, marks_of_answers
from eab.analysis.label_rules import labelled
from eab.config import BranchingConfig
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold, largest_first
from eab.run.events import Event, Labelled, PathFinished, RunStarted
from eab.token_text import from_bytes, to_bytes

SLACK = 1e-9  # for sums of float64 logarithms
TREES = 400
ROUNDING = 3e-5  # weights come from probabilities with six decimals
NOISE = 4.5  # standard errors: by chance alone, ten comparisons pass with probability 0.9999


def test_equal_answers_add_up_and_bounds_come_from_the_probabilities_seen() -> None:
    texts = [("Rome", 0.2, 0.1, True), ("Paris", 0.3, 0.4, True)]
    texts += [(" paris.", 0.4, 0.3, True), ("Par", 0.1, 0.1, False)]
    answers = group_answers(flat_run(texts))
    first, second = answers.ranked
    assert (first.name, second.name) == ("paris.", "Rome")  # the heaviest leaf names its group
    assert answers.unfinished == pytest.approx(0.1)
    assert first.leaves == (3, 2)
    assert (first.estimate, first.low, first.high) == pytest.approx((0.7, 0.7, 0.9))
    assert (second.estimate, second.low, second.high) == pytest.approx((0.2, 0.1, 0.3))
    assert answers.explored == pytest.approx(0.8)
    assert answers.undecided == (4,)
    assert answers.winner is first
    run = flat_run([])
    run.paths.clear()
    empty = group_answers(run)
    assert empty == Answers((), (), 0.0, log_texts=empty.log_texts)
    assert empty.winner is None
    assert empty.entropy_bounds == (0.0, 64 * math.log(CARD.vocab_size))


@pytest.mark.parametrize(
    ("probabilities", "open_ones", "wins"),
    [
        ([0.5], [], True),
        ([0.49], [], False),
        ([0.5, 0.3], [], True),
        ([0.45, 0.3], [], False),
        ([0.45, 0.25, 0.2], [], True),
        ([0.45, 0.25], [0.2], False),
    ],
)
def test_a_winner_must_beat_the_unseen_probability_too(probabilities, open_ones, wins):
    seen = [*((one, True) for one in probabilities), *((one, False) for one in open_ones)]
    texts = [(name, 1 / len(seen), *one) for name, one in zip("xyz", seen, strict=False)]
    assert (group_answers(flat_run(texts)).winner is not None) == wins


@pytest.mark.parametrize(
    ("policy", "texts", "ranked"),
    [
        # the drawn child carries the weight of all unseen tokens
        ("fair", [("three", 0.6, 0.15), ("four", 0.25, 0.25), ("two", 0.15, 0.15)], "four"),
        # equal but for rounding: by weight, then by birth
        ("fair", [("b", 0.3, 0.3), ("a", 0.3, 0.3 * (1 + 1e-12)), ("c", 0.3, 0.2)], "b"),
        # long texts: how often an answer came says more than the probability of one wording
        ("independent", [("x", 0.2, 1e-6)] * 2 + [("y", 0.4, 1e-5)], "y"),
        ("independent", [("x", 0.3, 1e-6), ("x.", 0.3, 1e-6), ("y", 0.4, 1e-5)], "x"),
        ("independent", [("x", 0.6, 0.3), ("y", 0.4, 0.5)], "y"),
        # a text that ends inside a character
        ("fair", [("\udcf0\udc9f", 0.6, 0.6), ("\udcf0\udc9f\udc99\udc82", 0.4, 0.4)], "⟨F0⟩⟨9F⟩"),
    ],
)
def test_the_answer_is_the_most_probable_one_by_what_is_known(policy, texts, ranked):
    answers = group_answers(flat_run([(*one, True) for one in texts], policy))
    assert answers.ranked[0].name == ranked
    assert all(one.low <= one.estimate <= one.high for one in answers.ranked)
    assert len(answers.ranked) == len({normalised(name) for name, *_ in texts})


def chain_run(pieces: Sequence[str], ended: bool = False) -> RunState:
    """A run of one path with these tokens, each with probability one half."""
    events: list[Event] = [RunStarted("p", (0,), ("p",), CARD, BranchingConfig(), 1.0)]
    for step, piece in enumerate(pieces):
        events += [predicted(step, 0, 0.1), appended(step, 0, step, piece, math.log(0.5))]
    return fold([*events, PathFinished(len(pieces) - 1, 0, "length")] if ended else events)


@pytest.mark.parametrize(
    ("pieces", "sentence", "tokens"),
    [
        ([" heads", ".", " Then", " we"], "heads.", 4),  # the next word is complete
        ([" It", " is", " 3", ".5", " feet", ".", " A", " b"], "It is 3.5 feet.", 8),
        ([" 42", ".", " So", " I"], "42.", 4),
        (["\n", " yes", "\n", "no"], "yes", 3),
        ([' "go', '!"', " He"], '"go!"', 3),
        ([" U", ".S", ". president", " won", ". A", " b"], "U.S. president won.", 6),
        (["\udce5\udca5", "\udcbd", "\n", "x"], "好", 3),
        (["1", ".", " Red", "\n", "2", "."], "1. Red", 4),  # a list item, not the answer 1
        (["1", ".", "\n", "2"], "1.", 3),
    ],
)
def test_a_sentence_is_decided_once_its_last_token_is_there(pieces, sentence, tokens):
    [answer] = group_answers(chain_run(pieces), "sentence").ranked
    assert answer.name == sentence
    assert answer.low == pytest.approx(0.5**tokens)
    for begun in ([" heads"], [" 42", "."]):  # undecided until the text has ended
        assert group_answers(chain_run(begun), "sentence").undecided == (0,)
        [answer] = group_answers(chain_run(begun, ended=True), "sentence").ranked
        assert answer.name == "".join(begun).strip()


@given(
    st.integers(0, 500),
    st.integers(0, 20),
    st.integers(1, 12),
    st.floats(0, 1),
    st.sampled_from(["text", "sentence"]),
)
def test_groups_partition_the_leaves(seed, steps, paths, until, part):
    events = invented_run(seed, steps, paths, [*WORDS, "!", " 1", "\udce2", "\x00"])
    run = fold(events[: max(1, int(until * len(events)))])
    answers = group_answers(run, part)
    grouped = [leaf for answer in answers.ranked for leaf in answer.leaves]
    assert sorted([*grouped, *answers.undecided]) == sorted(leaf.id for leaf in run.leaves())
    assert len({normalised(answer.name) for answer in answers.ranked}) == len(answers.ranked)
    assert math.fsum(answer.estimate for answer in answers.ranked) <= 1 + 1e-9
    for one in answers.ranked:
        assert 0 <= one.low <= one.estimate + 1e-12
        assert one.estimate <= one.high + 1e-12 <= 1 + 1e-12
    assert answers.ranked[:1] == tuple(
        one for one in answers.ranked[:1] if one.low >= max(x.low for x in answers.ranked) * 0.999
    )
    low, high = answers.entropy_bounds
    assert 0 <= low <= high + 1e-12


@settings(max_examples=60)
@given(
    chain=st.integers(0, 10**6),
    concentration=st.sampled_from([0.05, 0.3, 1.0]),
    config=st.builds(
        BranchingConfig,
        entropy_threshold=st.floats(0.0, 1.5),
        max_paths=st.integers(1, 20),
        max_new_tokens=st.integers(1, 4),
        policy=st.sampled_from([*FORKING, "greedy"]),
        seed=st.integers(0, 2**31),
    ),
)
def test_the_exact_values_lie_within_the_bounds_for_every_policy(chain, concentration, config):
    model = saying_model(chain, concentration)
    answers = group_answers(run_of(model, "0", config))
    exact = exact_answers(model, config.max_new_tokens)
    for answer in answers.ranked:
        assert answer.low - SLACK <= exact[normalised(answer.name)] <= answer.high + SLACK
    if answers.winner is not None:
        assert exact[normalised(answers.winner.name)] >= max(exact.values()) - SLACK
    low, high = answers.entropy_bounds
    assert low - 1e-6 <= entropy(list(exact.values())) <= high + 1e-6


# Bytes of which some end sentences, some are joined to characters, and some make the rules differ
PIECES = [
    [bytes([byte]) for byte in "好。. A\n".encode()],
    [bytes([byte]) for byte in "é n5!\n".encode()],
    [b" reykjav", b"\xc3", b"\xad", b"i", b"k", b" is", b"."],
]


class ByteModel(TableModel):
    """A table model whose tokens are bytes; the last token ends the text."""

    def __init__(self, pieces: Sequence[bytes], seed: int) -> None:
        super().__init__(random_table(seed, len(pieces) + 1, 0.3), stop_ids=[len(pieces)])
        self.pieces = pieces

    def text(self, token: int) -> str:
        return "" if token in self.stop_ids else from_bytes(self.pieces[token])


def cut_at(text: str, stop: tuple[str, ...]) -> str:
    return text[: min((place for each in stop if (place := text.find(each)) >= 0), default=None)]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    pieces=st.sampled_from(PIECES),
    part=st.sampled_from(
        ["text", "sentence", "after-thinking", r"regex:(\w+)", r"regex:(.)\.", "regex:(?s)(.+)A"]
    ),
    rule=st.sampled_from(sorted(RULES)),
    stop=st.sampled_from([(), ("\n",), ("。",), (" A", "A\n")]),
    paths=st.integers(1, 12),
)
def test_bounds_are_certain_for_tokens_of_single_bytes(seed, pieces, part, rule, stop, paths):
    length = 4
    model = ByteModel(pieces, seed)
    config = BranchingConfig(
        entropy_threshold=0.0, max_paths=paths, max_new_tokens=length, stop=stop, seed=seed
    )
    run = run_of(model, "0", config)
    same = RULES[rule]
    answers = group_answers(run, check_part(part), same)
    assert math.fsum(answer.low for answer in answers.ranked) <= 1 + SLACK
    assert math.fsum(answer.high for answer in answers.ranked) >= 1 - SLACK
    # The answer of each whole text, independent of the tokens that decide it, joins the first
    # group whose first text is the same.
    exact: dict[str | None, float] = defaultdict(float)
    for tokens, mass in model.all_texts(0, length):
        raw = b"".join(to_bytes(model.text(token)) for token in tokens)
        exact[answer_of(cut_at(from_bytes(raw), stop), part)] += mass
    matched = [(leaf, one) for leaf, one in answers.decided.items() if one.matched]
    matched = [matched[at] for at in largest_first([one.weight for _, one in matched])]
    texts = [one.text for _, one in matched]
    number_of = dict(zip((leaf for leaf, _ in matched), grouped("0", texts, same), strict=True))
    masses: dict[int | None, float] = defaultdict(float)
    for text, mass in exact.items():
        masses[None if text is None else grouped("0", [*texts, text], same)[-1]] += mass
    for answer in (each for each in answers.ranked if each.leaves):
        known = masses[number_of.get(answer.leaves[0])]
        assert answer.low - SLACK <= known <= answer.high + SLACK


def answer_of(text: str, part: str) -> str | None:
    if part != "sentence":
        found = reader(check_part(part))(text)
        return None if found is None else found.strip()
    found = first_sentence(text, whole=True)
    return (text[: found[0]] if found else text).strip()


# The first sentence of each text, before the line
SENTENCES = """
J. K. Rowling wrote it.| Then
J. R. R. Tolkien wrote it.| Then
The U.S. president won.| He
Dr. Smith went.| He
Use e.g. dogs.| Or cats
Das sind z. B. Hunde.| Und
А. С. Пушкин.| Он
He said "Yes. I do."| Then
See example.com.| Then
はい。|いいえ。
हाँ।| नहीं।
"""


@pytest.mark.parametrize("text", SENTENCES.strip().splitlines())
def test_an_abbreviation_does_not_end_a_sentence(text: str) -> None:
    assert answer_of(text.replace("|", ""), "sentence") == text.split("|")[0]


@given(st.text("aT. \n!\"'(。B1"), st.text("aT. \n!\"'(。B1"))
def test_no_continuation_moves_the_end_of_a_sentence(text: str, more: str) -> None:
    found = first_sentence(text, whole=False)
    if found:
        assert first_sentence(text[: found[1]], whole=False) == found
        for whole in (False, True):
            assert first_sentence(text + more, whole=whole) == found


def test_answers_that_begin_alike_are_different_labels() -> None:
    long = "Anna, and the cake was eaten by the dog, "
    run = flat_run([(f"{long}{end}", 0.3, 0.2, True) for end in ("so", "but", "and")])
    marks = marks_of_answers(run, group_answers(run), 2)
    assert [len(mark.label) for mark in marks] == [40, 40]
    assert len({mark.label for mark in marks}) == 2
    run.apply(Labelled(1, marks))
    assert [label.low for label in labelled(run, marks)] == pytest.approx([0.2, 0.2])
