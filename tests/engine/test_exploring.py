"""Texts that a run did not write: explored ones narrow the bounds, and anybody can ask about one."""

import math
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from msgspec import structs

from eab import EntropyAdaptiveBranching, Run
from eab.analysis.label_rules import labelled_by
from eab.board.messages import board_message
from eab.engine.exploring import explore, repeat
from eab.engine.job import more_seeds
from eab.errors import ConfigError, PromptError, RecordError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import before_end
from eab.run.events import Labelled, LabelRule, Progressed, RunEnded, TextScored
from eab.run.record import dumps, loads

LENGTH = 4
EXACT = {"max_new_tokens": LENGTH, "entropy_threshold": 0.8, "temperature": 1, "top_p": 1}


def chain(seed=3):
    return TableModel(random_table(seed, 5), stop_ids=[4])


def exact(model, has):
    texts = model.all_texts(0, LENGTH)
    words = (("".join(model.text(token) for token in text if token != 4), p) for text, p in texts)
    return math.fsum(p for text, p in words if has(text))


@pytest.mark.parametrize("policy", ["fair", "arithmetic", "independent", "stochastic-beam"])
def test_bounds_hold_and_shrink_and_weights_stay(policy):
    model = chain()
    two = exact(model, lambda text: " 2" in text and text.count(" 1") < 2)  # the later rule counts
    truth = {"two": two, "many": exact(model, RULES["many"])}
    explorer = EntropyAdaptiveBranching(model, policy=policy, max_paths=4, **EXACT)
    for seed in range(8):
        run = explorer.run([0], seed=seed)
        found = [run.labelled(RULES)]
        for until in (0.5, 0.2, 0.05):
            run = explorer.explore(run, RULES, until=until, most=1000)
            found.append(run.labelled(RULES))
            assert found[-1].unexplored <= until + 1e-6
            assert sum(sample.weight for sample in run.samples) == pytest.approx(1)
        for name, probability in truth.items():
            for before, after in pairwise(label[name] for label in found):
                assert before.low - 1e-9 <= after.low <= probability + 1e-9
                assert probability - 1e-9 <= after.high <= before.high + 1e-9
                assert after.low <= after.estimate <= after.high


def test_the_progress_says_how_many_texts_at_most_and_how_much_is_left():
    events = EntropyAdaptiveBranching(chain(), max_paths=2, **EXACT).run([0]).events
    told = [one for one in explore(chain(), events, 0.0, 12) if isinstance(one, Progressed)]
    assert [one.share for one in told] == sorted(one.share for one in told)
    assert (told[0].share, told[-1].share < 1) == (0, True)
    assert re.fullmatch(r"8 of at most 12 texts explored, \d+% unexplored", told[-1].words)


def test_when_all_is_explored_probabilities_and_answers_are_exact():
    model = chain(8)
    explorer = EntropyAdaptiveBranching(model, max_paths=2, **EXACT)
    run = explorer.run([0])
    whole = explorer.explore(run, until=0, most=1000)
    texts = {sample.token_ids: sample for sample in (*whole.samples, *whole.explored)}
    for text, probability in model.all_texts(0, LENGTH):
        assert math.exp(texts[tuple(text)].log_prob) == pytest.approx(probability)
    before, after = run.answers(), whole.answers()
    assert before.explored < after.explored == pytest.approx(1, abs=1e-6)
    for answer in after.ranked:
        probability = exact(model, lambda text, name=answer.name: text.strip() == name)
        assert answer.low == pytest.approx(probability, abs=1e-6)
        assert answer.texts >= len(answer.leaves)
    assert sum(len(answer.leaves) for answer in after.ranked) == len(run.leaves())
    assert {*after.decided} == {*before.decided}
    table = whole.to_pandas()
    assert table["path"].isna().sum() == (table["weight"] == 0).sum() > 0
    together = repeated(run, model).answers()
    assert together.explored > before.explored
    assert all(answer.standard_error is not None for answer in together.ranked)


def test_what_a_label_covers_needs_no_exploring():
    explorer = EntropyAdaptiveBranching(chain(), max_paths=3, **EXACT)
    run = explorer.run([0])
    begun = max(run.paths, key=lambda path: len(path.tokens))
    run.apply(Labelled(len(run.steps), (LabelRule("all", "mark", path=begun.id, token=0),)))
    count = run.tokens_before(begun.id) + 1
    first = [token.id for token in run.tokens(begun.id)][:count]
    grown = explorer.explore(run, until=0, most=1000)
    assert grown.explored
    for sample in grown.explored:
        assert [*sample.token_ids[:count]] != first


