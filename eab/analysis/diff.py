"""Two runs of one prompt: what they have in common, once, and what only one of them has. Pure
Python, like eab.run.

    both = merge(a, b); both.run.paths ..., both.sides ...

Also the settings that give independent sampling the budget of a tree.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from eab.config import MAX_PATHS, BranchingConfig
from eab.run import Path, Run, Token

Side = Literal["both", "a", "b"]
Budget = Literal["tokens", "texts"]


@dataclass(frozen=True, slots=True)
class Merged:
    """The texts of two runs as one tree: `sides[i]` says whose `run.paths[i]` is.

    A path weighs what the leaves below it weigh in its run (in the first one, if both have it). Its
    tokens are those of
    the first run that has them. Pruned paths are left out. There are no steps: nothing was measured
    for both together.
    """

    run: Run
    sides: tuple[Side, ...]


@dataclass(slots=True)
class _Node:
    """One place of the tree of tokens. mass: what the texts through it weigh, per run; missing
    where there are none.
    """

    tokens: list[Token] = field(default_factory=list)
    children: dict[int, "_Node"] = field(default_factory=dict)
    mass: dict[str, float] = field(default_factory=dict)
    ends: list[Path] = field(default_factory=list)

    @property
    def side(self) -> Side:
        return "both" if len(self.mass) == 2 else "a" if "a" in self.mass else "b"


def merge(a: Run, b: Run) -> Merged:
    """Both runs as one tree."""
    root = _Node()
    for side, run in (("a", a), ("b", b)):
        for leaf in run.leaves():
            _add(root, run, leaf, side)
    merged = Run(a.started)
    merged.ended = a.ended
    merged.paths.clear()
    sides: list[Side] = []
    waiting = [(root, -1)]
    for node, parent in waiting:  # grows while it is walked: parents before their children
        node = _chained(node)
        path = _path(node, len(sides), parent)
        merged.paths.append(path)
        sides.append(node.side)
        path.children = tuple(range(len(waiting), len(waiting) + len(node.children)))
        waiting += [(child, path.id) for child in node.children.values()]
    return Merged(merged, tuple(sides))


def _add(root: _Node, run: Run, leaf: Path, side: str) -> None:
    node = root
    node.mass[side] = node.mass.get(side, 0.0) + leaf.weight
    for token in run.tokens(leaf.id):
        node = node.children.setdefault(token.token, _Node([token]))
        node.mass[side] = node.mass.get(side, 0.0) + leaf.weight
    node.ends.append(leaf)


def _chained(node: _Node) -> _Node:
    """The node with all that follows it without a choice, in the same runs."""
    tokens = list(node.tokens)
    while len(node.children) == 1 and not node.ends:
        [child] = node.children.values()
        if child.side != node.side:
            break
        tokens += child.tokens
        node = child
    return replace(node, tokens=tokens)


def _path(node: _Node, number: int, parent: int) -> Path:
    last = node.tokens[-1].step if node.tokens else 0
    born = node.tokens[0].step if node.tokens else 0
    weight = node.mass.get("a", node.mass.get("b", 0.0))
    path = Path(number, parent, [(born, weight)], False, last, tokens=node.tokens)
    if node.children:
        path.status = "forked"
    elif node.ends and node.ends[0].status == "finished":
        path.status, path.finish_reason = "finished", node.ends[0].finish_reason
    return path


def same_prompt(a: Run, b: Run) -> bool:
    """Whether both continue the same tokens of the same model."""
    return (a.started.model.name, a.started.prompt_tokens) == (
        b.started.model.name,
        b.started.prompt_tokens,
    )


def texts_of(run: Run) -> Iterator[tuple[int, ...]]:
    """The token ids of each leaf."""
    for leaf in run.leaves():
        yield tuple(token.token for token in run.tokens(leaf.id))


def mean_passes(run: Run) -> float:
    """How many tokens of a text go through the model after the prompt, on average by the leaves'
    weights: all but its last. Under the policies `fair` and `independent` that estimates it for
    ordinary samples without bias.
    """
    return math.fsum(
        leaf.weight * max(0, sum(1 for _ in run.tokens(leaf.id)) - 1) for leaf in run.leaves()
    )


def independent(run: Run, budget: Budget) -> BranchingConfig:
    """The settings of independent sampling at the budget of this run.

    texts: as many as the run has. tokens: as many as its tokens through the model pay for; a text
    takes `mean_passes`, and the prompt goes through once for all.
    """
    count = len(run.leaves())
    if budget == "tokens" and (each := mean_passes(run)) > 0:
        count = round(
            min(MAX_PATHS, (run.tokens_through_model() - len(run.started.prompt_tokens)) / each)
        )
    return replace(
        run.started.config,
        policy="independent",
        max_paths=min(MAX_PATHS, max(1, count)),
        cache="tree",
    )
