"""Sweeps: trees against independent texts with equal numbers of tokens, the cells that need no run,
and a second Ray worker.

    python benchmarks/tuning.py --quick --json tuning.json

The first two ratios count tokens and cells, so they do not depend on how busy the machine is.

`independent_error_over_fair`: the root mean square error of the answer distribution over prompts
and seeds, for prompts with a known true distribution. Independent texts get at least as many tokens
as the trees: for each prompt, the smallest number of texts that needs as many tokens on average. A
prompt is won or lost if the mean difference of the squared errors, over seeds, exceeds two standard
errors. Both sides use the same seeds.

`cells_resimulated_share`: for a grid of thresholds, branch factors, path limits and policies.

`ray_two_workers_over_one`: the throughput of the same sweep with two workers over one, if Ray is
installed. The workers share this machine; a single worker has all of its CPUs.
"""

import importlib.util
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import torch
from published import command_line, markdown_table, publish, where

from eab.config import BranchingConfig
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import TuningPrompt, bundled_prompts
from eab.labs.tuning.sweeping import sweep, sweep_with
from eab.models.base import LanguageModel
from eab.models.loading import load_model
from eab.timing import Timing

TREE = BranchingConfig(entropy_threshold=0.65, branch_factor=3, max_paths=20, max_new_tokens=10)
PILOT_TEXTS = 8  # to estimate how many tokens a text takes
STANDARD_ERRORS = 2
LOAD = partial(load_model, "embedded", "cpu", "float32")
EXAMPLE = {
    "entropy_threshold": [0.3, 0.65, 1.2],
    "branch_factor": [2, 3],
    "max_paths": [8, 20],
    "policy": ["fair", "independent"],
}


def cells_of(
    model: LanguageModel, prompts: Sequence[TuningPrompt], grid: Grid
) -> dict[str, list[Cell]]:
    """The cells of each prompt, by its id, in the order of their seeds."""
    found: defaultdict[str, list[Cell]] = defaultdict(list)
    for step in sweep(model, prompts, grid):
        for cell in step.cells:
            found[cell.prompt_id].append(cell)
    return {name: sorted(cells, key=lambda cell: cell.seed) for name, cells in found.items()}


def independent(model: LanguageModel, prompt: TuningPrompt, texts: int, seeds: range) -> list[Cell]:
    """The cells for `texts` independent texts."""
    config = BranchingConfig(
        policy="independent", max_paths=texts, max_new_tokens=TREE.max_new_tokens
    )
    return cells_of(model, [prompt], Grid(base=config, seeds=seeds))[prompt.id]


def tokens_of(cells: Sequence[Cell]) -> float:
    return statistics.mean(cell.tokens for cell in cells)


def at_equal_tokens(
    model: LanguageModel, prompt: TuningPrompt, tokens: float, seeds: range
) -> list[Cell]:
    """The cells for the fewest independent texts that take at least `tokens` tokens on average."""
    one, pilot = (independent(model, prompt, texts, seeds) for texts in (1, PILOT_TEXTS))
    per_text = (tokens_of(pilot) - tokens_of(one)) / (PILOT_TEXTS - 1)
    texts = 1 + max(0, math.ceil((tokens - tokens_of(one)) / per_text)) if per_text else 1
    cells = independent(model, prompt, texts, seeds)
    while tokens_of(cells) < tokens and per_text:
        texts += 1
        cells = independent(model, prompt, texts, seeds)
    return cells


def squares(cells: Sequence[Cell]) -> list[float]:
    """The squared errors of the answer distribution, one per seed."""
    return [cell.distribution_error**2 for cell in cells if cell.distribution_error is not None]


def verdict(trees: Sequence[float], texts: Sequence[float]) -> str:
    """Whether trees are better or worse, judged by the squared errors per seed."""
    differences = [text - tree for tree, text in zip(trees, texts, strict=True)]
    mean = statistics.mean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    if abs(mean) <= STANDARD_ERRORS * error or mean == 0:
        return "no difference"
    return "trees win" if mean > 0 else "trees lose"


