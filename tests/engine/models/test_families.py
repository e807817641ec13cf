"""Each family of the table: every leaf has the log-probabilities and entropies of a full forward
pass by transformers, in texts longer than any window, and other caches give the same events.
"""

import copy
from dataclasses import replace
from typing import get_args

import pytest
from equality import assert_leaves_match, assert_same_decisions
from family_table import FAMILIES, STATES, Family
from made_runs import events_of

from eab.config import BranchingConfig, CacheName
from eab.engine.caches.prefix_cache import PrefixCache, can_reuse
from eab.engine.loop import event_stream
from eab.engine.models.loading import wrap_model
from eab.engine.request import Request
from eab.errors import ModelError
from eab.run import fold
from eab.run.events import Event

PROMPT = " ".join(f"w{2 + 13 * index % 60}" for index in range(20))
# The path limit never acts: which path it ends can depend on how weights are rounded.
CONFIG = BranchingConfig(
    max_new_tokens=14, max_paths=40, min_fork_weight=0.2, entropy_threshold=0.5, temperature=3.0
)
WAYS = {f"cache {name}": {"cache": name} for name in get_args(CacheName) if name != "tree"} | {
    "padded attention": {"attention": "padded", "r": 5},
    "drafts": {"drafter": "prompt-lookup"},
}
HALVES = [[*WAYS][:3], [*WAYS][3:]]  # one half for each second family
ROWS = [
    pytest.param(family, id=family.name, marks=() if family.quick else pytest.mark.slow)
    for family in FAMILIES
    if family.what != STATES  # see test_own_cache.py
]


@pytest.mark.parametrize("family", ROWS)
def test_a_family_runs_as_the_table_says(family: Family, words):
    plain = family.model()
    if family.way == "refused":
        with pytest.raises(ModelError, match=family.why):
            wrap_model(plain, words)
        return
    ours = wrap_model(copy.deepcopy(plain), words)
    shape = ours.kv_shape
    assert (shape.own is not None) == (family.way == "own cache")
    events = events_of(ours, PROMPT, CONFIG)
    run = fold(events)
    assert len(run.leaves()) > 1
    assert_leaves_match(run, plain, family.tolerance)
    rounding = 2 * family.tolerance
    for way in [] if shape.own else HALVES[FAMILIES.index(family) % 2]:
        other = events_of(ours, PROMPT, replace(CONFIG, **WAYS[way]))
        if way == "drafts":  # different passes put its events in another order
            assert texts(other) == texts(events)
        else:
            assert_same_decisions(fold(other), run, rounding)
    prefixes = PrefixCache(shape, 2**24)
    for _ in range(2):  # the second run finds what the first one left
        again = list(event_stream(ours, Request(PROMPT, CONFIG), prefixes=prefixes))
        assert_same_decisions(fold(again), run, rounding)
    known = len(run.started.prompt_tokens) - 1
    assert fold(again).tokens_reused == (known if can_reuse(shape) else 0)


def texts(events: list[Event]) -> list[tuple[int, ...]]:
    return [sample.token_ids for sample in fold(events).samples]
