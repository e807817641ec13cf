"""Runs the items of a sweep in this process: one scheduler, several runs in each forward pass.

An item's run at the lowest threshold comes first; the other cells are resimulated from it if that
is exact (`eab.what_if.resimulate`). The model makes the next run for the rest, and so on.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec import structs

from eab import record
from eab.caches.prefixed_tree import prefix_cache
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.many_runs import ActiveRun, ManyRuns
from eab.engine.request import Request
from eab.errors import EabError, RecordError
from eab.events import Event, ModelCard, Probed
from eab.labs.tuning.cell import Cell, run_file_name
from eab.labs.tuning.measure import Measurement, load_rule
from eab.labs.tuning.sweeping import Item, Outcome, cell_key
from eab.models.base import LanguageModel
from eab.models.transformers_model import TransformersModel
from eab.run import fold
from eab.run.threshold import threshold_in_nats
from eab.what_if.resimulate import resimulate

WARM_UP_TOKENS = 2


# Settings, with the events of their run, and its share of the time; None if it is resimulated
_Made: TypeAlias = tuple[BranchingConfig, Sequence[Event], float | None]


@dataclass(frozen=True, slots=True)
class _Work:
    item: Item
    left: list[BranchingConfig]  # settings that have no cell yet

    @property
    def request(self) -> Request:
        """The request for the next run."""
        return self.item.prompt.request(self.left[0], self.item.policy)


class InProcess:
    """Runs items with one model; ModelError if the rule's NLI model cannot be used."""

    def __init__(
        self, model: LanguageModel, measurement: Measurement, draft: LanguageModel | None = None
    ) -> None:
        self._model, self._draft, self._measurement = model, draft, measurement
        self._card = _card_of(model)
        self._prefixes = prefix_cache(model.kv_shape) if measurement.reuse_prompts else None
        load_rule(measurement.same_answer)  # cached; any failure comes before the first run

    @property
    def card(self) -> ModelCard:
        return self._card

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | None]:
        runs: ManyRuns[_Work] = ManyRuns(self._model, self._draft, self._prefixes, first_alone=True)
        for item in items:
            work = _Work(item, [*item.configs])
            runs.add(work, work.request)
        self._warm_up(items)
        with closing(runs):
            while runs.busy:
                for ended in runs.step():
                    outcome = self._ended(ended)
                    if ended.tag.left:
                        runs.add(ended.tag, ended.tag.request, first=True)
                    yield outcome
                yield None

    def _warm_up(self, items: Sequence[Item]) -> None:
        """Run a few tokens, so that the first cells are not timed with slow first passes."""
        for item in items[:1]:
            short = BranchingConfig(max_new_tokens=WARM_UP_TOKENS)
            try:
                for _ in event_stream(self._model, item.prompt.request(short)):
                    pass
            except EabError:
                return  # the item's own run will report the error

    def _ended(self, ended: ActiveRun[_Work]) -> Outcome:
        """The cells of a run, and those that follow from it."""
        work, config = ended.tag, ended.tag.left[0]
        if ended.problem:
            work.left.remove(config)
            words = f"{work.item.prompt.id}, seed {config.seed}: {ended.problem}"
            return Outcome(replace(work.item, configs=(config,)), (), (words,))
        made: _Made = config, ended.events, ended.seconds
        return self._outcome(work, [made, *self._following(work, ended.events, config)])

    def _following(self, work: _Work, run: Sequence[Event], made: BranchingConfig) -> list[_Made]:
        """The cells that are left and can be resimulated exactly from the run of `made`."""
        config = work.item.configs[0]
        if config.cache != "tree" or config.drafter != "none":
            return []  # a resimulated run has a tree cache and no drafter
        others = [other for other in work.left if other != made]
        found = [(other, self._resimulated(run, other)) for other in others]
        return [(other, events, None) for other, events in found if events is not None]

    def _outcome(self, work: _Work, made: Sequence[_Made]) -> Outcome:
        """The outcome of these settings, which are then no longer left."""
        cells, failures, runs = list[Cell](), list[str](), dict[str, bytes]()
        prompt = work.item.prompt
        for config, events, seconds in made:
            work.left.remove(config)
            key = cell_key(self._card, prompt, config)
            name = run_file_name(key)
            if self._measurement.keep_runs:
                try:
                    runs[name] = record.dumps(events)
                except RecordError as error:  # too large for a file, but the cell is still valid
                    failures.append(f"{prompt.id}, seed {config.seed}: {error}")
            file = name if name in runs else None
            run = fold(events)
            cells.append(
                self._measurement.cell(key, prompt, config, run, seconds=seconds, run_file=file)
            )
        item = replace(work.item, configs=tuple(config for config, _, _ in made))
        return Outcome(item, tuple(cells), tuple(failures), runs)

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
        return structs.replace(model.card, sha256=model.fingerprint())
    return model.card
