"""The part of a text that is its answer: a bad or slow pattern is refused with an explanation. And
what counts as the same answer under each rule, for a table of pairs judged by hand.
"""

import itertools
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saying_model import flat_run

from eab.analysis import answer_rules
from eab.analysis.answer_rules import RULES, check_part, exact, grouped, normalised, reader
from eab.analysis.answers import NO_ANSWER, entropy, group_answers
from eab.analysis.uncertainty import attribute_to_forks, semantic_entropy_of_runs, uncertainty
from eab.errors import ConfigError
from eab.run import RunState
from eab.run.events.chat import end_of_thinking, markers_in


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Hm. 3?</think>\nParis", "Paris"),
        ("Hm.</think>no</think> Paris", "Paris"),
        ("Paris", "Paris"),
        ("<think>still", None),
        ("Hm.</think>", ""),
        ("[THINK]Hm.[/THINK]Paris", "Paris"),
        ("<seed:think>Hm.</seed:think>Paris", "Paris"),
        ("◁think▷Hm.", None),
        ("<|channel|>analysis<|message|>Hm.", None),
        ("<|START_THINKING|>Hm.<|END_THINKING|>Paris", "Paris"),
        ("<|begin_of_thought|>Hm.", None),
    ],
)
def test_the_answer_follows_the_last_thought_and_waits_for_its_end(text, answer):
    answers = group_answers(flat_run([(text, 1.0, 0.5, True)]), "after-thinking")
    assert [each.name for each in answers.ranked] == ([] if answer is None else [answer])
    assert answers.undecided == (() if answer is not None else (1,))
    for prompt, start in (("A<think>\n", None), ("<think> is a tag", 0)):  # a template may open it
        assert end_of_thinking(prompt, "Hm. It") == start
        assert end_of_thinking(prompt, "Hm.</think>It") == 11


HARMONY = "<|channel|>analysis<|message|>"


@pytest.mark.parametrize(
    ("template", "opened", "closed"),
    [
        ("{{ content.split('</think>')[-1] }}", "<think>", "</think>"),
        ("[THINK]{{ x }}[/THINK]", "[THINK]", "[/THINK]"),
        ("<reasoning>", "<reasoning>", "</reasoning>"),
        (HARMONY, HARMONY, HARMONY.replace("analysis", "final")),
        ("<|begin_of_thought|>", "<|begin_of_thought|>", "<|end_of_thought|>"),
    ],
)
def test_only_the_markers_that_a_template_names_count(template, opened, closed) -> None:
    named = markers_in(template)
    assert end_of_thinking("", f"{opened}Hm.", named) is None
    assert end_of_thinking(f"A{opened}\n", "Hm.", named) is None
    assert end_of_thinking("", f"{opened}Hm.{closed}It", named) == len(f"{opened}Hm.{closed}")
    assert end_of_thinking("", "The tag <thinking> opens it", named) == 0
    assert markers_in("{{ message['reasoning_content'] }}") == ()


PATTERNS = [r"(\d)", r"a(b*)", r"^(?P<word>\w+) ", r"(?:a|b)(1?)", r"(a1)|b"]