def compare_errors(
    model: LanguageModel, prompts: Sequence[TuningPrompt], seeds: range
) -> tuple[float, str, dict[str, object]]:
    """The ratio of the errors, a table with a row for each prompt, and the figures in the table."""
    trees = cells_of(model, prompts, Grid(base=TREE, seeds=seeds))
    texts = {
        prompt.id: at_equal_tokens(model, prompt, tokens_of(trees[prompt.id]), seeds)
        for prompt in prompts
    }
    heads = ["prompt", "tokens", "texts", "their tokens", "error of trees", "of texts", ""]
    rows = []
    figures: dict[str, object] = {}
    verdicts: list[str] = []
    for prompt in prompts:
        ours, theirs = (squares(cells[prompt.id]) for cells in (trees, texts))
        errors = [math.sqrt(statistics.mean(values)) for values in (ours, theirs)]
        verdicts.append(verdict(ours, theirs))
        count, theirs_tokens = texts[prompt.id][0].config.max_paths, tokens_of(texts[prompt.id])
        cells = (f"{tokens_of(trees[prompt.id]):.1f}", count, f"{theirs_tokens:.1f}")
        both = (f"{error:.3f}" for error in errors)
        rows.append([repr(prompt.question.prompt.strip()), *cells, *both, verdicts[-1]])
        figures[prompt.id] = {"trees": errors[0], "independent": errors[1], "verdict": verdicts[-1]}
    ours, theirs = (
        [value for cells in every.values() for value in squares(cells)] for every in (trees, texts)
    )
    ratio = math.sqrt(statistics.mean(theirs) / statistics.mean(ours))
    words = f"\nOf {len(prompts)} prompts, trees win {verdicts.count('trees win')} and lose "
    words += f"{verdicts.count('trees lose')}; no difference was measured at "
    words += f"{verdicts.count('no difference')} ({len(seeds)} seeds). All together: {ratio:.2f}.\n"
    return ratio, markdown_table(heads, rows) + words, figures


def resimulated_share(
    model: LanguageModel, prompts: Sequence[TuningPrompt], seeds: range
) -> tuple[float, int]:
    """The share of cells in the example grid that needed no run, and the number of cells."""
    grid = Grid(EXAMPLE, BranchingConfig(max_new_tokens=16), seeds)
    *_, last = sweep(model, prompts, grid)
    return last.resimulated / last.done, last.done


def ray_seconds(
    workers: int, prompts: Sequence[TuningPrompt], seeds: range, repeats: int
) -> list[float]:
    """Seconds of each sweep except the first, without the start of the workers."""
    from eab.labs.tuning.ray_actors import RayActors

    grid, found = Grid(EXAMPLE, BranchingConfig(max_new_tokens=16), seeds), []
    with RayActors(LOAD, Measurement(), workers=workers) as actors:
        for _ in range(repeats + 1):
            start = time.perf_counter()
            for _ in sweep_with(actors, prompts, grid, None, Measurement()):
                pass
            found.append(time.perf_counter() - start)
    return found[1:]


def measure_ray(
    prompts: Sequence[TuningPrompt], seeds: range, rounds: int
) -> tuple[dict[str, float], str, dict[str, list[float]]]:
    """The ratio, a sentence and the seconds; without Ray, no figures."""
    if importlib.util.find_spec("ray") is None:
        return {}, "\nRay is not installed, so it was not measured.\n", {}
    seconds: dict[str, list[float]] = {"one": [], "two": []}
    for _ in range(rounds):
        for workers, name in enumerate(seconds, start=1):
            seconds[name] += ray_seconds(workers, prompts, seeds, 2)
    one, two = (Timing(tuple(seconds[name])) for name in ("one", "two"))
    words = (
        f"\nRay: one worker {one.median:.1f} s ({one.low:.1f} to {one.high:.1f}), two workers "
        f"{two.median:.1f} s ({two.low:.1f} to {two.high:.1f}).\n"
    )
    return {"ray_two_workers_over_one": one.median / two.median}, words, seconds


def main() -> None:
    parser = command_line(__doc__, quick="every sixth prompt, 8 seeds instead of 32, one round")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, every = LOAD(), 6 if options.quick else 1
    known = [*bundled_prompts("chances")[::every], *bundled_prompts("bags")[:: 8 * every]]
    error, table, figures = compare_errors(model, known, range(8 if options.quick else 32))
    mixed = [*bundled_prompts("chances")[:: 2 * every], *bundled_prompts("stories")[::every]]
    share, cells = resimulated_share(model, mixed, range(2))
    ray, ray_words, seconds = measure_ray(mixed, range(2), 1 if options.quick else 3)
    ratios = {"independent_error_over_fair": error, "cells_resimulated_share": share} | ray
    words = f"\nOf {cells} cells of the example, {share:.0%} needed no run.\n"
    result = {"errors": figures, "ray_seconds": seconds, "ratios": ratios}
    publish(options, where("float32 on cpu"), table + words + ray_words, result)


if __name__ == "__main__":
    main()
