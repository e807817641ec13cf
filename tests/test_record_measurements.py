"""Measurements recorded for the pages are checked before they are written; the runs here are small
but real, the repeats invented.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from equality import PROMPT
from invented_runs import with_each

from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import RunsError
from eab.labs.caches import CACHES_LAB
from eab.labs.measure_runs import run_variants
from eab.labs.measurement import LabEvent, OfRun, Report, Row
from eab.labs.variants import (
    PROMPT_REUSED,
    REPEATS,
    cache_variants,
    costs_of,
)
from eab.lessons import bundled_runs
from eab.run.events import Predicted
from eab.timing import Timing
from scripts.claims import Claim, objections
from scripts.record_measurements import Measured, measure_variants, publish

CONFIG = BranchingConfig(entropy_threshold=1.5, max_paths=4, max_new_tokens=4, seed=2)
QUIET = Timing((1.0, 1.01, 1.0, 1.02, 1.01, 1.0, 1.01))
SLOWER = Timing(tuple(one + 0.5 for one in QUIET.seconds))
NOISY = Timing((1.1, 1.1, 1.1, 1.3, 3.1, 3.1, 3.2))


@pytest.mark.parametrize(
    ("other", "holds", "words"),
    [
        (QUIET, True, "It is faster."),
        (NOISY, False, "caches is not recorded. c against b: the spread"),
    ],
)
def test_a_settled_claim_is_written_and_one_within_the_spread_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: Timing, holds: bool, words: str
) -> None:
    file = tmp_path / "recording"
    claims = [Claim("a against b", QUIET, SLOWER), Claim("c against b", other, QUIET)]
    assert publish("caches", Measured("It is faster.", claims, file.touch)) == holds
    assert file.exists() == holds
    assert words in capsys.readouterr().out


def slowed(events: Iterable[LabEvent]) -> Iterator[LabEvent]:
    """The comparison's events with invented times, so that no test depends on the machine."""
    seconds = {
        "tree": 0.01,
        "paged": 0.02,
        "concat-cow": 0.02,
        "deep-copy": 0.03,
        "recompute": 0.04,
    }
    seconds[PROMPT_REUSED] = 0.01
    for event in events:
        if isinstance(event, Row) and event.table == "repeats":
            one = seconds[event.values["variant"]]
            event = Row("repeats", event.values | {"first": one, "step": one})
        yield event


def test_a_recorded_comparison_opens_with_what_was_measured(
    twins: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, request = twins("qwen2").ours, Request(PROMPT, CONFIG)
    events = list(slowed(run_variants(model, request, "caches", cache_variants())))
    compared = Report().collect(events)
    measured = measure_variants(CACHES_LAB, tmp_path / "caches", events)
    assert "takes 4× as long as with the tree" in measured.sentence
    assert publish("caches", measured)
    monkeypatch.setattr(bundled_runs, "CACHES", tmp_path / "caches")
    opened = bundled_runs.caches.__wrapped__()
    assert len(opened.rows("repeats", variant="tree")) == REPEATS
    assert costs_of(opened) == costs_of(compared)
    assert opened.ended == compared.ended


def test_variants_with_different_results_are_not_recorded(twins: Any, tmp_path: Path) -> None:
    model, request = twins("qwen2").ours, Request(PROMPT, CONFIG)
    broken = [
        OfRun(one.name, with_each(one.event, entropy=one.event.predictions[0].entropy + 1.0))
        if isinstance(one, OfRun) and one.name != "tree" and isinstance(one.event, Predicted)
        else one
        for one in run_variants(model, request, "caches", cache_variants(), repeats=0)
    ]
    with pytest.raises(RunsError, match="gives other results"):
        measure_variants(CACHES_LAB, tmp_path / "caches", broken)
    assert not (tmp_path / "caches").exists()


@pytest.mark.parametrize(
    ("a", "b", "objection"),
    [
        (SLOWER, QUIET, None),
        (QUIET, QUIET, None),  # a tie with little spread
        (NOISY, QUIET, "the spread (2e+03 ms) is more than 30% of"),
        (Timing((1.0,)), QUIET, "1 of at least 7 repeats"),
    ],
)
def test_a_claim_is_published_unless_the_spread_is_wide_or_repeats_are_few(
    a: Timing, b: Timing, objection: str | None
) -> None:
    found = objections([Claim("a against b", a, b)])
    assert len(found) == (objection is not None)
    assert all(words.startswith(f"a against b: {objection}") for words in found)
