"""The state of one run: its paths, policy, drafts, limits and KV cache.

`prepare` returns the batch of the next forward pass, and `decide` turns its predictions into
events. It knows nothing of other runs; of the model, only the vocabulary and the KV shape.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from eab.engine.branching.beam import BeamPolicy
from eab.engine.branching.filters import processed
from eab.engine.branching.own import Processor
from eab.engine.branching.policy import Leaf, Member, Policy
from eab.engine.branching.random_streams import ROOT
from eab.engine.branching.sampling import Predictions
from eab.engine.caches.base import ForwardBatch, KVCache
from eab.engine.models.base import LanguageModel
from eab.engine.paths import Lookahead, Paths
from eab.engine.request import LogitsReader
from eab.engine.speculation.speculator import Drafting, Speculator
from eab.engine.step_events import Ending, predicted
from eab.errors import MemoryLimitError, ModelError
from eab.run.events import Event, RowsAllocated, RunStarted

PREFILL_CHUNK = 512  # tokens
MIN_PREFILL_CHUNK = 16  # tokens
# The tokens of a chunk times the rows they see; bounds the attention mask and, on a CPU, the time
# of a pass, at no cost (5,626 tokens of SmolLM2: 19.8 s with both, a pass at most 2.7 or 1.0 s).
MAX_CELLS, MAX_CELLS_ON_CPU = 2**23, 2**20


class Generation:
    """The state of one run; `eab.engine.build` chooses its parts."""

    def __init__(
        self,
        model: LanguageModel,
        started: RunStarted,
        cache: KVCache,
        policy: Policy,
        speculator: Speculator | None = None,
        processors: Sequence[Processor] = (),
        logits_reader: LogitsReader | None = None,
    ) -> None:
        self.started, self.config, self.cache = started, started.config, cache
        self._model, self.policy = model, policy
        self.processors, self._logits_reader = processors, logits_reader
        drafter = speculator.drafter if speculator is not None else None
        self.paths = Paths(model, started, cache, drafter)
        if isinstance(policy, BeamPolicy):
            policy.ends = self.paths.ends
        self.drafting = Drafting(model, self.paths, cache, policy, speculator)
        self.selected = policy.select(self.live)  # the paths whose next token is decided next
        self._ending = Ending(started)
        self.ended = self._ending.reason([])  # why its settings end it; None while they do not
        self._in_pass: list[Leaf] = []  # the paths of the current forward pass
        self._counted: list[tuple[Lookahead, int]] = []  # how many of their tokens it computes
        self.has_begun = False  # whether it has taken over what the prefix cache holds
        self._recomputing = False  # whether the current pass computes freed tokens again
        self._rope_switch = model.kv_shape.rope_switch
        self._long = 0 < self._rope_switch < self.paths.prompt_length  # past the switch

    @property
    def live(self) -> list[Leaf]:
        """The paths that still decode, in tree order."""
        return self.paths.live

    @property
    def goes_on(self) -> bool:
        """Whether a path still decodes, and the settings do not end the run."""
        return bool(self.live) and self.ended is None

    @property
    def step(self) -> int:
        """The number of tokens decided on every live path; under `best-first`, on the longest."""
        return self.paths.step

    @property
    def step_of_pass(self) -> int:
        """The step that the next pass is measured at: that of its longest path, or under
        `best-first` the last one that was decided on any path.
        """
        return max([self.step - 1, *(leaf.tokens for leaf in self.selected)])

    @property
    def prefilling(self) -> bool:
        """Whether prompt tokens, or freed ones, are still to be computed."""
        if self._recomputing or self.cache.freed_tokens:
            return True
        states = self.paths.lookahead.values()
        return any(state.num_computed < self.paths.prompt_length for state in states)

    @property
    def pending_tokens(self) -> int:
        """The most tokens of the prompt, or of all paths, that the next pass computes; draft tokens
        are not counted.
        """
        freed = self.cache.freed_tokens
        return freed or sum(state.num_pending for state in self.paths.states(self.selected))

    @property
    def most_bytes_next(self) -> int:
        """The most bytes that the cache can hold, and free, after the next pass."""
        paths = len(self.selected)
        tokens = self.pending_tokens + self.drafting.most(paths)
        return self.cache.most_bytes_after(tokens, paths, self._initial_rows())

    def reuse_prefix(self) -> None:
        """Reuse the part of the prompt that the prefix cache holds, before the first pass."""
        if not self.has_begun:
            self.has_begun, root = True, self.paths.lookahead[0]
            root.num_computed = self.cache.begin_with(root.tokens[:-1])

    def keep_texts(self) -> None:
        """Add the live paths to the prefix cache."""
        if not (self._recomputing or self.cache.freed_tokens):
            for leaf in self.live:
                self.paths.keep(leaf.path)

    def prepare(self, prefill_limit: int = PREFILL_CHUNK) -> tuple[ForwardBatch, list[Event]]:
        """Reserve cache rows for the pending tokens and build the batch that computes them.

        Args:
            prefill_limit: The most prompt tokens, or freed ones, in this pass.

        Raises:
            MemoryLimitError: The rows do not fit, even without draft tokens.
        """
        self.reuse_prefix()
        self._counted = []
        if not self.cache.freed_tokens:
            self._in_pass = [leaf for leaf in self.selected if self.paths.needs_pass(leaf)]
            if self._rope_switch > 0 and not self._long:
                self._switch_rope()
        if self.cache.freed_tokens:
            self._recomputing = True
            batch = self.cache.prepare_freed(min(prefill_limit, PREFILL_CHUNK))
            return replace(batch, long=self._long), []
        left = self.config.max_new_tokens - min(leaf.tokens for leaf in self.selected)
        first = self.cache.reserve(self._initial_rows(), left)
        chunk = self._chunk(prefill_limit)
        states = self.paths.states(self._in_pass)
        pending = [state.pending(chunk) for state in states]
        if not self.prefilling:
            switch = 0 if self._long else self._rope_switch  # one kind of RoPE per pass
            self.drafting.propose(self._in_pass, self.config.max_new_tokens, switch)
        try:
            batch = self._batch(states, pending)
        except MemoryLimitError:  # there may be room without the draft tokens
            self.drafting.drop(self._in_pass)
            batch = self._batch(states, pending)
        for state, tokens in zip(states, pending, strict=True):
            self._counted.append((state, len(tokens)))
            state.num_computed += len(tokens)
        growths = ([first] if first else []) + list(batch.growths)
        step = self.step_of_pass
        return replace(batch, long=self._long), [RowsAllocated(step, one) for one in growths]

    def undo_pass(self) -> None:
        """Count the tokens of a pass that was left as not computed; some layers lack their rows."""
        for state, count in self._counted:
            state.num_computed -= count

    def _switch_rope(self) -> None:
        """If long texts have different K and V, recompute everything once all paths are that long.
        Until then, the paths that are long already wait for the short ones.
        """
        states, switch = self.paths.lookahead, self._rope_switch
        short = [leaf for leaf in self._in_pass if len(states[leaf.path].tokens) <= switch]
        if short:
            self._in_pass = short
            return
        self._long = True
        if self.cache.bytes_freeable:
            self.cache.free()  # then shared rows are computed once
            return
        for path, state in states.items():
            self.cache.trim(path, 0)
            state.num_computed = 0

    def _chunk(self, limit: int) -> int:
        """The most prompt tokens in a pass. Caches that copy K and V at every append take whole
        chunks: the copied bytes that they report must not depend on the other runs in the pass.
        """
        if self._long and self.step > 0:  # whole texts are recomputed
            return max(len(state.tokens) for state in self.paths.lookahead.values())
        own = self._model.kv_shape.own
        if own is not None and own.whole_prompts:
            return self.paths.prompt_length
        on_cpu = self._model.kv_shape.device.type == "cpu"
        cells = (MAX_CELLS_ON_CPU if on_cpu else MAX_CELLS) // self.paths.prompt_length
        chunk = min(PREFILL_CHUNK, max(MIN_PREFILL_CHUNK, cells))
        return min(chunk, limit) if self.config.cache == "tree" else chunk

    def _initial_rows(self) -> int:
        """Rows to hold from the start: the prompt's or, with r at its maximum, those of the whole
        run. The last token of a path needs no row, because nothing follows it.
        """
        config = self.config
        up_front = config.r != "auto" and config.r >= config.max_new_tokens
        steps = config.max_new_tokens - 1 if up_front else 0
        return self.paths.prompt_length - self.cache.rows_in_place + config.max_paths * steps

    def _batch(self, states: Sequence[Lookahead], pending: Sequence[Sequence[int]]) -> ForwardBatch:
        pairs = zip(states, pending, strict=True)
        return self.cache.prepare(
            [leaf.path for leaf in self._in_pass],
            [[*tokens, *state.draft_tokens] for state, tokens in pairs],
            [1 + len(state.draft_tokens) for state in states],
        )

    @property
    def predicted(self) -> list[tuple[int, int]]:
        """For each prediction of the current pass, the stream key of its path and its step."""
        if self._recomputing:
            return [(ROOT, 0)]  # not used
        return [(leaf.stream_key, step) for leaf, step in self.paths.logits_rows(self._in_pass)]

    def show_logits(self, logits: Tensor) -> None:
        """Give the logits of the current pass to the request's reader. Logits after a rejected
        draft token are included; that step comes again when its replacement is computed.
        """
        if self._logits_reader is None or self.prefilling:
            return
        rows = self.paths.logits_rows(self._in_pass)
        for (leaf, step), row in zip(rows, logits, strict=True):
            self._logits_reader(leaf.path, step, row)

    def processed(self, logits: Tensor) -> Tensor:
        """Apply the logits processors to the logits of the current pass. Logits inside the prompt
        are not needed; those after a draft token are, if it and those before it are accepted.
        """
        if not self.processors or self.prefilling:
            return logits
        texts = [
            [*state.tokens, *state.draft_tokens[:count]]
            for state in self.paths.states(self._in_pass)
            for count in range(len(state.draft_tokens) + 1)
        ]
        return processed(self.processors, logits, texts)

    def decide(self, predictions: Predictions, tokens: int, forward_seconds: float) -> list[Event]:
        """Use the predictions of the pass, and decide every step that all selected paths have
        reached.

        Args:
            predictions: One for each entry of `predicted`, with drawn tokens.
            tokens: How many tokens of this run went through the model.
        """
        if self.prefilling:  # the predictions inside the prompt are not needed
            self._recomputing = False
            return []
        step, start = self.step, time.perf_counter()
        if step == 0 and len(self.paths.leaves) == 1:
            self.paths.keep(0)  # other runs may wait for the prompt
        self._check(predictions)
        speculated = self.drafting.verify(self._in_pass, predictions)
        seconds = forward_seconds + time.perf_counter() - start
        events: list[Event] = [*speculated]
        states = self.paths.lookahead
        while self.goes_on and all(states[leaf.path].predictions for leaf in self.selected):
            new = [self.paths.measure(self.step_of_pass), *self._decide_step()]
            events += new
            self.ended = self._ending.reason(new)
        if step > 0:  # the prefill has no draft tokens
            paths, steps = len(self._in_pass), self.step - step
            self.drafting.observe(tokens, seconds, speculated, paths, steps)
        return events

    def _check(self, predictions: Predictions) -> None:
        """Raise ModelError if logits are NaN, or none is finite."""
        if not any(map(math.isnan, predictions.entropies)):
            return
        precise = self.started.model.dtype in ("float32", "float64")
        advice = "its weights may be damaged" if precise else "try dtype float32"
        raise ModelError(f"the model returned NaN or infinite logits at step {self.step}; {advice}")

    def _decide_step(self) -> list[Event]:
        """Choose the next token of every selected path: fork, prune, finish."""
        selected, states = self.selected, self.paths.lookahead
        predictions = Predictions.joined(
            [states[leaf.path].predictions.popleft() for leaf in selected]
        )
        seen = predicted(self._model, self.config, selected, predictions)
        branches = self.policy.branch(selected, predictions, self.step)
        families = dict(zip((leaf.path for leaf in selected), branches, strict=True))
        population = [
            member
            for leaf in self.paths.leaves
            for member in families.get(leaf.path, [leaf])  # the others are finished, or wait
        ]
        happened = self.commit(population, self.policy.prune(population, self.step))
        return [
            event
            for step, events in happened.items()
            for event in [*([seen[step]] if step in seen else []), *events]
        ]

    def commit(
        self, population: Sequence[Member], weights: Sequence[float | None]
    ) -> dict[int, list[Event]]:
        """Take over a decision (see `Paths.commit`), and select the paths of the next one."""
        happened = self.paths.commit(population, weights)
        self.selected = self.policy.select(self.live)
        return happened
