"""Two runs of one prompt as one tree, in which whatever they have in common appears once.

both = merge(a, b)
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from eab.run import Path, RunState, Token

Side = Literal["both", "a", "b"]


@dataclass(frozen=True, slots=True)
class Merged:
    """The texts of two runs as one tree, without pruned paths."""

    # The tree. A path's weight is the sum of the leaves below it in its run (in the first run, if
    # both have the path); its tokens come from the first run that has them. There are no steps,
    # because nothing was measured for both runs together.
    run: RunState
    sides: tuple[Side, ...]  # which run has `run.paths[i]`
    # the second run's weight of each path that both runs have; empty after a graft
    seconds: tuple[float | None, ...] = ()


@dataclass(slots=True)
class _Node:
    # one token, several after `_chained` joined nodes, none in the root
    tokens: list[Token] = field(default_factory=list)
    # the next nodes, by their first token
    children: dict[int, "_Node"] = field(default_factory=dict)
    # weight of the texts through this node, for each run that has such texts
    weights: dict[str, float] = field(default_factory=dict)
    ends: list[Path] = field(default_factory=list)  # the leaves whose text ends here

    @property
    def side(self) -> Side:
        return "both" if len(self.weights) == 2 else "a" if "a" in self.weights else "b"


def merge(a: RunState, b: RunState) -> Merged:
    """Merge both runs into one tree."""
    root = _Node()
    for side, run in (("a", a), ("b", b)):
        for leaf in run.leaves():
            _add(root, run, leaf, side)
    merged = RunState(a.started)
    merged.ended = a.ended
    merged.paths.clear()
    sides: list[Side] = []
    seconds: list[float | None] = []
    pending = [(root, -1)]
    for node, parent in pending:  # pending grows in the loop; parents come before their children
        node = _chained(node)
        path = _path(node, len(sides), parent)
        merged.paths.append(path)
        sides.append(node.side)
        seconds.append(node.weights["b"] if node.side == "both" else None)
        path.children = tuple(range(len(pending), len(pending) + len(node.children)))
        pending += [(child, path.id) for child in node.children.values()]
    return Merged(merged, tuple(sides), tuple(seconds))


def _add(root: _Node, run: RunState, leaf: Path, side: str) -> None:
    node = root
    node.weights[side] = node.weights.get(side, 0.0) + leaf.weight
    for token in run.tokens(leaf.id):
        node = node.children.setdefault(token.id, _Node([token]))
        node.weights[side] = node.weights.get(side, 0.0) + leaf.weight
    node.ends.append(leaf)


def _chained(node: _Node) -> _Node:
    """The node joined with the nodes after it, as long as there is one child of the same runs."""
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
    weight = node.weights.get("a", node.weights.get("b", 0.0))
    path = Path(number, parent, [(born, weight)], False, last, tokens=node.tokens)
    if node.children:
        path.status = "forked"
    elif node.ends and node.ends[0].status == "finished":
        path.status, path.finish_reason = "finished", node.ends[0].finish_reason
    return path


def same_prompt(a: RunState, b: RunState) -> bool:
    """Whether both runs continue the same tokens with the same model."""
    return (a.started.model.name, a.started.prompt_tokens) == (
        b.started.model.name,
        b.started.prompt_tokens,
    )


def texts_of(run: RunState) -> Iterator[tuple[int, ...]]:
    """The token ids of each leaf."""
    for leaf in run.leaves():
        yield tuple(token.id for token in run.tokens(leaf.id))
