"""Runs the items of a sweep in this process: one scheduler, several runs in each forward pass.

An item's run at the lowest threshold comes first; the other cells are resimulated from it if that
is exact (`eab.what_if.resimulate`). The model makes the next run for the rest, and so on.
"""

from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from eab import record
from eab.caches.prefixed_tree import prefix_cache
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.many_runs import ActiveRun, ManyRuns
from eab.engine.request import Request
from eab.errors import EabError, RecordError
from eab.events import Event, ModelCard, Probed
from eab.labs.tuning.answer_rule import load_rule
from eab.labs.tuning.cell import Cell, run_file_name
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.work_items import Item, Outcome, SweepProgress, cell_key, item_key
from eab.models.base import LanguageModel
from eab.models.transformers_model import TransformersModel
from eab.run import fold
from eab.run.threshold import threshold_in_nats
from eab.what_if.resimulate import resimulate

WARM_UP_TOKENS = 2
MOST_EVENTS = 100_000  # total of all remembered runs, about 60 MiB


@dataclass(slots=True)
class _Work:
    item: Item
    left: list[BranchingConfig]  # settings that have no cell yet
    cells: list[Cell] = field(default_factory=list)
    runs: dict[str, bytes] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def request(self) -> Request:
        """The request for the next run."""
        return self.item.prompt.request(self.left[0], self.item.policy)

    def outcome(self) -> Outcome:
        """What was made since the last outcome; the rest of the item stays."""
        made = tuple(config for config in self.item.configs if config not in self.left)
        outcome = Outcome(
            replace(self.item, configs=made), tuple(self.cells), tuple(self.failures), self.runs
        )
        self.item = replace(self.item, configs=tuple(self.left))
        self.cells, self.failures, self.runs = [], [], {}
        return outcome


class InProcess:
    """Runs items with one model; ModelError if the rule's NLI model cannot be used."""

    def __init__(
        self,
        model: LanguageModel,
        measurement: Measurement,
        draft: LanguageModel | None = None,
        remember: bool = False,
    ) -> None:
        """With `remember`, later items are resimulated from earlier runs if that is exact."""
        self._model, self._draft, self._measurement = model, draft, measurement
        self._card = _card_of(model)
        self._remembers = remember
        self._prefixes = prefix_cache(model.kv_shape) if measurement.reuse_prompts else None
        # by `item_key`, lowest threshold first
        self._remembered: defaultdict[str, list[Sequence[Event]]] = defaultdict(list)
        self._events = 0
        load_rule(measurement.same_answer)  # cached; any failure comes before the first run

    @property
    def card(self) -> ModelCard:
        return self._card

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | SweepProgress]:
        runs: ManyRuns[_Work] = ManyRuns(self._model, self._draft, self._prefixes, first_alone=True)
        left = list[Item]()
        for item in items:
            work = _Work(item, [*item.configs])
            for run in reversed(self._remembered[item_key(self._card, item)]):
                self._follow(work, run)
            if work.left:
                left.append(item)
                runs.add(work, work.request)
            else:
                yield work.outcome()
        self._warm_up(left)
        with closing(runs):
            while runs.busy:
                for ended in runs.step():
                    self._take(ended)
                    if ended.tag.left:
                        runs.add(ended.tag, ended.tag.request, first=True)
                    yield ended.tag.outcome()
                yield SweepProgress(sum(_tokens_under_way(run) for run in runs.active))

    def _warm_up(self, items: Sequence[Item]) -> None:
        """Run a few tokens, so that the first cells are not timed with slow first passes."""
        for item in items[:1]:
            short = BranchingConfig(max_new_tokens=WARM_UP_TOKENS)
            try:
                for _ in event_stream(self._model, item.prompt.request(short)):
                    pass
            except EabError:
                return  # the item's own run will report the error

    def _take(self, ended: ActiveRun[_Work]) -> None:
        work = ended.tag
        config = work.left.pop(0)
        if ended.problem:
            work.failures.append(f"{work.item.prompt.id}, seed {config.seed}: {ended.problem}")
            return
        self._add(work, config, ended.events, ended.seconds)
        if self._remembers and self._events + len(ended.events) <= MOST_EVENTS:
            self._events += len(ended.events)
            self._remembered[item_key(self._card, work.item)].append(ended.events)
        self._follow(work, ended.events)

    def _follow(self, work: _Work, run: Sequence[Event]) -> None:
        """Add the cells that can be resimulated exactly from a run at a lower threshold."""
        config = work.item.configs[0]
        if config.cache != "tree" or config.drafter != "none":
            return  # a resimulated run has a tree cache and no drafter
        for other in work.left[:]:
            events = self._resimulated(run, other)
            if events is not None:
                self._add(work, other, events, None)
                work.left.remove(other)

    def _add(
        self, work: _Work, config: BranchingConfig, events: Sequence[Event], seconds: float | None
    ) -> None:
        key = cell_key(self._card, work.item.prompt, config)
        name = run_file_name(key)
        if self._measurement.keep_runs:
            try:
                work.runs[name] = record.dumps(events)
            except RecordError as error:  # too large for a run file, but the cell is still valid
                work.failures.append(f"{work.item.prompt.id}, seed {config.seed}: {error}")
        work.cells.append(
            self._measurement.cell(
                key,
                work.item.prompt,
                config,
                fold(events),
                seconds=seconds,
                run_file=name if name in work.runs else None,
            )
        )

    def _resimulated(
        self, events: Sequence[Event], config: BranchingConfig
    ) -> Sequence[Event] | None:
        probe = [event.entropy for event in events if isinstance(event, Probed)]
        threshold = threshold_in_nats(config, self.card.vocab_size, probe)
        try:
            what_if = resimulate(events, threshold, config.r)
        except EabError:
            return None
        ended = fold(what_if.events).ended
        exact = not what_if.unknowns and ended is not None and ended.reason == "finished"
        return what_if.events if exact else None


def _card_of(model: LanguageModel) -> ModelCard:
    """The model's card, with a hash of its weights if it was given loaded: otherwise, models of one
    shape would have the same cells.
    """
    if isinstance(model, TransformersModel) and model.is_given:
        return replace(model.card, sha256=model.fingerprint())
    return model.card


def _tokens_under_way(run: ActiveRun[_Work]) -> float:
    done = run.step / run.tag.left[0].max_new_tokens
    return done * run.tag.item.most_tokens