@given(st.text("ab1 "), st.sampled_from(PATTERNS))
def test_a_pattern_matches_as_in_the_module_re(text: str, pattern: str) -> None:
    found = re.search(pattern, text)
    assert reader(f"regex:{pattern}")(text) == (found[1] if found else None)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("word", "grouped by 'word'; it must be one of: text, sentence, after-thinking"),
        ("regex:(", "'(' is not a regular expression"),
        ("regex:", "has 0 groups; it must have exactly one"),
        ("regex:(a)(b)", "has 2 groups; it must have exactly one"),
        ("regex:" + "(" * 400, "is not a regular expression"),
        ("regex:" + "x" * 501, "the pattern has 501 characters; at most 500 are allowed"),
    ],
    ids=lambda value: value[:20],
)
def test_an_invalid_part_is_refused_with_an_explanation(part: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_part(part)
    assert why in str(error.value)
    assert len(str(error.value)) < 400


def test_a_pattern_that_takes_too_long_is_refused_in_time(monkeypatch) -> None:
    monkeypatch.setattr(answer_rules, "MOST_SECONDS", 0.3)
    texts = ["a" * 60 + f"!{number}" for number in range(50)]
    run = flat_run([(text, 0.02, 0.02, True) for text in texts])
    start = time.process_time()
    with pytest.raises(ConfigError, match=r"takes more than 0\.3 s"):
        group_answers(run, r"regex:^(?:a|aa)+(\d)$")
    assert time.process_time() - start < 3


@pytest.mark.parametrize(("flags", "letters"), [(0, ""), (re.I, "(?i)"), (re.I | re.X, "(?ix)")])
def test_a_compiled_pattern_keeps_its_flags(run, flags, letters):
    given = group_answers(run, re.compile(r"IT IS (\w+)", flags))
    assert given == group_answers(run, check_part(rf"regex:{letters}IT IS (\w+)"))
    assert len({answer.name for answer in given.ranked} - {"(no answer)"}) == (flags == re.I)


def test_an_unknown_part_is_refused_and_a_pattern_may_match_the_whole_text(run: RunState) -> None:
    with pytest.raises(ConfigError, match=r"answers are grouped by re\.compile"):
        group_answers(run, re.compile(b"(x)"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'paragraph'; it must be one of: text, sentence"):
        group_answers(run, "paragraph")
    assert group_answers(run, "regex:(?s)(.*)") == group_answers(run, "text")
    assert group_answers(run, "after-thinking") == group_answers(run, "text")


@pytest.fixture
def run() -> RunState:
    return flat_run(
        [
            ("It is Rome.", 0.3, 0.2, True),
            ("I say it is Rome", 0.2, 0.1, True),
            ("It was Paris", 0.3, 0.3, True),
            ("(no answer) is (no answer)", 0.1, 0.1, True),
            ("It is Ro", 0.1, 0.1, False),
        ]
    )


def test_texts_without_a_match_form_a_separate_answer(run: RunState) -> None:
    answers = group_answers(run, r"regex:is (\(no answer\)|\w+)")
    found = {(one.name, one.matched): (one.estimate, one.low, one.high) for one in answers.ranked}
    assert found == {
        ("Rome", True): pytest.approx((0.5, 0.3, 0.6)),
        (NO_ANSWER, False): pytest.approx((0.3, 0.3, 0.6)),
        (NO_ANSWER, True): pytest.approx((0.1, 0.1, 0.4)),
    }
    assert len(answers.undecided) == 1
    parts = sum(fork.contribution for fork in attribute_to_forks(run, answers))
    assert uncertainty(run, answers).semantic == pytest.approx(parts)
    whole = semantic_entropy_of_runs([run], r"regex:is (\(no answer\)|\w+)")
    assert whole.value == pytest.approx(entropy([0.5, 0.3, 0.1]))


CAPITAL = "What is the capital of France?"
LEGS = "How many legs does a spider have?"
TALLER = "Who is taller, Tom or Ann?"

# The question, two texts, whether they mean the same, and the rules by which they do
PAIRS = [
    (CAPITAL, "Paris", " paris. ", True, "exact spelling content"),
    (CAPITAL, "Paris", "Lyon", False, ""),
    (CAPITAL, "Paris is the capital of France", "The capital of France is Paris.", True, "content"),
    (CAPITAL, "It isn't Paris.", "It is Paris.", False, ""),
    (CAPITAL, "France", "The capital", False, ""),
    ("Which animal is not a bird?", "A dog is not a bird.", "A dog is a bird.", False, ""),
    (LEGS, "A spider has eight legs.", "8 legs", True, "content"),
    (LEGS, "A spider has eight legs.", "A spider has six legs.", False, ""),
    (LEGS, "A spider has no legs.", "A spider has legs.", False, ""),
    ("How many hours are in a day?", "twenty-four", "24", True, "content"),
    ("How many hours are in a day?", "twenty, four", "20", False, ""),
    ("What is 2 + 3?", "5", "2", False, ""),
    ("What is 2 + 3?", "It is 5.", "-5", False, ""),
    ("How much is it?", "15 dollars", "25 dollars", False, ""),
    ("How long is it?", "1.5", "15", False, ""),
    (TALLER, "Tom is taller than Ann.", "Ann is taller than Tom.", False, ""),
    ("Who came?", "He came.", "She came.", False, ""),
    ("What did Tom do?", "Tom won.", "Tom lost.", False, ""),
    ("Where is it?", "in the box", "on the box", False, ""),
    ("How is he?", "He is happy.", "He is not happy.", False, ""),
    ("Which capital?", "Ulaanbaatar", "Ulanbaatar", True, "spelling"),
    ("Which capital?", "Reykjavík", "Reykjavik", True, "spelling"),
    ("Which country?", "Niger", "Nigeria", False, ""),
    ("Which country?", "Slovenia", "Slovakia", False, ""),
    ("What is it?", "a desert", "a dessert", False, ""),
    ("What is it?", "a friend", "a fiend", False, ""),
    ("Can it be?", "It is possible.", "It is impossible.", False, ""),
    ("How much?", "8 millions", "8 billions", False, ""),
    ("Which flight?", "flight12345", "flight12346", False, ""),
    # The same meaning in other words: no rule detects it, so the answers stay separate.
    ("What did the dog do?", "The dog ran away.", "The hound escaped.", True, ""),
    ("What did he do?", "He went home and slept.", "He slept at home.", True, ""),
]


@pytest.mark.parametrize(("question", "one", "other", "alike", "rules"), PAIRS)
def test_the_rules_decide_pairs_judged_by_hand_as_listed(question, one, other, alike, rules):
    found = [name for name, same in RULES.items() if same(question, one, other)]
    assert found == rules.split()
    assert [name for name, same in RULES.items() if same(question, other, one)] == found
    assert alike or not found, "no rule takes different answers for the same"
    assert RULES["spelling"]("Which word?", "stationary", "stationery"), "similar long words"


# One text, then texts that are other answers; all pairs of a row must differ under every rule.
DIFFERENT = """
10⁵|105|10^5|1e5
x²|x2|x|2x
–7|7|7.5|0.7
4!|4|4?|4!!
(n-1)!|(n-1)|n-1
F#|F|Fb|F##
3*4|3 4|3+4|34|3/4
5'9|59|5 9|5.9
A, C|C|A|A, B, C
A minor|minor|A major
A+|A|A-|A++
C|C++|C#|D
1.5|15|1,5|1/5
$5|5|€5|5%
5%|0.5%|5‰
12:30|1230|12.30|12:03
1/2|12|2/1|1 2
0x10|10|x10
H2O|HO|H2O2|H3O+
Na+|Na|Na-
Nf3|Nf3+|Nf3!|Nf3?|Ng3
5 m|5 mm|5 km|5
10 °C|10 °F|10
a|b|c
?|!
(0, 1]|[0, 1)|(0, 1)|[0, 1]
a_b|ab|a b
.5|5|0.5
~5|5|<5|>5|≈5
√2|2|2√2
user@a.org|user.a.org
#1|1|No. 10
[1]|(1)|1
re-cover|recover
it's|its
"""
ROWS = [row.split("|") for row in DIFFERENT.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids="|".join)
def test_different_answers_stay_different(row: list[str]) -> None:
    for one, other in itertools.combinations(row, 2):
        assert [name for name, same in RULES.items() if same("Which?", one, other)] == []


# All of a line are the same answer.
SAME = """
Paris| paris. |"Paris"|“Paris.”|'Paris'|**Paris**|"Paris
The cat|a  cat!|cat
Don't!|don't|don’t
Rome (Italy)!|Rome (Italy)
What?!|what
U.S.!|U.S.
n!.|n!
是！|是
ﬁne|fine
−3|-3
42.|42|"42"
ok...|OK
东京。|东京
An apple,|the apple
"""


@pytest.mark.parametrize("line", SAME.strip().splitlines())
def test_case_space_closing_marks_quotes_and_articles_are_ignored(line: str) -> None:
    for one, other in itertools.pairwise(line.split("|")):
        assert exact("", one, other)


@given(st.text())
def test_a_normalised_text_has_single_spaces_and_is_empty_only_for_blank_text(text: str) -> None:
    once = normalised(text)
    assert once == " ".join(once.split())
    assert bool(once) == bool(text.strip())


@given(st.text(), st.text(), st.text(), st.sampled_from(sorted(RULES)))
def test_rules_are_symmetric_and_never_narrower_than_exact(question, one, other, name):
    same = RULES[name]
    assert same(question, one, one)
    assert same(question, one, other) == same(question, other, one)
    assert same(question, one, other) or not exact(question, one, other)


def test_a_text_joins_the_first_group_whose_first_text_is_the_same() -> None:
    texts = ["Paris", "Lyon", "The capital of France is Paris.", "lyon!", " paris"]
    assert grouped(CAPITAL, texts) == [0, 1, 2, 1, 0]
    assert grouped(CAPITAL, texts, RULES["content"]) == [0, 1, 0, 1, 0]
    assert grouped(CAPITAL, texts, lambda question, one, other: True) == [0] * 5
    assert grouped(CAPITAL, []) == []
