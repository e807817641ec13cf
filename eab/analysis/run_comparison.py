"""Runs of one prompt, compared. Two of them as one tree, in which whatever they have in common
appears once:

    both = merge(a, b)

A run that was grown from a token of another run is grafted onto the tree of that run:

    grafted = graft(source, grown)

Paths of the source keep their ids and new paths get higher ids, so a picture only gains parts.

A run with independent texts for its budget: how many there would be, and what they would see.
Runs with several seeds, which are independent draws: means with Student's t intervals.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Final, Literal

from eab.config import MAX_PATHS, BranchingConfig
from eab.run import Path, RunState, Token, least_probability
from eab.run.tree import split

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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text leaves the tree of a run."""

    path: int  # id of the path that it leaves
    kept: int  # how many tokens of this path it has
    tokens: int  # how many tokens from the root lead there


def graft(source: RunState, grown: RunState) -> Merged:
    """Both runs as one tree.

    `grown` must continue the source's prompt by `source.continuation(...)`; otherwise ValueError.
    Sides: "both" for paths that lead to the grown part, "a" for other paths of the source, "b" for
    grown paths. Steps are those of the source.
    """
    before = source.started.continued_tokens
    continued = grown.started.continued_tokens
    if len(continued) <= len(before) or continued[: len(before)] != before:
        raise ValueError("the grown run does not continue the source")
    new = continued[len(before) :]
    place = leave(source, new)
    forced = [_forced(source, place, token) for token in new[place.tokens :]]
    paths = [replace(path, tokens=list(path.tokens)) for path in source.paths]
    split(paths, paths[place.path], place.kept)
    first = len(paths)
    paths += [_moved(path, first, place.path, len(new), source) for path in grown.paths]
    root = paths[first]
    root.tokens[:0] = forced
    root.weights[0] = (root.born - len(forced), root.weight)
    stem = paths[place.path]
    stem.status, stem.finish_reason, stem.cut = "forked", None, 0
    stem.tokens = [replace(token, cut=0) for token in stem.tokens]
    stem.children = (*stem.children, first)
    run = RunState(source.started)
    run.paths, run.ended = paths, grown.ended
    run.events = [*source.events, *grown.events]
    return Merged(run, _sides(source, place, first, len(paths)))


def is_new(source: RunState, continued: Sequence[int]) -> bool:
    """Whether a graft after these tokens adds something: no text of the source continues them."""
    new = continued[len(source.started.continued_tokens) :]
    place = leave(source, new)
    path = source.paths[place.path]
    goes_on = place.kept < len(path.tokens) or bool(path.children)
    return place.tokens < len(new) or not goes_on


def leave(source: RunState, tokens: Sequence[int]) -> Place:
    """Follow the tokens from the root, and return where the source's tree stops matching."""
    path, kept = source.paths[0], 0
    for count, token in enumerate(tokens):
        if kept == len(path.tokens):
            children = (source.paths[child] for child in path.children)
            child = next((path for path in children if _begins_with(path, token)), None)
            if child is None:
                return Place(path.id, kept, count)
            path, kept = child, 0
        if path.tokens[kept].id != token:
            return Place(path.id, kept, count)
        kept += 1
    return Place(path.id, kept, len(tokens))


def _begins_with(path: Path, token: int) -> bool:
    return bool(path.tokens) and path.tokens[0].id == token


def _forced(source: RunState, place: Place, token: int) -> Token:
    path = source.paths[place.path]
    instead = (
        path.tokens[place.kept]
        if place.kept < len(path.tokens)
        else next(source.paths[child].tokens[0] for child in path.children)
    )
    chosen = next((candidate for candidate in instead.candidates if candidate.token == token), None)
    text, probability = (chosen.text, chosen.probability) if chosen else ("", 0.0)
    log_prob = math.log(probability) if probability > 0 else -math.inf
    return replace(instead, id=token, text=text, special=False, log_prob=log_prob)