def test_labels_follow_the_tokens_of_a_path_that_a_given_text_splits():
    explorer = EntropyAdaptiveBranching(chain(), policy="greedy", **EXACT)
    run = explorer.run([0])
    marks = tuple(LabelRule(f"at {at}", "mark", path=0, token=at) for at in range(LENGTH - 1))
    run.apply(Labelled(len(run.steps), marks))
    ids, grown = [token.id for token in run.tokens(0)], run
    for text in (
        *("".join(f" {token}" for token in [*ids[:at], (ids[at] + 1) % 4]) for at in (2, 0)),
        " 0 0 0 0",
    ):
        grown = explorer.add_text(grown, text)
    assert len(grown.paths) > 3
    for rule in grown.labels:
        before = [*grown.tokens(rule.path)][: grown.tokens_before(rule.path) + rule.token + 1]
        assert [token.id for token in before] == ids[: int(rule.label[-1]) + 1]
    assert grown.samples[0].token_ids == run.samples[0].token_ids
    assert grown.labelled()["at 2"].low == pytest.approx(run.labelled()["at 2"].low)
    assert len(grown.forks()) == len(run.forks())
    order = [path.id for path in grown.in_tree_order()]
    assert sorted(order) == [*range(len(grown.paths))]
    assert all(order.index(path.parent) < order.index(path.id) for path in grown.paths[1:])


def test_a_stop_string_ends_explored_texts():
    explorer = EntropyAdaptiveBranching(chain(), max_paths=2, stop=[" 2"], **EXACT)
    run = explorer.explore(explorer.run([0]), until=0, most=1000)
    model, texts = explorer.model, [sample.text for sample in run.explored]
    assert texts
    assert not any(" 2" in text for text in texts)
    assert run.probability(lambda text: " 1" in text).low == pytest.approx(
        exact(model, lambda text: " 1" in text.split(" 2")[0]), abs=1e-4
    )


def test_the_run_stays_what_it_was_and_fits_into_a_file():
    explorer = EntropyAdaptiveBranching("embedded", preset="balanced", max_new_tokens=16)
    run = explorer.run("Once upon a time")
    grown = explorer.explore(run, until=0.3, most=16)
    assert 0 < len(grown.explored) <= 16
    assert grown.samples == run.samples
    assert repr(grown.paths) == repr(run.paths)
    again = Run(loads(dumps(grown.events)))
    assert again.explored == grown.explored
    assert grown.what_if(threshold=run.started.threshold_nats).samples == run.samples


def test_a_text_that_one_asks_about_is_a_branch_with_the_price_of_each_token():
    explorer = EntropyAdaptiveBranching("embedded", preset="balanced", max_new_tokens=16)
    run = explorer.run("Once upon a time")
    grown = explorer.add_text(run, ", there was a small robot")
    [path] = [path for path in grown.paths if path.status == "given"]
    [score] = explorer.score("Once upon a time", [", there was a small robot"])
    assert (path.status, path.finish_reason, path.weight) == ("given", None, 0)
    tokens = [*grown.tokens(path.id)]
    assert [token.id for token in tokens] == [token.id for token in score.spellings[0].tokens]
    for token, other in zip(tokens, score.spellings[0].tokens, strict=True):
        assert token.log_prob == pytest.approx(max(other.log_prob, -1e6), abs=1e-4)
    event = next(event for event in grown.events if isinstance(event, TextScored))
    own = [token.model_log_prob for token in score.spellings[0].tokens]
    assert event.model_log_probs == pytest.approx(own[-len(path.tokens) :], abs=1e-4)
    assert [sample.weight for sample in grown.samples] == [sample.weight for sample in run.samples]
    assert "data:image/svg" in grown._repr_html_()
    assert "given" in grown.to_graphml()
    again = Run(loads(dumps(grown.events)))
    assert repr(again.paths) == repr(grown.paths)
    words = " leaves the tree at step "
    assert words in board_message(grown)["labels"]["given"][0][1]


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "is empty"), (" 2" * 100, "at most 4"), (" 1 1 1 1", "begins with that")],
)
def test_what_cannot_be_asked(text, words):
    table = np.full((4, 4), 1e-12)
    table[:, 1] = 1
    explorer = EntropyAdaptiveBranching(TableModel(table), **EXACT)
    with pytest.raises(PromptError, match=words):
        explorer.add_text(explorer.run([0]), text)


