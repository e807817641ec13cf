"""A finished run at another threshold or growth step r, computed from its events alone.

    what_if = resimulate(events, threshold_nats=1.2)

The engine's own bookkeeping (`eab.engine.generation` and a tree cache) repeats the run with the
recorded decisions instead of a model. Its tensors are on PyTorch's `meta` device, so they have a
size but no content. Rows and bytes are always those of the tree cache.

As long as the path limit drops nothing and `min_fork_weight` is 0, the result is exact: the tree at
a higher threshold is a sub-tree of the recorded one, because a draw depends only on (seed, stream
key, step). Otherwise, the result has an Unknown for each decision that the events do not determine.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NoReturn

import torch
from msgspec import structs

from eab.config import AllocationStep, BranchingConfig
from eab.engine.branching.policies import make_policy
from eab.engine.branching.policy import Child, Leaf, Member
from eab.engine.branching.presets import START
from eab.engine.build import new_cache
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.shape import KVShape, LayerAttention, OwnMemory, RowShape
from eab.engine.generation import Generation
from eab.engine.models.base import LanguageModel
from eab.engine.what_if import Decision, Trace, Unknown, Why
from eab.errors import NO_MODEL, ConfigError, MemoryLimitError, RecordError
from eab.run.events import (
    Event,
    Forked,
    ModelCard,
    Predicted,
    Probed,
    RunEnded,
    RunStarted,
    StepTimed,
    TokensAppended,
    fields,
)
from eab.run.events.chat import Prompt

DTYPES: Final = {
    name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")
}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A resimulated run."""

    events: tuple[Event, ...]
    unknowns: tuple[Unknown, ...]  # where the engine may differ; empty if exact


def resimulate(
    events: Iterable[Event], threshold_nats: float | None = None, r: AllocationStep | None = None
) -> WhatIf:
    """Compute the recorded run at another threshold (nats), another growth step, or both.

    Raises:
        ConfigError: A setting is out of range, or the policy allows no other threshold.
        RecordError: The recorded run has not started, or its events contradict each other.
    """
    try:
        trace = Trace(events)
        started = _started(trace.started, threshold_nats, r)
        probe = [Probed(step, entropy) for step, entropy in enumerate(trace.run.probe)]
        return _Resimulator(trace, started, probe if threshold_nats is None else []).run()
    except (
        IndexError,
        KeyError,
        ValueError,
        AssertionError,
        ArithmeticError,
        struct.error,
    ) as error:
        if isinstance(error, ConfigError):
            raise
        raise RecordError(
            f"the run cannot be resimulated: its events contradict each other ({error!r:.120})"
        ) from error


def _started(
    recorded: RunStarted, threshold_nats: float | None, r: AllocationStep | None
) -> RunStarted:
    if recorded.imported:
        raise ConfigError(NO_MODEL)
    if recorded.own_parts:
        raise ConfigError(
            f"the run used {recorded.own_parts}, which was given in Python and is in no record, so "
            "it cannot be computed again without the model; run the model with other settings"
        )
    if not recorded.config.by_step:
        raise ConfigError(
            "with the policy best-first, the order in which paths grow is not recorded, so the run "
            "cannot be computed at other settings; run the model"
        )
    config = replace(
        recorded.config, cache="tree", drafter="none", r=recorded.config.r if r is None else r
    )
    recorded = structs.replace(recorded, draft=None)
    if threshold_nats is None:
        return structs.replace(recorded, config=config)
    if config.policy == "original" and threshold_nats != recorded.threshold_nats:
        raise ConfigError(
            "with the policy original, the number of children depends on the number of live "
            "paths, so another threshold cannot be computed from this run; run the model"
        )
    config = replace(config, entropy_threshold=float(threshold_nats), threshold_unit="nats")
    return structs.replace(recorded, config=config, threshold_nats=float(threshold_nats))


class RecordedModel(LanguageModel):
    """The parts of a `LanguageModel` that a Generation needs; it cannot predict."""

    def __init__(self, trace: Trace) -> None:
        self.card = trace.started.model
        self.kv_shape = _kv_shape(self.card)
        self.context = len(trace.started.prompt_tokens) + trace.started.config.max_new_tokens
        self.stop_ids = frozenset(trace.stop_tokens)
        prompt = zip(trace.started.prompt_tokens, trace.started.prompt_texts, strict=True)
        self._texts = {token: (text, False) for token, text in prompt} | trace.texts

    def forward(self, batches: Sequence[ForwardBatch]) -> NoReturn:
        """Not possible: a recorded run has no model."""
        raise NotImplementedError("a recorded run has no model")

    def encode(
        self, prompt: Prompt, config: BranchingConfig = START, parse_special: bool = False
    ) -> NoReturn:
        """Not possible: a recorded run has the tokens of its prompt but no tokenizer."""
        raise NotImplementedError("a recorded run has no tokenizer")

    def text(self, token: int) -> str:
        return self._texts[token][0]

    def is_special(self, token: int) -> bool:
        return self._texts[token][1]


