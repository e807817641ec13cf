"""A job, as a server sees it: a run, or the work of a laboratory. Imports no torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from eab.config import DETERMINISTIC, MAX_SEED, BranchingConfig
from eab.engine.request import Request, continue_from
from eab.run import RunFold, RunState, before_end, fold_prefix
from eab.run.events import Event, Message, Progressed, RunEnded, RunStarted

MAX_EXPLORED: Final = 256  # texts that one job adds
SEEDS: Final = 8  # with which a run is made, for a standard error

if TYPE_CHECKING:
    from eab.engine.models.base import LanguageModel


class JobState(Protocol):
    """The state that the events of a job lead to."""

    @property
    def ended(self) -> RunEnded | None:
        """The last event; None while more are to come."""

    @property
    def progress(self) -> Progressed:
        """How far the job is."""

    @property
    def made(self) -> str:
        """What the job has produced so far, such as "12 steps"."""

    def apply(self, event: Any) -> None:
        """Fold one more event."""


State = TypeVar("State", bound=JobState)


class JobContext(NamedTuple):
    """What a job gets when it starts."""

    model: "LanguageModel"
    draft: "LanguageModel | None"  # None unless the job needs it
    requests: Sequence[Request]  # their KV limits are within what the server allows


Begin: TypeAlias = Callable[[JobContext], Request | Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Job(Generic[State]):
    """What a visitor asks the worker to compute."""

    kind: str  # by which callers find their own kind of job
    model_name: str  # as `eab.engine.models.loading` names it
    state: State  # what its events are folded into; empty at first
    # returns the request that a scheduler serves together with others, or the events of a job that
    # takes turns of its own, each up to a Pause
    begin: Begin
    # its requests to the model that are known in advance; prompts that are empty or too long are
    # refused before the job is queued
    requests: tuple[Request, ...] = ()
    # the settings of all its runs, if they differ from those of the requests
    configs: tuple[BranchingConfig, ...] = ()
    max_turns: int = 1
    needs_draft: bool = False
    begun: Sequence[Any] = ()  # the events that its state already holds
    # the event after which the job stops; no visitor asked for such a job, so it is not counted
    stops_after: type[Any] | None = None

    @property
    def sizes(self) -> Sequence[BranchingConfig]:
        """The settings of all its runs."""
        return self.configs or [request.config for request in self.requests]

    def with_limits(self, limited: Callable[[BranchingConfig], BranchingConfig]) -> "Job[State]":
        """The same job with limited settings."""
        requests = (replace(request, config=limited(request.config)) for request in self.requests)
        return replace(self, requests=tuple(requests))


def run_job(
    prompt: str,
    config: BranchingConfig,
    model_name: str,
    messages: tuple[Message, ...] = (),
    probe_only: bool = False,
) -> Job[RunFold]:
    """A job that runs a prompt; `probe_only` ends it after the probe of a rank threshold."""
    asked = Request(prompt, config, messages=messages)
    job = _run(asked, model_name, lambda context: context.requests[0])
    return replace(job, kind="probe", stops_after=RunStarted) if probe_only else job


def continued_run_job(
    started: RunStarted, continued: Sequence[int], config: BranchingConfig, model_name: str
) -> Job[RunFold]:
    """A job that continues another run: `continued` follows that run's prompt."""

    def begin(context: JobContext) -> Request:
        return continue_from(context.model, started, continued, context.requests[0].config)

    return _run(Request(started.prompt, config, messages=started.messages), model_name, begin)


def extended_run_job(
    events: Sequence[Event],
    model_name: str,
    until: float = 0.0,
    text: str = "",
    seeds: Sequence[int] = (),
) -> Job[RunFold]:
    """A job that adds texts to a complete run: those of runs with other seeds, `text`, or what it
    explores (see `exploring`).
    """

    def begin(context: JobContext) -> Iterator[Event | Progressed]:
        from eab.engine.exploring import ask, explore, repeat

        if seeds:
            return repeat(context.model, events, seeds, context.requests[0].config)
        if text:
            return ask(context.model, events, text)
        return explore(context.model, events, until, MAX_EXPLORED)

    begun = before_end(events)
    state = fold_prefix(begun)
    started = state.started_run().started
    asked = Request(started.prompt, started.config, messages=started.messages)
    return replace(_run(asked, model_name, begin), state=state, begun=begun)


def more_seeds(run: RunState) -> list[int]:
    """The seeds with which a run is to be made again; none if this was done or changes nothing."""
    config = run.started.config
    if config.policy in DETERMINISTIC:
        return []
    following = ((config.seed + number) % (MAX_SEED + 1) for number in count(1))
    new = (seed for seed in following if seed not in run.repeats)
    return [*islice(new, max(0, SEEDS - 1 - len(run.complete_repeats)))]


def _run(asked: Request, model_name: str, begin: Begin) -> Job[RunFold]:
    return Job(
        "run",
        model_name,
        RunFold(),
        begin,
        requests=(asked,),
        max_turns=asked.config.max_new_tokens,
        needs_draft=asked.config.drafter == "model",
    )