def _moved(path: Path, first: int, stem: int, steps: int, source: RunState) -> Path:
    """A grown path with its ids, steps and weights in the source's tree."""
    weight = source.paths[stem].weight
    return replace(
        path,
        id=path.id + first,
        parent=stem if path.parent < 0 else path.parent + first,
        weights=[(step + steps, share * weight) for step, share in path.weights],
        touched=path.touched + steps,
        tokens=[replace(token, step=token.step + steps) for token in path.tokens],
        children=tuple(child + first for child in path.children),
        limited_steps=[step + steps for step in path.limited_steps],
    )


def _sides(source: RunState, place: Place, first: int, count: int) -> tuple[Side, ...]:
    lineage = set(source.lineage(place.path))
    old: list[Side] = ["both" if number in lineage else "a" for number in range(first)]
    new: list[Side] = ["b"] * (count - first)
    return (*old, *new)


Budget = Literal["tokens", "texts"]


def mean_tokens_per_text(run: RunState) -> float:
    """The weighted mean number of tokens in a text after the prompt, not counting its last token.

    Under `fair` and `independent` it is an unbiased estimate for ordinary samples.
    """
    leaves = run.leaves()
    total = math.fsum(leaf.weight for leaf in leaves) or 1.0
    lengths = (max(0, sum(1 for _ in run.tokens(leaf.id)) - 1) for leaf in leaves)
    return math.fsum(
        leaf.weight / total * length for leaf, length in zip(leaves, lengths, strict=True)
    )


def independent_config(run: RunState, budget: Budget) -> BranchingConfig:
    """The settings for independent sampling at the budget of this run.

    `texts`: as many texts as the run has. `tokens`: as many texts as the tokens that the run needs
    allow, at `mean_tokens_per_text` each, if the prompt is prefilled once for all of them.
    """
    count = len(run.leaves())
    if budget == "tokens" and (each := mean_tokens_per_text(run)) > 0:
        count = round(min(MAX_PATHS, (run.tokens_needed - len(run.started.prompt_tokens)) / each))
    return replace(
        run.started.config,
        policy="independent",
        max_paths=min(MAX_PATHS, max(1, count)),
        cache="tree",
        stop_when="ended",
    )


_MUCH: Final = 0.9  # probability seen


def average_seen(run: RunState, count: int) -> tuple[float, float] | None:
    """The least and the most probability that `count` independent texts see on average over all
    seeds, computed from this run; None if it saw too little.
    """
    texts = {sample.token_ids: least_probability(sample.tokens) for sample in run.samples}
    explored = min(1.0, math.fsum(texts.values()))
    if explored < _MUCH:
        return None
    seen = math.fsum(share * (1 - (1 - share) ** count) for share in texts.values())
    return seen, seen + 1 - explored


# Quantile 0.975 of Student's t, by degrees of freedom; in gaps, the row above is conservative.
_FREEDOM: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60, 120)
_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306),
    *(2.262, 2.228, 2.179, 2.131, 2.086, 2.042, 2.000, 1.980),
)


def student(freedom: int) -> float:
    """Quantile 0.975 of Student's t for this many degrees of freedom (at least 1)."""
    return _STUDENT[bisect_right(_FREEDOM, freedom) - 1]


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds."""

    value: float
    error: float | None  # standard error; None for a single seed, which has no spread
    seeds: int

    @property
    def margin(self) -> float | None:
        """Half the width of the 95% confidence interval of the mean."""
        return None if self.error is None else student(self.seeds - 1) * self.error

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign is certain: the interval does not contain 0."""
        return self.margin is not None and abs(self.value) > self.margin

    def fresh(self, seeds: int) -> float | None:
        """Half the width of the 95% interval for the mean of this many other, normal seeds."""
        if self.error is None:
            return None
        return student(self.seeds - 1) * self.error * math.sqrt(1 + self.seeds / seeds)


def mean(by_seed: Mapping[int, float]) -> Mean:
    """The mean of at least one value, one value per seed."""
    values = list(by_seed.values())
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Mean(fmean(values), error, len(values))


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Mean | None:
    """The mean of ours - theirs over common seeds, which share random numbers."""
    # Means of the same numbers, summed in different orders, can differ in their last digits.
    shared = {seed: round(ours[seed] - theirs[seed], 10) for seed in ours if seed in theirs}
    return mean(shared) if shared else None