def _kv_shape(card: ModelCard) -> KVShape:
    sizes = (card.layers, card.kv_heads, card.head_dim)
    least = 0 if card.own_memory else 1  # a model with its own memory need not have heads
    if card.dtype not in DTYPES or min(sizes) < least or card.layers > fields.MAX_LAYERS:
        raise RecordError(
            f"the run's model has {sizes} layers, heads and sizes of {card.dtype}; no cache has "
            "rows of this size"
        )
    rows = tuple(LayerAttention(rows=RowShape(*row)) for row in card.layer_rows)
    own = None
    if card.own_memory:
        shared = tuple(range(len(rows) or card.layers)) if card.shares_rows else ()
        own = OwnMemory(card.row_bytes, card.state_bytes, shared_layers=shared)
    shape = KVShape(
        len(rows) or card.layers,
        card.kv_heads,
        card.head_dim,
        DTYPES[card.dtype],
        torch.device("meta"),
        attention=rows,
        own=own,
    )
    if shape.row_bytes != card.row_bytes:
        raise RecordError(
            f"the run's model says {card.row_bytes} bytes per row, but its sizes give "
            f"{shape.row_bytes}"
        )
    return shape


class _Resimulator:
    def __init__(self, trace: Trace, started: RunStarted, probe: Sequence[Event]) -> None:
        self.trace, self.started = trace, started
        self.events: list[Event] = [*probe]
        self.unknowns: list[Unknown] = []
        self.recorded_path = {0: 0}  # path of the new tree -> the recorded path that it follows
        self.same = True  # whether all steps so far were decided as in the recorded run
        self.policy = make_policy(started.config, started.threshold_nats)
        model = RecordedModel(trace)
        cache = new_cache(model, started.config)
        self.generation = Generation(model, started, cache, self.policy)

    def run(self) -> WhatIf:
        """Run all steps, as `eab.engine.loop.event_stream` does."""
        try:
            ended = self._steps()
        except MemoryLimitError as error:
            ended = RunEnded(self.generation.step, "failed", str(error))
        exact = not self.unknowns and self.started.what_if != "approximate"
        started = structs.replace(self.started, what_if="exact" if exact else "approximate")
        probe = [event for event in self.events if isinstance(event, Probed)]
        return WhatIf((*probe, started, *self.events[len(probe) :], ended), tuple(self.unknowns))

    def _steps(self) -> RunEnded:
        generation = self.generation
        while generation.live:
            decisions = [
                self.trace.decision(generation.step, self.recorded_path[leaf.path])
                for leaf in generation.live
            ]
            known = [decision for decision in decisions if decision is not None]
            if len(known) < len(decisions):
                return self._cut_short()
            self._step(known)
        return RunEnded(generation.step, "finished")

    def _cut_short(self) -> RunEnded:
        """End where the recorded run ended with live paths."""
        ended = self.trace.ended
        if ended is not None and ended.reason == "failed":
            self.generation.prepare()
        # a run that was stopped at this step, or is the same and decided, ends the same way
        if ended is not None and (ended.stopped or (self.same and ended.early)):
            return RunEnded(self.generation.step, ended.reason)
        last = max(0, self.generation.step - 1)
        self.unknowns += [Unknown(last, leaf.path, "ended") for leaf in self.generation.live]
        return RunEnded(self.generation.step, "stopped")

    def _step(self, decisions: Sequence[Decision]) -> None:
        generation, number = self.generation, self.generation.step
        prefilling = True
        while prefilling:
            batch, growths = generation.prepare()
            self.events += growths
            prefilling = generation.prefilling
            if not prefilling:
                self.events.append(generation.paths.measure(number))
                self._decide(decisions)
            self.events.append(StepTimed(number, len(batch.ids), 0.0, 0.0))

    def _decide(self, decisions: Sequence[Decision]) -> None:
        generation = self.generation
        live = generation.live
        seen = [
            decision.predicted._replace(path=leaf.path)
            for leaf, decision in zip(live, decisions, strict=True)
        ]
        self.events.append(Predicted(generation.step, tuple(seen)))
        self.same = self.same and all(
            self._would_fork(leaf, decision) == self._would_have_forked(decision)
            for leaf, decision in zip(live, decisions, strict=True)
        )
        by_path = {leaf.path: decision for leaf, decision in zip(live, decisions, strict=True)}
        population: list[Member] = []
        weights: list[float | None] = []
        for leaf in generation.paths.leaves:
            members, after = (
                self._recorded(leaf, by_path) if self.same else self._derived(leaf, by_path)
            )
            population += members
            weights += after
        if not self.same:
            weights = self.policy.prune(population, generation.step)
        committed = [*chain.from_iterable(generation.commit(population, weights).values())]
        self._follow(committed, by_path)
        self.events += committed

    def _would_fork(self, leaf: Leaf, decision: Decision) -> bool:
        return self._may_fork(decision, leaf.weight, self.started.threshold_nats)

    def _would_have_forked(self, decision: Decision) -> bool:
        return self._may_fork(decision, decision.weight, self.trace.started.threshold_nats)

    def _may_fork(self, decision: Decision, weight: float, threshold: float) -> bool:
        """The rule of the policy `fair`; others ignore the threshold or keep the recorded one."""
        config = self.started.config
        return (
            config.policy == "fair"
            and (decision.predicted.entropy or 0.0) >= threshold
            and weight >= config.min_fork_weight
        )

    def _recorded(
        self, leaf: Leaf, decisions: Mapping[int, Decision]
    ) -> tuple[Sequence[Member], Sequence[float | None]]:
        """The recorded outcome, path limit included; valid if all steps so far were the same."""
        if leaf.finished:
            return [leaf], [
                self.trace.weight_after(
                    self.generation.step, self.recorded_path[leaf.path], leaf.weight
                )
            ]
        decision = decisions[leaf.path]
        children = _children(leaf, decision, decision.weights)
        lost = [
            Child(leaf, token, 0.0, 0.0, False)
            for token in decision.dropped or ([] if children else [-1])
        ]
        return [*children, *lost], [*decision.weights, *(None for _ in lost)]

    def _derived(
        self, leaf: Leaf, decisions: Mapping[int, Decision]
    ) -> tuple[Sequence[Member], Sequence[float | None]]:
        """The outcome of the recorded decision for a path whose weight or history now differs."""
        if leaf.finished:
            return [leaf], []
        decision = decisions[leaf.path]
        if not decision.tokens:
            self._unknown(leaf, "dropped")
            self.generation.paths.release(leaf.path)
            return [structs.replace(leaf, finished=True)], []
        if self._would_fork(leaf, decision) and self._would_have_forked(decision):
            total = math.fsum(decision.weights)
            if decision.dropped or not math.isclose(total, decision.weight, rel_tol=1e-9):
                self._unknown(leaf, "limit")
            else:
                total = decision.weight
            return _children(
                leaf, decision, [leaf.weight * weight / total for weight in decision.weights]
            ), []
        if self._would_fork(leaf, decision):
            self._unknown(leaf, "fork")
        return [self._unforked(leaf, decision)], []

    def _unforked(self, leaf: Leaf, decision: Decision) -> Child:
        """Continue the path with the child that would have followed without a fork."""
        heir = decision.heir
        if heir is None:
            self._unknown(leaf, "heir")
            heir = max(range(len(decision.tokens)), key=lambda index: decision.weights[index])
        child = decision.tokens[heir]
        return Child(leaf, child.token, child.log_prob or 0.0, leaf.weight, True)

    def _follow(self, committed: Sequence[Event], decisions: Mapping[int, Decision]) -> None:
        parent = {
            child: event.path
            for event in committed
            if isinstance(event, Forked)
            for child in event.children
        }
        appended = [event.tokens for event in committed if isinstance(event, TokensAppended)]
        for new in chain.from_iterable(appended):
            if self.same:
                self.recorded_path[new.path] = new.path
                continue
            decision = decisions[parent.get(new.path, new.path)]
            tokens = [recorded.token for recorded in decision.tokens]
            self.recorded_path[new.path] = decision.paths[tokens.index(new.token)]

    def _unknown(self, leaf: Leaf, why: Why) -> None:
        self.unknowns.append(Unknown(self.generation.step, leaf.path, why))


def _children(leaf: Leaf, decision: Decision, weights: Sequence[float]) -> list[Child]:
    heir = decision.heir
    return [
        Child(leaf, event.token, event.log_prob or 0.0, weight, index == heir)
        for index, (event, weight) in enumerate(zip(decision.tokens, weights, strict=True))
    ]
