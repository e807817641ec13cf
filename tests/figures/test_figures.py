"""The tables, the graph and the names of a run have its content, even if it is unfinished."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import invented_run, with_each
from made_runs import bundled, bundled_run, leaves_at, run_of
from msgspec import structs
from places import ROOT

from eab.analysis.answers import Answer, Answers, group_answers
from eab.figures.answers import DRAWN, answers_figure, class_figure
from eab.figures.captions import (
    answers_sentence,
    file_stem,
    has_bounds,
    limit_sentence,
    origin_words,
    sentences_at,
    tree_sentence,
    weight_sentence,
)
from eab.figures.tables import answers_table, samples_table, steps_table, tokens_table
from eab.lessons import bundled_runs
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold
from eab.run.events import Event, LimitActed, StepTimed, TokensAppended
from eab.share.exports import to_graphml, tree_graph


@pytest.fixture(
    scope="module", params=bundled_runs.recordings(), ids=lambda recording: recording.file
)
def events(request: pytest.FixtureRequest) -> tuple[Event, ...]:
    return bundled_runs.events_of(request.param)


@pytest.fixture(scope="module")
def run(events: tuple[Event, ...]) -> RunState:
    return fold(events)


def test_samples_table_has_one_line_per_leaf_and_weights_sum_to_one(run: RunState) -> None:
    table = samples_table(run)
    assert len(table) == len(run.leaves())
    assert table["weight"].sum() == pytest.approx(1)
    # weights that differ by rounding are equal
    assert (table["weight"].diff().dropna() < 1e-6).all()


def test_weights_are_products_of_shares_unless_the_limit_sentence_says_why_not(
    run: RunState,
) -> None:
    forks = [path for path in run.paths if path.status == "forked"]
    for fork in forks:
        assert sum(run.paths[child].share for child in fork.children) == pytest.approx(1)
    products = [
        math.prod(run.paths[path].share for path in run.lineage(leaf.id)) for leaf in run.leaves()
    ]
    multiplied = products == pytest.approx([leaf.weight for leaf in run.leaves()])
    assert multiplied is (limit_sentence(run) == "")


def test_the_limit_sentence_names_the_limit_and_its_steps() -> None:
    model = TableModel(random_table(2, 5))
    limited, few = (
        run_of(model, "0", entropy_threshold=0.0, max_paths=most, max_new_tokens=new)
        for most, new in ((4, 6), (200, 3))
    )
    steps = [step for path in limited.paths for step in path.limited_steps]
    assert limit_sentence(limited).startswith(
        f"The path limit (4) dropped branches from step {min(steps)} to step 5; their weight"
    )
    assert limit_sentence(few) == ""


@pytest.mark.parametrize("part", ["text", "sentence"])
def test_answers_table_and_figure_have_every_answer(run: RunState, part: str) -> None:
    answers = group_answers(run, part)
    table = answers_table(answers)
    assert len(table) == len(answers.ranked)
    assert (table["at_least"] <= table["at_most"]).all()
    certain, estimate = answers_figure(answers).data
    drawn = answers.ranked[:DRAWN]
    assert list(estimate.x) == pytest.approx([100 * answer.estimate for answer in drawn])
    ends = [base + width for base, width in zip(certain.base, certain.x, strict=True)]
    assert ends == pytest.approx([100 * answer.high for answer in drawn])


def test_the_answers_sentence_says_what_is_certain_and_what_is_estimated() -> None:
    run = bundled_run("coin")
    answers = group_answers(run, "sentence")
    sentence = answers_sentence(answers)
    assert "2 answers" in sentence
    assert "(estimated)" in sentence
    assert f"certainly between {answers.ranked[0].low:.1%} and" in sentence
    assert "No other answer can be more likely" in sentence
    nothing = Answers((), (0,), 0.0, unfinished=1.0)
    expected = "No answer yet (1 path without an answer yet, with 100.0% of the weight)."
    assert answers_sentence(nothing) == expected


def test_tokens_table_has_every_token_once(run: RunState) -> None:
    table = tokens_table(run)
    assert len(table) == sum(len(path.tokens) for path in run.paths)
    assert table["probability"].between(0, 1).all()


def test_steps_table_adds_up(run: RunState) -> None:
    table = steps_table(run)
    parts = table["shared_bytes"] + table["private_bytes"] + table["spare_bytes"]
    assert (parts == table["held_bytes"]).all()
    assert (table["milliseconds"] > 0).all()


def test_the_graph_is_a_tree_of_all_paths_and_survives_a_round_trip_as_graphml(
    run: RunState, tmp_path: Path
) -> None:
    graph = tree_graph(run)
    assert len(graph) == len(run.paths)
    assert nx.is_arborescence(graph)
    file = tmp_path / "tree.graphml"
    file.write_bytes(to_graphml(run))
    again = nx.read_graphml(file, node_type=int)
    assert set(again.edges) == set(graph.edges)


def test_labels_of_answers_escape_hostile_text() -> None:
    events = [
        with_each(event, text="<script>alert(1)</script>")
        if isinstance(event, TokensAppended)
        else event
        for event in bundled("bridge")
    ]
    labels = answers_figure(group_answers(fold(events))).layout.yaxis.ticktext
    assert not any("<" in label for label in labels)


def test_every_figure_can_draw_every_prefix_of_a_run() -> None:
    events = bundled("bridge")
    steps = [index + 1 for index, event in enumerate(events) if isinstance(event, StepTimed)]
    for end in (1, *steps[:11]):  # the first one has only the header
        run = fold(events[:end])
        assert len(samples_table(run)) == len(run.leaves())
        tokens_table(run), steps_table(run), tree_graph(run)
        assert weight_sentence(run)
        answers = group_answers(run, "sentence")
        answers_table(answers), answers_figure(answers).to_json()
        assert answers_sentence(answers)


def test_numpy_and_pandas_are_imported_before_plotly_looks_for_them() -> None:
    """Otherwise, a page drawn while the server loads its model could find them half imported."""
    program = "import sys, eab.figures.charts; assert {'numpy', 'pandas'} <= {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@pytest.mark.parametrize("path_dies_first", [True, False])
def test_both_sentences_on_the_path_limit_name_the_same_first_step(path_dies_first: bool) -> None:
    run = bundled_run("recipe")
    limited = min(path.limited_steps[0] for path in run.paths if path.limited_steps)
    leaf = run.paths[-1]
    leaf.status, leaf.touched = "pruned", limited - 1 if path_dies_first else limited + 1
    for path in run.paths[:-1]:
        path.status = "finished" if path.status == "pruned" else path.status
    first = limited - path_dies_first
    assert f" From step {first} on, the path limit (" in tree_sentence(run)
    assert f"dropped branches from step {first} to" in limit_sentence(run)


def test_a_threshold_just_above_the_entropy_is_shown_as_larger() -> None:
    started, *events = invented_run(6, 12, 1)
    highest = max(token.entropy for path in fold([started, *events]).paths for token in path.tokens)
    above = structs.replace(started, threshold_nats=highest + 0.001)
    words = tree_sentence(fold([above, *events]))
    assert words.startswith("No fork: the highest entropy was")
    entropy, threshold = map(float, re.findall(r"\d+\.\d+", words))
    assert highest == pytest.approx(entropy, abs=0.001)
    assert entropy < threshold


def test_the_sentence_says_what_prevented_a_fork_above_the_threshold() -> None:
    started, *events = invented_run(6, 12, 1)
    words = tree_sentence(fold([structs.replace(started, threshold_nats=0.1), *events]))
    assert words.startswith("No fork, although the entropy reached 0.96 nats (threshold 0.10): ")
    assert "the path limit (1) or " in words


def test_the_text_of_a_grown_run_starts_with_the_tokens_that_it_kept() -> None:
    started, *events = invented_run(5, 12, 4)
    run = fold([structs.replace(started, continued=2), *events])
    kept = "".join(started.prompt_texts[-2:])
    assert f"“{kept.strip()}{run.samples[0].text}"[:40] in weight_sentence(run)


@pytest.mark.parametrize("seed", range(4))
def test_the_sentence_of_each_step_counts_the_forks_and_the_leaves_there(seed: int) -> None:
    run = fold(invented_run(seed, 60, 8))
    steps = [*range(len(run.steps))]
    with_forks = 0
    for step, words in zip(steps, sentences_at(run, steps), strict=True):
        forks = sum(path.status == "forked" and path.touched <= step for path in run.paths)
        found = re.match(r"(\d+) forks? in (\d+) steps?: (\d+) paths?\.", words["tree"])
        assert (found is not None) == (forks > 0)
        if found:
            with_forks += 1
            expected = (forks, step + 1, len(leaves_at(run, step)))
            assert tuple(map(int, found.groups())) == expected
    assert with_forks


def test_at_a_fork_the_memory_sentence_describes_the_time_before_the_fork(run: RunState) -> None:
    forked = {path.born for path in run.paths if path.parent >= 0}
    steps = [step for step, each in enumerate(run.steps) if each.kv and each.kv.bytes_held]
    for step, said in zip(steps, sentences_at(run, steps), strict=True):
        assert said["memory"].startswith("Before the fork, ") == (step in forked)


def test_texts_that_the_path_limit_made_equal_are_counted_with_those_seen() -> None:
    model = TableModel(random_table(2, 5))
    run = run_of(model, "0", entropy_threshold=0.0, max_paths=4, max_new_tokens=6)
    assert len({round(leaf.weight, 9) for leaf in run.leaves()}) == 1
    dropped = sum(
        len(one.tokens)
        for event in run.events
        if isinstance(event, LimitActed)
        for one in event.dropped
    )
    pruned = sum(path.status == "pruned" for path in run.paths)
    words = f"4 texts of equal weight, drawn from {4 + dropped + pruned} seen. From step"
    assert words in tree_sentence(run)
    assert "equal weight" not in sentences_at(run, [len(run.steps) - 2])[0]["tree"]


@pytest.mark.parametrize("explored", [0.0, 0.006, 0.0999, 0.1, 1.0])
def test_bounds_that_say_nothing_are_not_given(explored: float) -> None:
    answer = Answer("yes", 0.1, explored / 2, 1 - explored / 2, leaves=(0,))
    answers = Answers((answer, replace(answer, name="no", leaves=(1,))), (), explored)
    says = "certainly between" in answers_sentence(answers)
    assert says is has_bounds(answers) is (explored >= 0.1)
    assert says is not ("fewer new tokens, a pattern" in answers_sentence(answers))


def test_the_bars_of_a_class_carry_the_unit_of_their_axis() -> None:
    for counts in ((0, 0, 0), (1, 2, 0)):
        for bars in class_figure(["a", "b", "c"], counts, [0.5, 0.3, 0.2]).data:
            assert list(bars.text) == [f"{share:.0f}%" for share in bars.y]
            assert sum(bars.y) == pytest.approx(100 if any(bars.y) else 0)


STARTED = bundled_run("coin").started


@given(prompt=st.text(max_size=80))
def test_a_file_name_has_only_letters_digits_and_hyphens(prompt: str) -> None:
    stem = file_stem(structs.replace(STARTED, prompt=prompt))
    assert re.fullmatch(r"([^\W_]+-)+[0-9a-f]{6}", stem)
    assert len(stem) <= 60


def test_the_name_begins_with_the_prompt_and_ends_with_what_is_special_about_the_run() -> None:
    cats = structs.replace(STARTED, prompt="Why do cats purr?")
    assert file_stem(cats).startswith("why-do-cats-purr-")
    assert file_stem(cats) == file_stem(structs.replace(cats))
    other = structs.replace(cats, config=replace(cats.config, seed=cats.config.seed + 1))
    assert file_stem(cats) != file_stem(other)


def test_a_picture_says_prompt_model_and_settings() -> None:
    words = origin_words(STARTED)
    for part in (f"“{STARTED.prompt}”", "embedded", "threshold 0.", "branch factor 2", "seed 0"):
        assert part in words, words
