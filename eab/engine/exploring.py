"""Texts that a run did not write: to narrow its bounds, or because somebody asks about one.

    run = fold([*before_end(events), *explore(model, events, until=0.05, most=64)])

`explore` writes the most likely text after each of the most probable beginnings that are undecided
(`eab.analysis.undecided`), several in each forward pass, until little is left. The texts get no
weight: the weights of the run stay an unbiased estimate, which is then moved into the bounds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import torch

from eab.analysis.labels import Labelling, labels_of, recorded
from eab.analysis.merged_runs import leave
from eab.analysis.undecided import Beginning, undecided
from eab.caches.prefixed_tree import prefix_cache
from eab.config import PREFIX_CACHE_MIB, BranchingConfig
from eab.engine.continuing import continue_from
from eab.engine.loop import serve
from eab.engine.request import Request
from eab.engine.scoring import TextReader, tokens_of
from eab.engine.step_events import candidates_of
from eab.errors import ConfigError, PromptError
from eab.events import Event, FinishReason, NewToken, PathPrediction, RunEnded, TextScored
from eab.models.base import LanguageModel
from eab.run import RunState, before_end, fold
from eab.run.threshold import probe_config
from eab.token_text import StopStrings

TOGETHER: Final = 8  # texts that are written in the same forward passes
_MIN_LOG_PROB: Final = -1e6  # of a token that the filters remove

Ids = tuple[int, ...]


def explore(
    model: LanguageModel,
    events: Iterable[Event],
    until: float,
    most: int,
    labelling: Callable[[RunState], Labelling] = lambda run: recorded(run.labels),
) -> Iterator[Event]:
    """Explore what is undecided; yields the events that follow those before the end of a run.

    Args:
        events: Those of a complete run of this model.
        until: The unexplored probability at which to end.
        most: The most texts to write.
        labelling: Which texts of the run have a label and need no exploring.

    Raises:
        ConfigError, ModelError: The run is not complete, or this model cannot continue it.
    """
    run = fold(before_end(events))
    writer = _Writer(model, run)
    while most > 0 and labels_of([run], labelling(run)).unexplored > until:
        chosen = undecided(run, labelling(run), min(TOGETHER, most))
        if not chosen:
            break
        for ids, reason in writer.write(chosen):
            event = writer.scored(ids, reason)
            run.apply(event)
            yield event
        most -= len(chosen)
    yield RunEnded(len(run.steps), "finished")


def ask(model: LanguageModel, events: Iterable[Event], text: str) -> Iterator[Event]:
    """How likely the model was to write this text after the prompt of a run, token by token; yields
    the events that follow those before the end of the run.

    Raises:
        PromptError: The tokenizer cannot write the text, it is too long, or a path of the run
            begins with it.
        ConfigError, ModelError: As of `explore`.
    """
    run = fold(before_end(events))
    writer, ids, most = _Writer(model, run), tokens_of(model, text), run.started.config
    if len(ids) > most.max_new_tokens:
        raise PromptError(
            f"the text has {len(ids)} tokens; a text of this run has at most "
            f"{most.max_new_tokens}. Shorten it"
        )
    place = leave(run, ids)
    path = run.paths[place.path]
    if run.tokens_before(path.id) + place.kept == len(ids):
        raise PromptError("a text of this run begins with that; its tokens show how likely it was")
    if path.status == "finished" and place.kept == len(path.tokens):
        raise PromptError("a text of this run ends where that one goes on; give a shorter text")
    yield writer.scored(ids, None, asked=True)
    yield RunEnded(len(run.steps), "finished")


class _Writer:
    """Writes texts after the prompt of a run, and reads how likely they are."""

    def __init__(self, model: LanguageModel, run: RunState) -> None:
        if any(path.status == "live" for path in run.paths):
            raise ConfigError("the run was stopped before its texts ended; run the prompt again")
        if model.kv_shape.blocks is not None:
            raise ConfigError(
                f"{model.card.name} runs on a server, which names only its most likely tokens; "
                "load the model on this machine"
            )
        self._model, self._run = model, run
        self._greedy = replace(probe_config(run.started.config), stop=())
        self._prefixes = prefix_cache(model.kv_shape, PREFIX_CACHE_MIB)
        with torch.inference_mode():
            request = self._request((), run.started.config)
            self._reader = TextReader(model, request, run.started.config.max_new_tokens)

    def _request(self, tokens: Sequence[int], config: BranchingConfig) -> Request:
        started = self._run.started
        return continue_from(self._model, started, (*started.continued_tokens, *tokens), config)

    def write(self, beginnings: Sequence[Beginning]) -> Iterator[tuple[Ids, FinishReason]]:
        """The most likely text after each of these beginnings, and why it ends."""
        longest = self._run.started.config.max_new_tokens
        texts = [self._cut(each.tokens) for each in beginnings]
        requests = [
            self._request(ids, replace(self._greedy, max_new_tokens=longest - len(ids)))
            for ids, reason in texts
            if reason is None
        ]
        written = iter(serve(self._model, requests, prefixes=self._prefixes))
        for ids, reason in texts:
            if reason is None:
                path = fold(next(written)).paths[0]
                ids, reason = self._cut((*ids, *(token.id for token in path.tokens)))
            yield ids, reason or "length"

    def _cut(self, ids: Ids) -> tuple[Ids, FinishReason | None]:
        """The tokens up to where the text ends, and why it does; None if it does not."""
        stop, tail, model = StopStrings(self._run.started.config.stop), (b"", 0), self._model
        for count, token in enumerate(ids, start=1):
            if stop and not model.is_special(token):
                tail = stop.search(tail[0], model.text(token))
            if tail[1] or token in model.stop_ids:
                return ids[:count], "stop"
        ends = len(ids) >= self._run.started.config.max_new_tokens
        return ids, "length" if ends else None

    @torch.inference_mode()
    def scored(self, ids: Ids, reason: FinishReason | None, asked: bool = False) -> TextScored:
        """The event for a text, with all that the run does not have yet."""
        run, model, place = self._run, self._model, leave(self._run, ids)
        first, number = run.tokens_before(place.path) + place.kept, len(run.paths)
        number += place.kept < len(run.paths[place.path].tokens)  # that path is split
        logits, predictions = self._reader.read([ids], whole=True)
        log_probs = predictions.log_prob(range(len(ids)), ids)
        own = logits.double().log_softmax(dim=-1)
        new = range(first, len(ids))
        return TextScored(
            len(run.steps),
            place.path,
            place.kept,
            tuple(
                NewToken(
                    number,
                    ids[at],
                    model.text(ids[at]),
                    max(log_probs[at], _MIN_LOG_PROB),
                    model.is_special(ids[at]),
                )
                for at in new
            ),
            tuple(
                PathPrediction(
                    number, predictions.entropies[at], candidates_of(model, predictions, at)
                )
                for at in new
            ),
            reason,
            tuple(max(float(own[at, ids[at]]), _MIN_LOG_PROB) for at in new) if asked else (),
        )
