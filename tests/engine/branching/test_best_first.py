"""The `best-first` policy continues the most probable beginnings of texts, whatever their length."""

import copy
from typing import NamedTuple, get_args

import pytest
from equality import PROMPT, assert_leaves_match, assert_same_decisions
from family_table import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import events_of, leaves_at, run_of

from eab.analysis.answers import group_answers
from eab.analysis.uncertainty import uncertainty
from eab.config import BranchingConfig, CacheName
from eab.engine.models.loading import wrap_model
from eab.engine.what_if.resimulate import resimulate
from eab.errors import ConfigError
from eab.figures.captions import sentences_at
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunFold, RunState, fold, record
from eab.run.events import Predicted, StepTimed
from eab.run.record.run_file import Limits

LENGTH = 5
BASE = BranchingConfig(policy="best-first", max_new_tokens=LENGTH)
Text = tuple[int, ...]


class Search(NamedTuple):
    """A best-first search by brute force."""

    passes: list[set[Text]]  # the beginnings that each pass computes
    kept: dict[Text, float]  # the texts at its end, with their probabilities


def search(model: TableModel, paths: int, width: int, budget: int) -> Search:
    kept, passes, done = {(): 1.0}, list[set[Text]](), 0
    while done < budget:
        live = [text for text in kept if len(text) < LENGTH and text[-1:] not in STOPS]
        chosen = sorted(live, key=lambda text: -kept[text])[:width]
        if not chosen:
            break
        passes.append({*chosen})
        done += len(chosen)
        for text in chosen:
            mass = kept.pop(text)
            following = model.next(text[-1] if text else 0, len(text))
            kept |= {(*text, token): mass * p for token, p in enumerate(following) if p > 0}
        kept = dict(sorted(kept.items(), key=lambda each: -each[1])[:paths])
    return Search(passes, kept)


STOPS = [(1,)]


def computed(events) -> list[set[Text]]:
    """The beginnings that each pass computed, as the events say it."""
    state, passes = RunState(events[0]), [set[Text]()]
    for event in events[1:]:
        if isinstance(event, Predicted):
            for seen in event.predictions:
                passes[-1].add(tuple(token.id for token in state.tokens(seen.path)))
        if isinstance(event, StepTimed):
            passes.append(set())
        state.apply(event)
    return passes[:-1]


@settings(max_examples=60)
@given(
    chain=st.integers(0, 10**6),
    concentration=st.sampled_from([0.3, 1.0, 5.0]),
    paths=st.sampled_from([1, 3, 8, 200]),
    width=st.integers(1, 5),
    budget=st.sampled_from([0, 1, 7, 30]),
)
def test_every_pass_computes_the_most_probable_beginnings(
    chain, concentration, paths, width, budget
):
    model = TableModel(random_table(chain, 4, concentration, LENGTH), [1])
    rules = {"max_paths": paths, "paths_per_pass": width, "token_budget": budget}
    events = events_of(model, "0", BASE, **rules)
    run, expected = fold(events), search(model, paths, width, budget or paths * LENGTH)
    assert computed(events) == expected.passes
    found = {sample.token_ids: sample.weight for sample in run.samples}
    assert found == pytest.approx(expected.kept)
    ended = [text for text in found if len(text) == LENGTH or text[-1:] in STOPS]
    assert run.ended.reason == ("finished" if len(ended) == len(found) else "budget")
    assert list(record.loads(record.dumps(events))) == events


ROWS = {family.name: family for family in FAMILIES}


@pytest.mark.parametrize("name", ["Llama", "Mistral", "LFM2", "Mamba"])
def test_texts_are_those_of_full_forward_passes_with_every_cache(name, words):
    family = ROWS[name]
    plain = family.model()
    ours = wrap_model(copy.deepcopy(plain), words)
    asked = {"max_paths": 6, "paths_per_pass": 2, "max_new_tokens": 8, "temperature": 3.0}
    run = run_of(ours, PROMPT, BASE, **asked)
    assert_leaves_match(run, plain, 1e-5 if ours.kv_shape.own else family.tolerance)
    for cache in () if ours.kv_shape.own else get_args(CacheName):
        assert_same_decisions(run_of(ours, PROMPT, BASE, cache=cache, r=1, **asked), run)


def test_a_model_that_reads_long_texts_otherwise_is_refused(words):
    ours = wrap_model(ROWS["Phi-3 beyond its original length"].model(), words)
    with pytest.raises(ConfigError, match="up to 12 tokens"):
        run_of(ours, "w5 w6", BASE, max_new_tokens=14)
    assert run_of(ours, "w5 w6", BASE, max_new_tokens=4).ended.reason == "finished"


@settings(max_examples=30)
@given(chain=st.integers(0, 10**6), paths=st.sampled_from([2, 3, 8]), width=st.integers(1, 4))
def test_after_every_pass_the_last_step_shows_the_run_as_it_is(chain, paths, width):
    model = TableModel(random_table(chain, 4, 1.0, LENGTH), [1])
    events = events_of(model, "0", BASE, max_paths=paths, paths_per_pass=width)
    run = RunState(events[0])
    for event in events[1:]:
        run.apply(event)
        if isinstance(event, StepTimed):
            last = len(run.steps) - 1
            assert leaves_at(run, last) == run.leaves()
            for step, words in enumerate(sentences_at(run, range(last + 1))):
                tokens = [each for path in run.paths for each in path.tokens if each.step <= step]
                highest = max(token.entropy for token in tokens)
                assert f"Highest entropy {highest:.2f} nats" in words["entropy"]


def test_the_progress_is_that_of_the_tokens_because_one_path_may_be_complete_early():
    model = TableModel(random_table(3, 5, 1.0, LENGTH), [1])
    state, shares = RunFold(), []
    for event in events_of(model, "0", BASE, max_paths=8, paths_per_pass=1):
        state.apply(event)
        shares.append(state.progress.share)
    assert shares == sorted(shares)
    assert len(state.run.steps) == LENGTH
    assert state.run.forward_passes > 2 * LENGTH, "else the test shows nothing"
    assert shares[-1] == (state.run.forward_passes - 1) / (8 * LENGTH)


def test_files_of_wide_searches_load_although_each_pass_measures_the_paths_that_wait(monkeypatch):
    monkeypatch.setattr("eab.run.record.run_file.SMALL", Limits(10**6, 10, 100, 10))
    model = TableModel(random_table(1, 40, 5.0))
    events = events_of(model, "0", BASE, max_paths=200, paths_per_pass=1, token_budget=400)
    assert list(record.loads(record.dumps(events))) == events


def test_a_search_says_that_the_path_limit_left_texts_out():
    run = run_of(TableModel(random_table(3, 5, 1.0, LENGTH)), "0", BASE, max_paths=3)
    assert uncertainty(run, group_answers(run)).limited_by == ("max_paths",)
    run = run_of(TableModel(random_table(3, 5, 1.0, LENGTH)), "0", BASE, max_new_tokens=2)
    assert uncertainty(run, group_answers(run)).limited_by == ("max_paths",)
    rules = {"max_new_tokens": 2, "max_paths": 25}
    run = run_of(TableModel(random_table(3, 5, 1.0, LENGTH)), "0", BASE, **rules)
    assert uncertainty(run, group_answers(run)).limited_by == ()


def test_other_settings_need_the_model():
    run = run_of(TableModel(random_table(3, 5, 1.0, LENGTH)), "0", BASE)
    assert not run.started.can_be_recomputed
    with pytest.raises(ConfigError, match="the order in which paths grow is not recorded"):
        resimulate(run.events, r=3)
