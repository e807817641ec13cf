"""A run that a scheduler serves: its events, its memory and served tokens, and how to stop it.

It is a coroutine: first the passes of the probe, if the threshold is a rank, then its own. It
yields the state whose pending tokens the next pass must compute, and receives the events of that
pass. So other runs can be served in the same pass.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from eab.engine.build import KVNeed, build, kv_need, probe
from eab.engine.caches.prefix_cache import Prefixes, common_length
from eab.engine.forward_pass import Part
from eab.engine.generation import Generation
from eab.engine.models.base import LanguageModel
from eab.engine.models.machine import is_out_of_memory
from eab.engine.models.stopping import Stopped
from eab.engine.request import Request
from eab.errors import MemoryLimitError, ServerError
from eab.run.events import Event, RunEnded, TokensAppended
from eab.run.threshold import threshold_in_nats

if TYPE_CHECKING:
    from eab.engine.scheduler import Scheduler


Decoding: TypeAlias = Generator[Generation, list[Event], None]

OUT_OF_MEMORY: Final = (
    "this machine has too little memory for the run. Its tokens so far are kept; use fewer paths "
    "or new tokens, or a smaller model"
)


def decode(
    model: LanguageModel,
    request: Request,
    draft: LanguageModel | None,
    events: list[Event],
    prefixes: Prefixes | None = None,
) -> Decoding:
    """Decode a run, pass by pass. The caller throws in a pass's error, or Stopped to end the run.

    Args:
        events: Receives the events of the run, including RunEnded.
        prefixes: The part of the prefix cache that the run may use; None to use none.
    """
    steps, generation = 0, None
    try:
        threshold_nats = yield from _threshold_in_nats(model, request, events, prefixes)
        generation = build(model, request, threshold_nats, draft, prefixes)
        events.append(generation.started)
        while generation.goes_on:
            events += yield generation
            steps = generation.step
        if generation.live:
            generation.keep_texts()
        early = generation.ended if generation.live else None
        events.append(RunEnded(steps, early or "finished"))
    except Stopped:
        if generation is not None:
            generation.keep_texts()
        events.append(RunEnded(steps, "stopped"))
    except (MemoryLimitError, ServerError) as error:
        events.append(_failed(steps, error, str(error)))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        events.append(_failed(steps, error, OUT_OF_MEMORY))
        if model.kv_pool is not None:
            model.kv_pool.clear()
    finally:
        if generation is not None:
            generation.cache.let_go()


def _failed(steps: int, error: Exception, message: str) -> RunEnded:
    # From Python 3.12 on, the traceback refers back to the error through the frames that called
    # this generator. The cycle would keep the run's K and V until the next garbage collection.
    error.__traceback__ = None
    return RunEnded(steps, "failed", message)


def _threshold_in_nats(
    model: LanguageModel, request: Request, events: list[Event], prefixes: Prefixes | None
) -> Generator[Generation, list[Event], float]:
    """The threshold in nats; a rank requires a probe of this prompt, if the policy uses it."""
    is_used = request.policy is not None or request.config.policy in ("fair", "original")
    needed = is_used and request.config.threshold_unit == "rank"
    entropies = (yield from probe(model, request, events, prefixes)) if needed else []
    return threshold_in_nats(request.config, model.card.vocab_size, entropies)


LEAST_AWAITED: Final = 16  # tokens that another run computes; fewer are not worth waiting for
SLICE: Final = 1024  # tokens after which a run makes room for shorter ones; then twice that, ...


class Handle:
    """A run that a scheduler serves. Iterating yields its events and serves the other runs, too.

    Attributes:
        tokens: How many of its tokens went through the model.
        preemptions: How often its rows were freed, to be recomputed later.
        starting: Whether it has no new token yet: its prompt, or a probe of it, is being computed.
        ended: Whether no more events will come.
        error: The error that ended it; None if an event says how it ended.
    """

    def __init__(
        self,
        scheduler: "Scheduler",
        request: Request,
        owner: str,
        draft: LanguageModel | None,
        should_stop: Callable[[], bool],
        prefixes: Prefixes | None,
    ) -> None:
        self.request, self.owner, self.draft = request, owner, draft
        self.prefixes = prefixes
        self.tokens = self.preemptions = 0
        self.passes_left_out = 0  # since it was last served, because it exceeds its owner's share
        self.starting, self.ended = True, False
        self.error: Exception | None = None
        self._scheduler, self._events = scheduler, list[Event]()
        self._stop, self._should_stop = False, should_stop
        self._decoding = decode(scheduler.model, request, draft, self._events, prefixes)
        self._generation: Generation | None = None  # what the next pass serves; None: not running

    def __iter__(self) -> Iterator[Event]:
        while not self.ended:
            self._scheduler.begin()
            yield from self.new_events()
            self._scheduler.step()
            yield from self.new_events()
        yield from self.new_events()
        if self.error is not None:
            raise self.error

    def new_events(self) -> list[Event]:
        """The events since the last call."""
        new = self._events[:]
        self._events.clear()
        return new

    def stop(self) -> None:
        """End the run before its next pass; may be called from any thread."""
        self._stop = True

    def is_stopping(self) -> bool:
        """Whether the run will end before its next pass; from then on it does."""
        self._stop = self._stop or self._should_stop()
        return self._stop and not self.ended

    @property
    def generation(self) -> Generation:
        """The state that the next pass serves."""
        assert self._generation is not None
        return self._generation

    @cached_property
    def kv_need(self) -> KVNeed:
        """The KV memory that the run needs, from its settings."""
        return kv_need(self._scheduler.model, self.draft, self.request)

    @property
    def reading(self) -> tuple[int, int] | None:
        """How many tokens of its prompt it has read, and of how many, while it reads the prompt."""
        if self._generation is None or not (self.starting and self._generation.prefilling):
            return None
        count = len(self._generation.started.prompt_tokens)
        return count - self._generation.pending_tokens, count

    @property
    def slices(self) -> int:
        """How many of the thresholds SLICE, 2 x SLICE, 4 x SLICE ... its tokens have reached."""
        return (self.tokens // SLICE).bit_length()

    @property
    def kv_held(self) -> int:
        """Bytes of KV memory that the run holds."""
        return self.kv_need.fixed + self.generation.cache.bytes_freeable

    @property
    def kv_next(self) -> int:
        """Bytes of KV memory that the run may hold after its next pass."""
        return self.kv_need.fixed + self.generation.most_bytes_next

    def waits_for(self, others: Sequence["Handle"]) -> bool:
        """Whether one of `others` computes rows in this pass that this run can reuse later."""
        if self.prefixes is None or self.generation.has_begun:
            return False
        text = self.generation.started.prompt_tokens[:-1]
        least = self.prefixes.known(text) + LEAST_AWAITED
        return any(
            other.prefixes == self.prefixes
            and other.generation.prefilling
            and common_length(other.generation.started.prompt_tokens, text) >= least
            for other in others
        ) and self.prefixes.fits(len(text))

    def preempt(self) -> None:
        """Free its rows, if its cache can; the run recomputes them later."""
        if self.generation.cache.bytes_freeable:
            self.generation.cache.free()
            self.preemptions += 1

    def start(self) -> None:
        """Build the run."""
        self._resume(lambda: next(self._decoding))

    def take(self, part: Part) -> None:
        """Continue after a pass."""
        self.tokens += part.tokens
        # The error's traceback refers to the part. This reference cycle would keep the memory of
        # the pass until the next garbage collection.
        error, part.error = part.error, None
        if error is None:
            self._resume(lambda: self._decoding.send(part.events))
        else:
            self._resume(lambda: self._decoding.throw(error))

    def end_stopped(self) -> None:
        """End the run now, as stopped."""
        if self._generation is None:
            self._events.append(RunEnded(0, "stopped"))
            self.drop()
        else:
            self._resume(lambda: self._decoding.throw(Stopped()))

    def _resume(self, go_on: Callable[[], Generation]) -> None:
        try:
            self._generation = go_on()
            if self.starting:
                self.starting = not any(isinstance(event, TokensAppended) for event in self._events)
        except StopIteration:
            self.drop()
        except Exception as error:
            self.error = error
            self.drop()

    def drop(self) -> None:
        """Free what the run holds; no more events follow."""
        self.ended, self._generation = True, None
        self._decoding.close()
