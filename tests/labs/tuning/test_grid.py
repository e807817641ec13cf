"""The grid of settings that a sweep tries."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from eab.config import BranchingConfig
from eab.engine.branching.presets import START, starting_config
from eab.labs.tuning.grid import Grid

THRESHOLDS = [0.3, 0.65, 1.2]


def test_a_grid_gives_all_combinations_in_order() -> None:
    base = BranchingConfig(max_new_tokens=6)
    grid = Grid({"entropy_threshold": THRESHOLDS, "max_paths": [8, 20]}, base)
    found = [(one.entropy_threshold, one.max_paths) for one in grid.configs()]
    assert found == [*product(THRESHOLDS, [8, 20])]
    assert {one.max_new_tokens for one in grid.configs()} == {6}
    assert grid.combinations == 6
    assert Grid().configs() == [START]


def test_a_setting_that_has_no_effect_under_a_policy_is_tried_once() -> None:
    grid = Grid(
        {
            "entropy_threshold": THRESHOLDS,
            "branch_factor": [2, 3],
            "max_paths": [4, 8],
            "policy": ["fair", "independent", "greedy"],
        }
    )
    configs = grid.configs()
    assert grid.combinations == len(configs) == len(set(configs)) == 12 + 2 + 1
    assert {one.entropy_threshold for one in configs if one.policy != "fair"} == {0.3}


def test_presets_are_values_like_others_and_settings_that_vary_override_them() -> None:
    base = starting_config(max_new_tokens=6, top_k=5)
    presets = ["focused", "wide"]
    grid = Grid({"preset": presets, "top_k": [5, 9]}, base)
    assert grid.configs() == [
        starting_config(preset=preset, max_new_tokens=6, top_k=top_k)
        for preset, top_k in product(presets, [5, 9])
    ]
    assert Grid({"preset": ["wide"]}).configs() == [starting_config(preset="wide")]
    grid = Grid({"preset": presets, "entropy_threshold": THRESHOLDS, "max_paths": [7]})
    assert grid.configs() == [
        starting_config(preset=preset, entropy_threshold=threshold, max_paths=7)
        for preset, threshold in product(presets, THRESHOLDS)
    ]
    grid = Grid(
        {"preset": presets, "threshold_unit": ["nats"]}, starting_config(threshold_unit="nats")
    )
    assert {one.entropy_threshold for one in grid.configs()} == {THRESHOLDS[1]}


def test_a_preset_that_has_no_effect_under_a_policy_is_tried_once() -> None:
    def often(prediction: object, leaf: object) -> bool:
        return True

    policies = ["fair", often, "independent", "greedy"]
    grid = Grid({"policy": policies, "preset": ["focused", "wide"]})
    found = [(one.policy, one.max_paths, one.branch_factor) for one in grid.configs()]
    assert found == [
        *[
            (policy, paths, factor)
            for policy in ("fair", "own:often")
            for paths, factor in ((6, 3), (32, 4))
        ],
        *[("independent", 6, START.branch_factor), ("independent", 32, START.branch_factor)],
        ("greedy", START.max_paths, START.branch_factor),
    ]
    assert grid.combinations == len(found)
    both = Grid({"policy": policies, "preset": ["focused", "wide"], "max_paths": [4]})
    assert [one.policy for one in both.configs()] == ["fair"] * 2 + ["own:often"] * 2 + policies[2:]


@given(st.integers(1, 24))
def test_a_sample_is_reproducible_and_has_no_combination_twice(count: int) -> None:
    varied = {
        "entropy_threshold": THRESHOLDS,
        "max_paths": [4, 8, 12, 16],
        "policy": ["fair", "independent"],
    }
    every = Grid(varied).configs()
    sample = Grid(varied, sample=count).configs()
    assert sample == Grid(varied, sample=count).configs()
    assert len(set(sample)) == len(sample) == min(count, len(every))
    assert set(sample) <= set(every)
    assert [one for one in every if one in sample] == sample, "in the order of the grid"


def test_a_sample_of_a_huge_grid_is_drawn_without_building_the_grid() -> None:
    fine = [step / 1000 for step in range(1, 1000)]
    grid = Grid({"entropy_threshold": fine, "top_p": fine[10:], "temperature": fine[10:]}, sample=7)
    assert grid.combinations == 999 * 989 * 989
    assert len(set(grid.configs())) == 7
