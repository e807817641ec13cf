"""How likely a label is in two runs: what is known of the difference, in words, chart and table."""

import math

import pytest
from saying_model import flat_run

from eab import EntropyAdaptiveBranching, Run
from eab.analysis.run_comparison import student
from eab.engine.exploring import repeat
from eab.figures.answers import (
    common_rules,
    comparison_figure,
    comparison_sentence,
    label_pairs,
    pairs_table,
)
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import before_end
from eab.run.events import Labelled, LabelRule, Progressed

SETTINGS = {"max_new_tokens": 4, "entropy_threshold": 0.8, "temperature": 1, "top_p": 1}


def pair(a, b, word="Paris"):
    [found] = label_pairs(flat_run(a), flat_run(b), common_rules(flat_run(a), flat_run(b), word))
    return found


def test_bounds_that_do_not_overlap_are_a_certain_difference():
    a, b = [("in Paris", 0.9, 0.8, True)], [("Paris", 0.1, 0.1, True), ("Rome", 0.9, 0.8, True)]
    found = pair(a, b)
    assert (found.a.low, found.b.high) == pytest.approx((0.8, 0.2))
    assert found.known == "certain"
    words = comparison_sentence([found])
    assert words.startswith("“Paris”: 90.0% in A, 10.0% in B. The difference is certain")
    assert list(comparison_figure([found]).data[0].base) == pytest.approx([80, 10])
    rows = pairs_table([found]).to_dict("records")
    assert [(row["run"], row["at_least"], row["at_most"]) for row in rows] == [
        ("A", pytest.approx(0.8), pytest.approx(1.0)),
        ("B", pytest.approx(0.1), pytest.approx(0.2)),
    ]
    assert math.isnan(rows[0]["standard_error"])


def test_bounds_that_overlap_say_nothing_without_more_seeds():
    found = pair([("Paris", 0.9, 0.4, True)], [("Paris", 0.1, 0.3, True)])
    assert found.known == "unknown"
    assert "repeat both runs with 8 seeds" in comparison_sentence([found])


def test_rules_of_either_run_are_compared_and_marks_are_not():
    a, b = flat_run([("Paris", 1.0, 0.5, True)]), flat_run([("Rome", 1.0, 0.5, True)])
    mark, rule = LabelRule("good", "mark", path=1), LabelRule("short", "pattern", text="^.{0,4}$")
    a.apply(Labelled(1, (mark, rule)))
    b.apply(Labelled(1, (rule,)))
    assert common_rules(a, b) == (rule,)
    assert [found.name for found in label_pairs(a, b, common_rules(a, b, "o"))] == ["short", "o"]
    assert common_rules(flat_run([]), flat_run([])) == ()


@pytest.mark.slow
def test_with_eight_seeds_the_interval_of_the_difference_holds_the_true_one():
    model = TableModel(random_table(5, 5), stop_ids=[4])

    def truth(prompt):
        texts = model.all_texts(prompt, 4)
        return math.fsum(p for ids, p in texts if " 2" in "".join(map(model.text, ids)))

    explorer = EntropyAdaptiveBranching(model, max_paths=2, policy="independent", **SETTINGS)
    true, held, known, count = truth(0) - truth(1), 0, set(), 60
    for first in range(0, 16 * count, 16):
        a, b = (repeated(explorer, model, [prompt], first + 8 * prompt) for prompt in (0, 1))
        [found] = label_pairs(a, b, common_rules(a, b, " 2"))
        errors = found.a.standard_error, found.b.standard_error
        assert found.margin == pytest.approx(student(7) * math.hypot(*errors))
        held += abs(found.difference - true) <= found.margin
        known.add(found.known)
        assert ("±" in comparison_sentence([found])) == (found.known != "certain")
    assert held >= 0.85 * count, "about 95 %"
    assert "not significant" in known


def repeated(explorer, model, prompt, first):
    events = explorer.run(prompt, seed=first).events
    config = Run(events).started.config
    others = repeat(model, events, [*range(first + 1, first + 8)], config)
    return Run([*before_end(events), *(one for one in others if not isinstance(one, Progressed))])
