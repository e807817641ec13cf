"""One step of several runs: each prepares its tokens, one forward pass computes them all, and each
run decides.

An error ends only the run that causes it. If the shared pass fails, each run gets a pass of its
own. The prepared batches stay valid, because a pass only writes rows allocated for its tokens.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from eab.config import DETERMINISTIC
from eab.engine.branching.sampling import Predictions, RestDraw
from eab.engine.caches.base import ForwardBatch
from eab.engine.generation import PREFILL_CHUNK, Generation
from eab.engine.models.base import LanguageModel
from eab.engine.models.machine import Stopwatch
from eab.engine.models.stopping import Stopped, stopping_when
from eab.errors import ServerError
from eab.run.events import Event, StepTimed


@dataclass(slots=True)
class Part:
    """One run's part of a forward pass."""

    generation: Generation
    prefill_limit: int = PREFILL_CHUNK  # the most tokens of its prompt in this pass
    is_abandoned: Callable[[], bool] = lambda: False  # whether nobody waits for the result
    batch: ForwardBatch | None = None
    predictions: Predictions | None = None
    events: list[Event] = field(default_factory=list)
    error: Exception | Stopped | None = None  # the error that ends the run; None if it continues

    @property
    def tokens(self) -> int:
        """How many tokens of the run go through the model."""
        return 0 if self.batch is None else len(self.batch.ids)

    def prepare(self) -> None:
        """Reserve rows and build the batch."""
        with self._noting_errors(), stopping_when(self.is_abandoned):  # drafts take passes, too
            self.batch, self.events = self.generation.prepare(self.prefill_limit)

    def decide(self, start: float, forward_seconds: float) -> None:
        """Let the run decide; the pass started at `start`."""
        assert self.predictions is not None
        generation = self.generation
        step, drafting = generation.step_of_pass, generation.drafting.seconds
        with self._noting_errors():
            self.events += generation.decide(self.predictions, self.tokens, forward_seconds)
        seconds = time.perf_counter() - start
        self.events.append(StepTimed(step, self.tokens, seconds, forward_seconds, drafting))

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except (Exception, Stopped) as error:
            self.fail(error)

    def fail(self, error: Exception | Stopped) -> None:
        """End the run. Raises Stopped if not the run was stopped, but what it is part of."""
        if isinstance(error, Stopped):
            if not self.is_abandoned():
                raise error
            self.generation.undo_pass()
        self.error = error


@torch.inference_mode()
def run_pass(model: LanguageModel, parts: Sequence[Part]) -> None:
    """Compute the pending tokens of these runs in one forward pass, then let each run decide."""
    start, watch = time.perf_counter(), Stopwatch(model.kv_shape.device)
    for part in parts:
        part.prepare()
    computed = _forward(model, _without_error(parts))
    drafting = sum(part.generation.drafting.seconds for part in parts)
    try:
        watch.stop()
        for together, logits in computed:
            _predict(together, logits)
        forward_seconds = watch.seconds - drafting
    except RuntimeError as error:  # a device error: no run can continue
        for part in _without_error(parts):
            part.error = error
    for part in _without_error(parts):
        part.decide(start, forward_seconds)


def _without_error(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.error is None]


def _forward(model: LanguageModel, parts: Sequence[Part]) -> list[tuple[Sequence[Part], Tensor]]:
    """Compute the logits of these runs, (P, V), in one pass, or run by run if the shared pass
    fails. If a run is stopped, the pass is left, and repeated for the others.
    """
    batches = [part.batch for part in parts if part.batch is not None]
    if not batches:
        return []
    try:
        # A pass of models with their own memory cannot be repeated: the memory moves on.
        leaves = any if model.kv_shape.own is None else all
        with stopping_when(lambda: leaves(part.is_abandoned() for part in parts)):
            return [(parts, model.forward(batches))]
    except Stopped as error:
        for part in [part for part in parts if part.is_abandoned()] or parts:
            part.fail(error)
        together = [_without_error(parts)]
    except Exception as error:
        # If a server fails, retrying run by run does not help.
        if len(parts) == 1 or isinstance(error, ServerError):
            for part in parts:
                part.fail(error)
            return []
        together = [[part] for part in parts]
    # Outside the handler, which would keep the memory of the failed pass alive.
    return [each for some in together for each in _forward(model, some)]


def _predict(parts: Sequence[Part], logits: Tensor) -> None:
    """Process the logits of these runs and draw their next tokens: all together, or run by run if
    that fails.
    """
    counts = [len(part.batch.logits_indices) for part in parts if part.batch is not None]
    try:
        generations = [part.generation for part in parts]
        pairs = [*zip(generations, logits.split(counts), strict=True)]
        for generation, own in pairs:
            generation.show_logits(own)
        scores = logits
        if any(generation.processors for generation in generations):
            each = [generation.processed(own) for generation, own in pairs]
            scores = each[0] if len(each) == 1 else torch.cat(each)
        runs = [(run.config, count) for run, count in zip(generations, counts, strict=True)]
        predictions = Predictions(scores, runs)
        uniforms: list[float] = []
        rests: list[RestDraw] = []
        for generation in generations:
            policy, at = generation.policy, generation.predicted
            rests += policy.rest_draws(predictions, len(uniforms), at)
            uniforms += policy.uniforms(at)
        if any(generation.config.policy not in DETERMINISTIC for generation in generations):
            predictions.draw_next(uniforms, rests)
        for part, own in zip(parts, predictions.split(counts), strict=True):
            part.predictions = own
        return
    except Exception as error:
        if len(parts) == 1:
            parts[0].error = error
            return
    for part, own_logits in zip(parts, logits.split(counts), strict=True):
        _predict([part], own_logits)
