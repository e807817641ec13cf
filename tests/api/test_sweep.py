"""Sweeps over every kind of prompt: texts, chats and token ids."""

from pathlib import Path

import numpy as np
import pandas as pd
from tiny_models import chat_pair

import eab
from eab import BranchingConfig, EntropyAdaptiveBranching, Grid

CHAT = [{"role": "system", "content": "w9"}, {"role": "user", "content": "w5 w6"}]
IDS = [5, 6, 7]
PROMPTS = ["w5 w6", CHAT, IDS]
SETTINGS = {"max_new_tokens": 4, "max_paths": 4, "temperature": 0.7, "top_p": 1.0}
GRID = Grid({"entropy_threshold": [0.5, 2.0]}, BranchingConfig(**SETTINGS))


def test_texts_chats_and_token_ids_give_the_cells_of_single_runs(tmp_path: Path) -> None:
    model = EntropyAdaptiveBranching(chat_pair()).model
    steps = [*eab.sweep(model, PROMPTS, GRID, folder=tmp_path)]
    cells = {
        (cell.prompt_id, cell.config.entropy_threshold): cell
        for step in steps
        for cell in step.cells
    }
    assert len(cells) == 6
    for prompt_id, prompt in zip(sorted({name for name, _ in cells}), PROMPTS, strict=True):
        for threshold in (0.5, 2.0):
            explorer = EntropyAdaptiveBranching(model, threshold, 3, **SETTINGS)
            run = explorer.run(prompt, threshold_unit="nats", min_fork_weight=0, branch_min_p=0)
            cell = cells[prompt_id, threshold]
            assert cell.tokens == run.tokens_through_model
            assert cell.paths == len(run.samples)
    assert cells[min(cells)[0], 0.5].prompt == "w5 w6"
    again = [
        cell for step in eab.sweep(model, PROMPTS, GRID, folder=tmp_path) for cell in step.cells
    ]
    assert {cell.key for cell in again} == {cell.key for cell in cells.values()}
    assert len({cell.key for cell in again}) == 6


def test_a_grid_takes_series_arrays_generators_and_own_policies(tmp_path: Path) -> None:
    def often(prediction: object, leaf: object) -> bool:
        return True

    model = EntropyAdaptiveBranching(chat_pair()).model
    base = BranchingConfig(**SETTINGS)
    plain = Grid({"top_k": [2, 3], "policy": ["fair", "greedy"]}, base, seeds=[0, 1])
    for values in (pd.Series, np.array, iter):
        varied = {"top_k": values([2, 3]), "policy": values(["fair", "greedy"])}
        assert Grid(varied, base, seeds=values([0, 1])).configs() == plain.configs()
    grid = Grid({"policy": ["fair", often]}, base, seeds=np.arange(2))
    cells = [cell for step in eab.sweep(model, iter(["w5 w6"]), grid) for cell in step.cells]
    assert {(cell.config.policy, cell.seed) for cell in cells} == {
        (name, seed) for name in ("fair", "own:often") for seed in (0, 1)
    }
    explorer = EntropyAdaptiveBranching(model, policy=often, threshold_unit="nats", **SETTINGS)
    plain_settings = {"min_fork_weight": 0, "branch_min_p": 0, "branch_factor": 3}
    run = explorer.run("w5 w6", seed=1, **plain_settings)
    assert run.tokens_needed == cells[-1].tokens
