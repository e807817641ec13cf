"""The greedy probe of a rank threshold, and the presets that use it."""

from statistics import median

import numpy as np
import pytest
from made_runs import events_of, run_of

from eab.config import BranchingConfig
from eab.engine.branching.presets import PRESETS, starting_config
from eab.engine.build import PROBED
from eab.engine.models.huggingface import HuggingFaceModel
from eab.lessons.checks.policy import TableModel
from eab.run import RunState
from eab.run.events import Probed, RunStarted
from eab.run.threshold import PROBE_FLOOR, PROBE_STEPS, threshold_in_nats

PROMPTS = [
    "The king asked the old wizard what",
    "My best friend is",
    "Yesterday I went to school and",
    "The dragon was angry because",
    "In the morning the baker",
    "Two birds sat on a wall.",
]
SEEDS = range(3)


def config(**settings: object) -> BranchingConfig:
    return starting_config(**{"max_new_tokens": 64} | settings)


def test_a_prompt_is_probed_once_for_each_sampling_with_the_same_events(embedded):
    PROBED.pop(embedded, None)
    asked = [config(seed=0), config(seed=1, max_paths=3), config(temperature=1.0)]
    probes = []
    for one in asked:
        events = events_of(embedded, "My best friend is", one)
        begun = next(i for i, event in enumerate(events) if isinstance(event, RunStarted))
        probes.append(events[:begun])
        assert all(isinstance(event, Probed) for event in events[:begun])
    assert len(probes[0]) == PROBE_STEPS
    assert probes[0] == probes[1] != probes[2]
    assert len(PROBED[embedded]) == 2


@pytest.mark.parametrize(
    ("rank", "probe", "nats"),
    [
        (1, [3.0, 1.0], 3.0),
        (1.5, [3.0, 1.0], 2.0),
        (2, [3.0, 1.0], 1.0),
        (9, [3.0, 1.0], 1.0),  # there are fewer
        (1, [1.0, 4.0, 2.0], 1.0),  # not above the first uncertain word
        (1, [0.2, 4.0, 2.0], 4.0),  # the model is sure of the first word
        (3, [2.0, 1.5, 0.2], 1.5),
        (1, [0.0] * 4, PROBE_FLOOR),
        (1, [], PROBE_FLOOR),
    ],
)
def test_a_rank_is_an_entropy_of_the_greedy_text(rank, probe, nats) -> None:
    config = BranchingConfig(threshold_unit="rank", entropy_threshold=rank)
    assert threshold_in_nats(config, 100, probe) == pytest.approx(nats, rel=2e-3)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("row", "stop_ids", "steps"),
    [
        ([1.0, 0.0, 0.0], [], 24),  # all entropies 0
        ([1 / 3] * 3, [], 24),  # all the same, ln 3
        ([0.0, 0.2, 0.8], [2], 1),  # the answer is empty
    ],
)
def test_presets_give_a_run_even_where_the_probe_tells_little(preset, row, stop_ids, steps):
    model = TableModel(np.array([row] * 3), stop_ids)
    asked = starting_config(preset=preset, temperature=1.0, top_p=1.0, max_new_tokens=24)
    run = run_of(model, "0", asked)
    assert len(run.probe) == steps
    assert run.ended.reason == "finished"
    assert 1 <= len(run.samples) <= asked.max_paths
    assert run.started.threshold_nats == pytest.approx(max(PROBE_FLOOR, run.probe[0]), rel=2e-3)


def limited_early(run: RunState) -> bool:
    """Whether the path limit acts in the first third of the steps."""
    acted = [step for path in run.paths for step in path.limited_steps]
    return bool(acted) and min(acted) < len(run.steps) / 3


@pytest.mark.slow
def test_the_balanced_preset_gives_about_eight_texts(embedded: HuggingFaceModel) -> None:
    runs = [
        run_of(embedded, prompt, config(seed=seed, max_new_tokens=48))
        for prompt in PROMPTS
        for seed in SEEDS
    ]
    assert 6 <= median(len(run.samples) for run in runs) <= 10
    assert all(len(run.samples) > 1 for run in runs)
    assert sum(map(limited_early, runs)) <= len(runs) / 5
