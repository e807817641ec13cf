"""What one gets to see with each preset: how many texts, how early the path limit acts, and whether the
second most likely first word is in the tree.

    python benchmarks/preset_trees.py [--quick] [--json FILE] [--table FILE]

A hundred everyday questions for the chat model and fifty beginnings for the story model, 40 new tokens,
seed 0, with the settings that the page starts with. `--quick` takes every tenth prompt.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from chat_prompts import BEGINNINGS, EVERYDAY
from published import command_line, markdown_table, publish, where
from rich.console import Console

import eab
from eab.branching.presets import PRESETS
from eab.run import RunState

NEW_TOKENS = 40
EARLY = 8  # new tokens
LIKELY = (
    0.15  # a second most likely first word with at least this probability belongs into the tree
)
PROMPTS = {"smollm2": EVERYDAY, "embedded": BEGINNINGS}
console = Console(stderr=True)


@dataclass(frozen=True)
class Tree:
    """What one run shows."""

    texts: int
    limited: bool  # whether the path limit acted before new token EARLY
    has_second: bool | None  # None where the second most likely first word is less likely


def tree_of(run: RunState) -> Tree:
    limited = [step for path in run.paths for step in path.limited_steps]
    firsts = [path.tokens[0] for path in run.paths if path.born == 0 and path.tokens]
    candidates = firsts[0].candidates
    second = candidates[1] if len(candidates) > 1 else None
    is_likely = second is not None and second.probability >= LIKELY
    return Tree(
        len(run.samples),
        any(step < EARLY for step in limited),
        any(token.id == second.id for token in firsts) if second and is_likely else None,
    )


def row(model: str, preset: str, trees: Sequence[Tree]) -> list[object]:
    texts = sorted(tree.texts for tree in trees)
    low, _, high = statistics.quantiles(texts, n=4, method="inclusive")
    likely = [tree.has_second for tree in trees if tree.has_second is not None]
    return [
        model,
        preset,
        f"{statistics.median(texts):g} ({low:g}–{high:g})",
        f"{texts[0]}–{texts[-1]}",
        f"{sum(count == 1 for count in texts)} of {len(trees)}",
        f"{sum(tree.limited for tree in trees)} of {len(trees)}",
        f"{sum(likely)} of {len(likely)}",
    ]


def main() -> None:
    options = command_line(__doc__, quick="every tenth prompt").parse_args()
    torch.set_num_threads(options.threads)
    rows, figures = [], {}
    for model, prompts in PROMPTS.items():
        explorer = eab.EntropyAdaptiveBranching(model, max_new_tokens=NEW_TOKENS)
        for preset in PRESETS:
            trees = []
            for number, prompt in enumerate(prompts[:: 10 if options.quick else 1]):
                console.print(f"{model}, {preset}, prompt {number + 1}")
                trees.append(tree_of(explorer.run(prompt, preset=preset)))
            rows.append(row(model, preset, trees))
            figures[f"{model} {preset}"] = [tree.texts for tree in trees]
    heads = ["model", "preset", "texts, median (quartiles)", "range", "one text"]
    heads += [
        f"path limit before new token {EARLY}",
        f"second first word of {LIKELY:.0%} or more in the tree",
    ]
    publish(
        options, where("float32 on cpu"), markdown_table(heads, rows) + "\n", {"texts": figures}
    )


if __name__ == "__main__":
    main()
