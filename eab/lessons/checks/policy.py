"""The assignment `policy`: a branching policy whose weights are unbiased, also at the path limit.

The model is a Markov chain with few texts, so the probability of each is known.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from types import ModuleType
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.config import BranchingConfig
from eab.engine.branching.own import PolicyFactory
from eab.engine.branching.policy import Seeded
from eab.engine.branching.presets import START
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.shape import KVShape
from eab.engine.loop import serve
from eab.engine.models.base import LanguageModel
from eab.engine.request import Request
from eab.formatting import ordinal
from eab.lessons.checks import ALARM, Fault, Property
from eab.run import fold
from eab.run.events import ModelCard
from eab.run.events.chat import Prompt

# (V, V): p(next | last); or (T, V, V), by the position of the next token
Table = NDArray[np.float64]


class TableModel(LanguageModel):
    """A LanguageModel (see eab.engine.models.base). The prompt "0 2 1" stands for these token ids,
    and the last one starts the chain.
    """

    def __init__(self, table: Table, stop_ids: Sequence[int] = (), context: int = 4096) -> None:
        self.table = np.asarray(table, dtype=np.float64)
        size = self.table.shape[-1]
        with np.errstate(divide="ignore"):
            self._logits = torch.from_numpy(np.log(self.table))
        self.kv_shape = KVShape(1, 1, 1, torch.float64, torch.device("cpu"))
        self.context, self.stop_ids = context, frozenset(stop_ids)
        self.card = ModelCard(
            "table", "markov", size, 1, 1, 1, "float64", "cpu", self.kv_shape.row_bytes
        )
        self.seen: list[list[float]] = []
        self.prompt_length = 1

    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        """See LanguageModel.forward."""
        logits = []
        for batch in batches:
            values = batch.ids.to(torch.float64).view(1, 1, -1, 1)
            means = batch.cache.attend(
                0, torch.zeros_like(values), torch.zeros_like(values), values, scale=1.0
            )
            self.seen.append(means[0, batch.logits_indices, 0, 0].tolist())
            last = batch.ids[batch.logits_indices]
            step = batch.positions[batch.logits_indices] - self.prompt_length + 1
            logits.append(
                self._logits[last]
                if self._logits.dim() == 2
                else self._logits[step.clamp(min=0), last]
            )
        return torch.cat(logits)

    def encode(
        self, prompt: Prompt, config: BranchingConfig = START, parse_special: bool = False
    ) -> tuple[int, ...]:
        """See LanguageModel.encode."""
        tokens = tuple(int(word) for word in str(prompt).split())
        self.prompt_length = len(tokens)
        return tokens

    def encode_following(self, text: str) -> tuple[int, ...]:
        """See LanguageModel.encode_following."""
        return tuple(int(word) for word in text.split())

    def text(self, token: int) -> str:
        """See LanguageModel.text."""
        return f" {token}"

    def is_special(self, token: int) -> bool:
        """See LanguageModel.is_special."""
        return token in self.stop_ids

    def next(self, last: int, step: int) -> NDArray[np.float64]:
        """The row p(token of this step | last token)."""
        row: NDArray[np.float64] = (
            self.table[last] if self.table.ndim == 2 else self.table[step, last]
        )
        return row

    def all_texts(self, first: int, length: int) -> Iterator[tuple[tuple[int, ...], float]]:
        """All texts of at most `length` tokens, with their exact probabilities."""
        open_texts: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
        for step in range(length):
            grown = [
                ((*text, token), mass * p)
                for text, mass in open_texts
                for token, p in enumerate(self.next(text[-1] if text else first, step))
                if p > 0
            ]
            yield from ((text, mass) for text, mass in grown if text[-1] in self.stop_ids)
            open_texts = [(text, mass) for text, mass in grown if text[-1] not in self.stop_ids]
        yield from open_texts


def random_table(
    seed: int, size: int, concentration: float = 0.6, steps: int | None = None
) -> Table:
    """A table whose rows are drawn from a Dirichlet distribution: some sharp, some flat."""
    shape = (size,) if steps is None else (steps, size)
    return np.random.default_rng(seed).dirichlet(np.full(size, concentration), size=shape)


NEEDS: Final = {"MyPolicy": Seeded}
RUNS: Final = 400  # seeds for each tree
REPEATED: Final = 10  # runs that are made again
# The probabilities of the tokens that are compared. For rarer ones, so few runs have any weight
# that a normal distribution does not describe their mean.
LEAST, MOST = 0.2, 0.8
ROUNDING: Final = 1e-9

Weighted: TypeAlias = tuple[tuple[tuple[int, ...], float], ...]  # texts of a run, with weights


@dataclass(frozen=True)
class Tree:
    """A chain with all its texts, and the limits of the runs on it."""

    tokens: int
    steps: int
    max_paths: int
    ends: bool = False  # whether the last token ends a text

    @property
    def model(self) -> TableModel:
        table = random_table(7, self.tokens, concentration=1.5)
        return TableModel(table, [self.tokens - 1] if self.ends else [])

    def runs(self, policy: PolicyFactory, seeds: range) -> list[Weighted]:
        config = BranchingConfig(
            entropy_threshold=0.2, max_paths=self.max_paths, max_new_tokens=self.steps
        )
        requests = [Request("0", replace(config, seed=seed), policy=policy) for seed in seeds]
        runs = (fold([*handle]) for handle in serve(self.model, requests))
        return [tuple((one.token_ids, one.weight) for one in run.samples) for run in runs]


TREES: Final = (Tree(4, 3, 64), Tree(4, 3, 4), Tree(5, 4, 6, ends=True), Tree(4, 4, 3, ends=True))


def properties(student: ModuleType, seed: int) -> Iterator[Property]:
    """What is checked, with the RUNS seeds from seed * RUNS on."""
    seeds = range(seed * RUNS, (seed + 1) * RUNS)
    runs_of = lru_cache(maxsize=64)(lambda tree: tree.runs(student.MyPolicy, seeds))

    def sums(tree: Tree) -> None:
        for number, run in zip(seeds, runs_of(tree), strict=True):
            weights = [weight for _, weight in run]
            if abs(math.fsum(weights) - 1) > ROUNDING or min(weights) < 0:
                shown = " + ".join(f"{weight:.4g}" for weight in weights)
                raise Fault(f"with seed {number} the weights are {shown} = {sum(weights):.4g}")

    def limit(tree: Tree) -> None:
        most = max(map(len, runs_of(tree)))
        if most > tree.max_paths:
            raise Fault(f"a run has {most} texts, but max_paths is {tree.max_paths}")
        if most == 1 < tree.max_paths:
            raise Fault("no run has a fork")

    def repeats(tree: Tree) -> None:
        again = tree.runs(student.MyPolicy, seeds[:REPEATED])
        for number, first, second in zip(seeds, runs_of(tree), again, strict=False):
            if first != second:
                raise Fault(f"seed {number} gave {first}, and then {second}")

    unbiased = f"weights are unbiased, in {RUNS} runs of {len(TREES)} trees"
    for name, check in {
        "the weights of a run sum to 1": sums,
        "runs fork, and have at most max_paths texts": limit,
        "the same seed gives the same run": repeats,
        f"{unbiased}, with a false alarm in {1 / ALARM:,.0f}": lambda tree: _check_unbiased(
            tree, runs_of(tree)
        ),
    }.items():
        yield Property(name, TREES, check, _smaller, _shown)


def _check_unbiased(tree: Tree, runs: list[Weighted]) -> None:
    """The mean weight of the texts with a token at a place must be the probability of it there."""
    exact: dict[tuple[int, int], float] = {}  # by place and token
    for text, probability in tree.model.all_texts(0, tree.steps):
        for at in enumerate(text):
            exact[at] = exact.get(at, 0.0) + probability
    compared = [at for at, probability in exact.items() if LEAST <= probability <= MOST]
    means, errors = mean_and_error(
        [
            [math.fsum(weight for text, weight in run if at in enumerate(text)) for at in compared]
            for run in runs
        ]
    )
    off = np.abs(means - [exact[at] for at in compared])
    allowed = NormalDist().inv_cdf(1 - ALARM / len(TREES) / len(compared) / 2) * errors
    for (place, token), mean, distance, most in zip(compared, means, off, allowed, strict=True):
        if distance > most:
            raise Fault(
                f"texts whose {ordinal(place + 1)} new token is {token} weigh {mean:.4f} in the "
                f"mean, but their probability is {exact[place, token]:.4f}; chance explains a "
                f"difference of {most:.4f}"
            )


def mean_and_error(
    estimates: Sequence[Sequence[float]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean of each column over the runs (rows), and its standard error."""
    rows = np.asarray(estimates)
    return rows.mean(axis=0), np.hypot(rows.std(axis=0, ddof=1) / math.sqrt(len(rows)), ROUNDING)


def _smaller(tree: Tree) -> Iterator[Tree]:
    if tree.ends:
        yield replace(tree, ends=False)
    for steps in range(1, tree.steps):
        yield replace(tree, steps=steps)
    for tokens in range(2, tree.tokens):
        yield replace(tree, tokens=tokens)
    for paths in sorted({1, 2, tree.max_paths // 2, tree.max_paths - 1}):
        if 0 < paths < tree.max_paths:
            yield replace(tree, max_paths=paths)


def _shown(tree: Tree) -> str:
    rows = (" ".join(f"{number:.3f}" for number in row) for row in tree.model.table)
    after = (
        f"after token {last}, the next has probabilities {row}" for last, row in enumerate(rows)
    )
    return "\n".join([f"{tree}, which begins after token 0", *after])
