"""The probability of labels and of properties, from the tree of one run."""

import math
import re
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from eab import EntropyAdaptiveBranching, Run
from eab.analysis.label_rules import is_json, labelled_by
from eab.analysis.labels import place_of
from eab.errors import ConfigError, RecordError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run.events import Labelled, LabelRule

LENGTH = 4
EXACT = {"max_new_tokens": LENGTH, "entropy_threshold": 0.8, "temperature": 1, "top_p": 1}


def exact(model, has):
    texts = model.all_texts(0, LENGTH)
    return math.fsum(mass for tokens, mass in texts if has(written(tokens, model)))


def written(tokens, model):
    return "".join(model.text(token) for token in tokens if token not in model.stop_ids)


MODEL = TableModel(random_table(3, 5), stop_ids=[4])
SOME = ["fair", "arithmetic", "independent", "stochastic-beam"]


@pytest.mark.parametrize("seeds", [200, pytest.param(3000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("policy", SOME)
def test_weights_are_unbiased_and_bounds_hold_in_every_run(policy, seeds):
    inner = max(product(range(4), range(4)), key=lambda ids: of_beginning(MODEL, ids))
    properties = {" 2": lambda text: " 2" in text, "many": lambda text: text.count(" 1") >= 2}
    exactly = {name: exact(MODEL, has) for name, has in properties.items()}
    exactly["inner"] = of_beginning(MODEL, inner)
    explorer = EntropyAdaptiveBranching(MODEL, policy=policy, max_paths=4, **EXACT)
    weights = {name: [] for name in exactly}
    for seed in range(seeds):
        run = explorer.run([0], seed=seed)
        for name, has in properties.items():
            found = run.probability(name if name == " 2" else has)
            assert found.low - 1e-9 <= exactly[name] <= found.high + 1e-9
            assert found.low <= found.estimate <= found.high
            weights[name].append(sum(each.weight for each in run.samples if has(each.text)))
        below = [each for each in run.samples if each.token_ids[:2] == inner]
        weights["inner"].append(sum(each.weight for each in below))
        if below:
            path, token = place_of(run, below[0].lineage[-1], 2)
            found = marked(run, (path, token, "inner"))["inner"]
            assert found.low == pytest.approx(exactly["inner"])
    for name, estimates in weights.items():
        error = np.std(estimates) / math.sqrt(seeds)
        if policy != "stochastic-beam":  # its weights are consistent, not unbiased
            assert abs(np.mean(estimates) - exactly[name]) < 4 * error


def test_bounds_only_shrink_as_a_run_goes_on():
    explorer = EntropyAdaptiveBranching(MODEL, max_paths=6, **EXACT)
    events = [*explorer.stream([0])]
    found = [Run(events[:count]).probability(" 2") for count in range(2, len(events) + 1)]
    for before, after in pairwise(found):
        assert before.low - 1e-12 <= after.low <= after.high <= before.high + 1e-12
    assert found[-1].high - found[-1].low < 1


def test_what_a_stop_string_cuts_off_is_not_in_the_text():
    table = np.full((4, 4), 1e-12)
    table[0, 1] = table[1, 2] = table[2, 3] = table[3, 3] = 1
    model = TableModel(table / table.sum(axis=1, keepdims=True))
    explorer = EntropyAdaptiveBranching(model, stop=["2 3"], **EXACT)
    run = explorer.run([0])
    assert run.samples[0].text == " 1 "
    assert run.probability(" 2").high < 1e-6
    assert run.probability(" 1").low > 1 - 1e-6


def marked(run, *marks):
    """The run, with marks at (path, token, label)."""
    rules = tuple(LabelRule(label, "mark", path=path, token=token) for path, token, label in marks)
    run.apply(Labelled(len(run.steps), rules))
    return run.labelled()


def of_beginning(model, tokens):
    """The exact probability of all texts that begin with these tokens."""
    texts = model.all_texts(0, LENGTH)
    return math.fsum(mass for text, mass in texts if tuple(text[: len(tokens)]) == tuple(tokens))


@pytest.mark.parametrize("policy", SOME)
def test_the_probability_of_a_mark_is_known_and_nearer_and_later_marks_override(policy):
    model = TableModel(random_table(5, 5), stop_ids=[4])
    explorer = EntropyAdaptiveBranching(model, policy=policy, max_paths=5, **EXACT)
    for seed in range(40):
        run = explorer.run([0], seed=seed)
        leaf = max(run.leaves(), key=lambda path: len([*run.tokens(path.id)]))
        tokens = [token.id for token in run.tokens(leaf.id)]
        places = [
            (path, at) for path in run.lineage(leaf.id) for at in range(len(run.paths[path].tokens))
        ]
        outer, inner = of_beginning(model, tokens[:1]), of_beginning(model, tokens[:3])
        found = marked(run, (*places[2], "good"), (*places[0], "good"), (*places[0], "bad"))
        assert [label.name for label in found] == ["good", "bad"]
        assert found["good"].low == pytest.approx(inner)
        assert found["bad"].low == pytest.approx(outer - inner)
        assert found["bad"].high == pytest.approx(outer - inner + found.unexplored)
        total = math.fsum(label.low for label in found) + found.unlabelled + found.unexplored
        assert total == pytest.approx(1)
        assert math.fsum(label.estimate for label in found) <= 1 + 1e-9


def test_a_mark_covers_what_a_rule_would_label_and_leaves_the_rest_to_it():
    explorer = EntropyAdaptiveBranching(MODEL, policy="fair", max_paths=6, **EXACT)
    run = explorer.run([0])
    child = run.paths[0].children[0]
    token = run.paths[child].tokens[0] if not run.paths[0].tokens else run.paths[0].tokens[0]
    path = child if not run.paths[0].tokens else 0
    rules = (LabelRule("two", "contains", " 2"), LabelRule("hand", "mark", path=path))
    run.apply(Labelled(len(run.steps), rules))
    found = run.labelled()
    assert found["hand"].low == pytest.approx(math.exp(token.log_prob))
    texts = MODEL.all_texts(0, LENGTH)
    two = math.fsum(
        mass for ids, mass in texts if ids[0] != token.id and " 2" in written(ids, MODEL)
    )
    assert found["two"].low - 1e-9 <= two <= found["two"].high + 1e-9
    run = EntropyAdaptiveBranching(MODEL, policy="greedy", **EXACT).run([0])
    ids = [each.id for each in run.tokens(0)]
    last = LabelRule("hand", "mark", path=0, token=len(ids) - 1)
    run.apply(Labelled(len(run.steps), (LabelRule("first", "contains", MODEL.text(ids[0])), last)))
    after, whole = of_beginning(MODEL, ids[:1]), of_beginning(MODEL, ids)
    assert run.labelled()["hand"].low == pytest.approx(whole)
    assert run.labelled()["first"].low == pytest.approx(after - whole), "where the mark is not"


@pytest.mark.parametrize("policy", ["fair", "arithmetic", "independent"])
def test_several_rules_are_bounded_and_estimated_together(policy):
    explorer = EntropyAdaptiveBranching(MODEL, policy=policy, max_paths=4, **EXACT)
    rules = {"two": " 2", "ends with one": re.compile(" 1$"), "long": lambda text: len(text) > 6}

    def label_of(text):
        holds = [" 2" in text, text.endswith(" 1"), len(text) > 6]
        return [name for name, each in zip(rules, holds, strict=True) if each][-1:]

    expected = {
        name: exact(MODEL, lambda text, name=name: label_of(text) == [name]) for name in rules
    }
    for seed in range(60):
        run = explorer.run([0], seed=seed)
        found, by_function = (
            run.labelled(rules),
            run.labelled(lambda text: (label_of(text) or [None])[0]),
        )
        for name, probability in expected.items():
            assert found[name].low - 1e-9 <= probability <= found[name].high + 1e-9
            assert found[name].low <= found[name].estimate <= found[name].high
        for label in by_function:
            assert label.low <= found[label.name].low + 1e-12, "a rule may be decided early"
        assert math.fsum(label.estimate for label in found) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("pattern", "is_early"),
    [
        (" 2", True),
        ("^ 2", True),
        (" 2$", False),
        (r" 2\b", False),
        (" 2(?! 3)", False),
        (r"\Z", False),
    ],
)
def test_a_pattern_is_decided_early_only_if_nothing_can_undo_its_match(pattern, is_early):
    table = np.full((4, 4), 1e-12)
    table[0, 2] = 1
    table[2, 1] = table[2, 3] = 0.5
    table[1, 1] = table[3, 3] = 1
    model = TableModel(table / table.sum(axis=1, keepdims=True))
    run = EntropyAdaptiveBranching(model, policy="greedy", max_paths=1, **EXACT).run([0])
    found = run.probability(re.compile(pattern))
    texts = model.all_texts(0, LENGTH)
    true = math.fsum(mass for ids, mass in texts if re.search(pattern, written(ids, model)))
    assert found.low - 1e-9 <= true <= found.high + 1e-9
    assert (found.low > 0.9) == is_early


def test_json_and_contains_are_rules_of_a_run_that_its_file_keeps(tmp_path):
    run = EntropyAdaptiveBranching(MODEL, **EXACT).run([0])
    rules = (LabelRule("json", "json"), LabelRule("two", "contains", " 2"))
    run.apply(Labelled(len(run.steps), rules))
    run.save(tmp_path / "labelled.eab")
    again = Run.load(tmp_path / "labelled.eab")
    assert again.labels == rules
    assert again.labelled() == run.labelled()
    assert again.labelled()["two"] == replace(run.probability(" 2"), name="two")
    numbers = exact(MODEL, lambda text: is_json(text))
    found = again.labelled()["json"]
    assert found.low <= numbers + 1e-9


def test_what_is_no_label_and_no_property_is_refused():
    run = EntropyAdaptiveBranching(MODEL, **EXACT).run([0])
    for path, token in [(99, 0), (0, 999), (-1, 0)]:
        with pytest.raises(RecordError, match=r"label|does not exist"):
            marked(run, (path, token, "good"))
    assert run.labels == ()
    with pytest.raises(ConfigError, match=r"'Rome'.*the run has: none"):
        run.labelled()["Rome"]
    for of in ("", 3, None, lambda text: "yes"):
        with pytest.raises(ConfigError, match="property"):
            run.probability(of)


def test_a_pattern_that_backtracks_for_ever_is_an_error(monkeypatch):
    monkeypatch.setattr("eab.analysis.answer_rules.MOST_SECONDS", 0.2)
    run = EntropyAdaptiveBranching(MODEL, **EXACT).run([0])
    assert len(run.labelled({"a": re.compile("(a+)+b")})) == 1
    run.paths[-1].tokens[-1].text = "a" * 60
    with pytest.raises(ConfigError, match="takes more than"):
        run.probability(re.compile("(a|a|aa)+$(?<=b)"))


def test_runs_with_other_seeds_narrow_the_bounds_and_give_a_standard_error():
    explorer = EntropyAdaptiveBranching(MODEL, policy="fair", max_paths=3, **EXACT)
    expected = exact(MODEL, lambda text: " 2" in text)
    covered, count = 0, 25
    for start in range(count):
        runs = [explorer.run([0], seed=8 * start + seed) for seed in range(8)]
        found = labelled_by(runs, {"two": " 2"})["two"]
        each = [run.probability(" 2") for run in runs]
        assert max(one.low for one in each) - 1e-12 <= found.low <= expected + 1e-9
        assert expected - 1e-9 <= found.high <= min(one.high for one in each) + 1e-12
        covered += abs(found.estimate - expected) < 2 * found.standard_error
    assert covered > 0.8 * count, "about 0.95, less for eight runs and few values"
    assert labelled_by(runs[:1], {"two": " 2"})["two"].standard_error is None
    first, second = explorer.compare_prompts([[0], [1]], {"two": " 2"}, seeds=4)
    for found, prompt in ((first, 0), (second, 1)):
        runs = [explorer.run([prompt], seed=seed) for seed in range(4)]
        assert found == labelled_by(runs, {"two": " 2"})
    for more, why in (({"seeds": 1}, "seeds"), ({"policy": "greedy"}, "greedy")):
        with pytest.raises(ConfigError, match=why):
            explorer.compare_prompts([[0]], {"two": " 2"}, **more)
