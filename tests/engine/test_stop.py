"""A path ends where its text first contains a stop string, and what is cut off is never shown."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import StringIO
from itertools import cycle
from typing import Any, get_args

import pytest
from equality import PROMPT, assert_same_decisions
from made_runs import events_of, run_of
from page_data import data_of
from policies import EVERY
from rich.console import Console

from eab import token_text
from eab.analysis.answers import group_answers
from eab.board.still import pieces
from eab.cli import terminal
from eab.config import BranchingConfig, DrafterName
from eab.engine.what_if.resimulate import resimulate
from eab.figures.tables import samples_of_runs_table, samples_table
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, Sample, fold
from eab.run.events import KvMeasured, PathFinished
from eab.share.exports import to_graphml, to_html

STOP = (" 1 2", "3 3")  # each spans two tokens
CONFIG = BranchingConfig(
    entropy_threshold=0.2, branch_factor=2, max_paths=256, max_new_tokens=7, stop=STOP
)
GREEDY = BranchingConfig(policy="greedy", max_paths=1, max_new_tokens=7)
DRAFTERS = [name for name in get_args(DrafterName) if name not in ("none", "run-ahead")]


@pytest.fixture
def table() -> TableModel:
    return TableModel(random_table(3, 5), stop_ids=[4])


def texts_of(sample: Sample) -> tuple[str, ...]:
    return tuple(token.text for token in sample.tokens)


def cut(tokens: tuple[int, ...], texts: tuple[str, ...]) -> tuple[tuple[int, ...], str]:
    """Search the whole text at every token. Return the tokens up to the end of the first stop
    string, and the text before it; token 4 is a control token.
    """
    for count in range(1, len(tokens) + 1):
        text = "".join(
            text for token, text in zip(tokens[:count], texts, strict=False) if token != 4
        )
        places = [text.find(stop) for stop in STOP if stop in text]
        if places:
            return tokens[:count], text[: min(places)]
    return tokens, "".join(text for token, text in zip(tokens, texts, strict=True) if token != 4)


def weights(run: RunState) -> dict[Any, float]:
    found: defaultdict[Any, float] = defaultdict(float)
    for sample in run.samples:
        found[cut(sample.token_ids, texts_of(sample))] += sample.weight
    return dict(found)


@pytest.mark.parametrize("policy", ["fair", "greedy", "independent", "arithmetic"])
@pytest.mark.parametrize("seed", range(2))
def test_the_tree_is_the_one_without_stop_strings_cut_at_them(table, policy, seed) -> None:
    stopped, plain = (
        run_of(table, "0 1", CONFIG, policy=policy, seed=seed, stop=stop) for stop in (STOP, ())
    )
    assert weights(stopped) == pytest.approx(weights(plain))
    found = {(one.token_ids, one.text) for one in stopped.samples}
    assert found == set(weights(plain))
    if policy != "greedy":
        ends = {
            one.finish_reason
            for one in stopped.samples
            if cut(one.token_ids, texts_of(one))[1] != "".join(texts_of(one))
        }
        assert ends == {"stop"}
        assert len(plain.samples) > len(stopped.samples) or policy != "fair"


@pytest.fixture(scope="module")
def stopped_run(twins) -> Callable[[str], RunState]:
    """stopped_run(policy) -> a run without a drafter that stop strings cut."""

    @cache
    def made(policy: str) -> RunState:
        model = twins("llama").ours
        settings = {"entropy_threshold": 2.0, "max_paths": 6, "max_new_tokens": 24, "seed": 2}
        first = BranchingConfig(policy=policy, **settings)
        text = max((one.text for one in run_of(model, PROMPT, first).samples), key=len)
        stop = (text[len(text) // 2 : len(text) // 2 + 5], text[20:23])
        run = run_of(model, PROMPT, replace(first, stop=stop))
        assert any(path.cut for path in run.paths)
        return run

    return made


@pytest.mark.parametrize(
    ("policy", "drafter"), [*zip([*EVERY, *reversed(EVERY)], cycle(DRAFTERS), strict=False)]
)
def test_a_drafter_changes_no_token(twins, stopped_run, policy, drafter) -> None:
    model, run = twins("llama").ours, stopped_run(policy)
    for length in (0, 1, 5):
        drafts = {"drafter": drafter, "draft_length": length}
        drafted = run_of(model, PROMPT, run.started.config, model, **drafts)
        assert_same_decisions(drafted, run)


@pytest.mark.parametrize("policy", ["fair", "beam", "best-first", "independent"])
def test_a_finished_path_holds_no_rows(table, policy) -> None:
    events = events_of(table, "0 1", CONFIG, policy=policy)
    steps = [event.step for event in events if isinstance(event, PathFinished)]
    assert min(steps) < max(steps)
    for usage in (event.usage for event in events if isinstance(event, KvMeasured)):
        assert usage.rows_private == sum(rows.private for rows in usage.paths)


@pytest.mark.parametrize("threshold", [0.2, 1.1])
def test_what_if_agrees_with_the_engine(table, threshold) -> None:
    what_if = resimulate(events_of(table, "0 1", CONFIG), threshold)
    assert not what_if.unknowns
    found, made = fold(what_if.events), run_of(table, "0 1", CONFIG, entropy_threshold=threshold)
    assert_same_decisions(found, made)
    ends = [[(one.text, one.finish_reason) for one in run.samples] for run in (found, made)]
    assert ends[0] == ends[1]


class Letters(TableModel):
    """Its tokens are letters, half letters, and a control token that does not end the text."""

    texts = ("a", "\udcc3", "\udca9", "b", "<x>")

    def text(self, token: int) -> str:
        return self.texts[token]

    def is_special(self, token: int) -> bool:
        return token == 4


def chain(*tokens: int) -> Letters:
    """A model that produces these tokens after token 0, and then token 0 forever."""
    table = [[[0.0] * 5 for _ in range(5)] for _ in range(8)]
    for step in range(8):
        for row in table[step]:
            row[tokens[step] if step < len(tokens) else 0] = 1.0
    return Letters(table)


@pytest.mark.parametrize(
    ("tokens", "stop", "kept", "count"),
    [
        ((3, 1, 2, 3), "é", "b", 3),  # split between tokens
        ((3, 1, 2, 3), "ébaa", "b", 6),
        ((1, 1, 2), "é", "\ufffd", 3),  # after half a letter that is never completed
        ((3, 4, 3), "bb", "", 3),  # the text of a control token does not count
        ((3, 4, 3), "x", "bbaaaa", 7),
        ((3, 3, 3), "\ufffd", "bbbaaaa", 7),
        ((1, 3, 3), "\ufffd", "\ufffdbbaaaa", 7),  # invalid bytes do not match this character
    ],
)
def test_stop_strings_are_found_in_the_bytes_of_the_text(tokens, stop, kept, count) -> None:
    run = run_of(chain(*tokens), "0", GREEDY, stop=stop)
    [sample] = run.samples
    assert (sample.text, len(sample.token_ids)) == (kept, count)
    assert sample.finish_reason == ("stop" if count < 7 else "length")
    assert token_text.join(token.shown for token in run.paths[0].tokens) == kept


def test_text_that_is_cut_off_is_never_shown(table) -> None:
    run = run_of(table, "0 1", CONFIG, stop=(" 1 2",), seed=1)
    assert any(path.cut and path.tokens[-1].cut < path.cut for path in run.paths)
    for path in run.paths:
        assert " 1 2" not in "".join(pieces(path))
        if path.status == "finished":
            assert " 1 2" not in run.sample(path.id).text
    console = Console(width=200, record=True, file=StringIO())
    console.print(terminal.summary(run))
    shown = [console.export_text(), to_graphml(run).decode(), samples_table(run).to_csv()]
    shown += [samples_of_runs_table([("a", run)])["text"].str.cat(sep="|")]
    shown += [one.name for one in group_answers(run, "text").ranked]
    shown += [text for *_, text in data_of(to_html(run))["texts"]["rows"]]
    assert [text for text in shown if " 1 2" in text] == []


@pytest.mark.parametrize("count", range(1, 6))
def test_a_sentence_is_decided_once_no_stop_string_can_cut_it_off(count: int) -> None:
    model = chain(3, 0, 3, 3, 3)
    model.texts = ("a!", "", "", "B", "<x>")
    config = replace(GREEDY, max_new_tokens=5)
    events = events_of(model, "0", config, stop=("a!BBB", "x"))
    assert [one.name for one in group_answers(fold(events), "sentence").ranked] == ["B"]
    steps = [one for one in events if getattr(one, "step", -1) < count]
    begun = group_answers(fold(steps), "sentence")
    assert not begun.ranked or count == 5
    free = run_of(model, "0", config, stop=("a!BBx",))
    [answer] = group_answers(free, "sentence").decided.values()
    assert (answer.text, answer.tokens) == ("Ba!", (3, 0, 3, 3, 3)[:5])