def test_a_stopped_run_is_not_explored():
    explorer = EntropyAdaptiveBranching(chain(), max_paths=2, **EXACT)
    events = [*explorer.run([0]).events]
    cut = events[: len(events) // 2]
    with pytest.raises(ConfigError, match="ended before its texts"):
        explorer.explore([*cut, RunEnded(1, "stopped")])


@pytest.mark.parametrize("change", [{"path": 99}, {"kept": 99}, {"path": 1, "kept": 0}])
def test_a_file_with_a_scored_text_at_no_place_is_refused(change):
    explorer = EntropyAdaptiveBranching(chain(), max_paths=4, **EXACT)
    run = explorer.explore(explorer.run([0], seed=1), most=1, until=0)
    events = [
        structs.replace(event, **change) if isinstance(event, TextScored) else event
        for event in run.events
    ]
    with pytest.raises(RecordError):
        Run(events)


def repeated(run, model, seeds=range(1, 8)):
    return Run(
        [*before_end(run.events), *told(repeat(model, run.events, [*seeds], run.started.config))]
    )


def told(events):
    return [event for event in events if not isinstance(event, Progressed)]


RULES = {"two": " 2", "many": lambda text: text.count(" 1") >= 2}


def summed(samples):
    """The weight of each text that has one."""
    weights = Counter()
    for each in samples:
        weights[each.token_ids] += each.weight
    return +weights


@pytest.mark.parametrize("policy", ["fair", "arithmetic", "independent", "stochastic-beam"])
def test_a_repeated_run_says_what_its_eight_runs_say_together(policy):
    model = chain()
    explorer = EntropyAdaptiveBranching(model, policy=policy, max_paths=4, **EXACT)
    runs = [explorer.run([0], seed=seed) for seed in range(8)]
    events = [*repeat(model, runs[0].events, range(1, 8), runs[0].started.config)]
    shares = [event.share for event in events if isinstance(event, Progressed)]
    assert len(shares) < 7 * runs[0].forward_passes / 3, "the runs share their passes"
    assert shares == sorted(shares)
    one = Run([*before_end(runs[0].events), *told(events)])
    assert one.samples == runs[0].samples
    for run in runs[1:]:
        texts = one.repeats[run.started.config.seed]
        assert summed(texts) == pytest.approx(summed(run.samples))
    together, found = labelled_by(runs, RULES), one.labelled(RULES)
    assert found.runs == 8
    assert found.unexplored == pytest.approx(together.unexplored, abs=1e-9)
    for label in found:
        other = together[label.name]
        assert label.standard_error == pytest.approx(other.standard_error)
        for name in ("estimate", "low", "high"):
            assert getattr(label, name) == pytest.approx(getattr(other, name), abs=1e-9)
    again = Run(loads(dumps(one.events)))
    assert again.repeats == one.repeats
    assert again.labelled(RULES) == found


@pytest.mark.slow
def test_the_mean_of_eight_runs_is_unbiased_and_its_error_is_right():
    model = chain(5)
    truth = exact(model, lambda text: " 2" in text)
    explorer = EntropyAdaptiveBranching(model, max_paths=3, **EXACT)
    means, errors = [], []
    for first in range(0, 1200, 8):
        run = explorer.run([0], seed=first)
        weights = [0.0] * 8
        one = repeated(run, model, range(first + 1, first + 8))
        for place, texts in enumerate([run.samples, *one.repeats.values()]):
            weights[place] = math.fsum(each.weight for each in texts if " 2" in each.text)
        means.append(np.mean(weights))
        label = one.probability(" 2")
        assert label.low - 1e-6 <= truth <= label.high + 1e-6
        assert label.standard_error == pytest.approx(np.std(weights, ddof=1) / math.sqrt(8))
        errors.append(label.standard_error)
    spread = np.std(means, ddof=1)
    assert abs(np.mean(means) - truth) < 4 * spread / math.sqrt(len(means))
    assert math.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.2)


def test_a_run_that_is_not_all_there_is_no_estimate_but_narrows_the_bounds():
    model = chain()
    explorer = EntropyAdaptiveBranching(model, max_paths=4, **EXACT)
    run = explorer.run([0])
    whole = repeated(run, model, [1, 2])
    *kept, _ = before_end(whole.events)
    cut = Run([*kept, RunEnded(1, "finished")])
    assert cut.complete_repeats == [1]
    assert cut.labelled(RULES).runs == 2
    assert cut.labelled(RULES).unexplored <= run.labelled(RULES).unexplored
    assert more_seeds(cut) == [3, 4, 5, 6, 7, 8]
    assert more_seeds(whole) == [3, 4, 5, 6, 7]
    assert explorer.repeat(run).events == repeated(run, model).events
    greedy = explorer.run([0], policy="greedy")
    assert more_seeds(greedy) == []
    assert explorer.repeat(greedy).samples == greedy.samples
    assert not explorer.repeat(greedy).repeats


def test_the_drawn_branch_of_a_fork_stays_one_beside_a_given_text():
    explorer = EntropyAdaptiveBranching(chain(), branch_factor=2, max_paths=4, **EXACT)
    run = next(
        run
        for run in (explorer.run([0], seed=seed) for seed in range(50))
        if any(run.is_drawn(path) and run.paths[path.parent].parent < 0 for path in run.paths)
    )
    root = run.paths[0]
    begun = [token.id for token in root.tokens]
    taken = {child.tokens[0].id for child in run.branches(root)}
    other = next(token for token in range(4) if token not in taken)
    grown = explorer.add_text(run, "".join(f" {token}" for token in [*begun, other]))
    assert len(grown.paths[0].children) > len(run.paths[0].children)
    drawn = [path.id for path in run.paths if run.is_drawn(path)]
    assert [path.id for path in grown.paths if grown.is_drawn(path)] == drawn
