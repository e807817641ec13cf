"""Texts that a run did not write: to narrow its bounds, or because somebody asks about one.

    run = fold([*before_end(events), *explore(model, events, until=0.05, most=64)])

`explore` writes the most likely text after each of the most probable beginnings that are undecided
(`eab.analysis.labels`), several in each forward pass, until little is left. The texts get no
weight: the weights of the run stay an unbiased estimate, which is then moved into the bounds.
`repeat` adds the texts of runs with other seeds, which have weights of their own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from eab.analysis.label_rules import recorded
from eab.analysis.labels import Beginning, Labelling, labels_of, undecided
from eab.analysis.run_comparison import Place, leave
from eab.config import PREFIX_CACHE_MIB, BranchingConfig
from eab.engine.caches.prefix_cache import PrefixCache, prefix_cache
from eab.engine.loop import ManyRuns
from eab.engine.models.base import LanguageModel
from eab.engine.request import Request, continue_from
from eab.engine.scoring import TextReader, tokens_of
from eab.engine.step_events import candidates_of
from eab.errors import ConfigError, MemoryLimitError, PromptError
from eab.formatting import counted
from eab.run import RunState, before_end, fold
from eab.run.events import (
    Event,
    FinishReason,
    NewToken,
    PathPrediction,
    Progressed,
    RunEnded,
    TextScored,
)
from eab.run.threshold import probe_config
from eab.token_text import StopStrings

TOGETHER: Final = 8  # texts that are written in the same forward passes
_CANDIDATES: Final = 3  # of each token of another run; with more, a file could exceed its limits
_MIN_LOG_PROB: Final = -1e6  # of a token that the filters remove

Ids = tuple[int, ...]


def explore(
    model: LanguageModel,
    events: Iterable[Event],
    until: float,
    most: int,
    labelling: Callable[[RunState], Labelling] = lambda run: recorded(run.labels),
) -> Iterator[Event | Progressed]:
    """Explore what is undecided; yields the events that follow those before the end of a run, and
    the progress after each pass.

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
    new = 0
    while new < most and (left := labels_of([run], labelling(run)).unexplored) > until:
        chosen = undecided(run, labelling(run), min(TOGETHER, most - new))
        if not chosen:
            break
        for written in writer.write(chosen):
            if written is not None:
                event = writer.scored(*written)
                run.apply(event)
                yield event
            words = f"{new} of at most {counted(most, 'text')} explored, {left:.0%} unexplored"
            yield Progressed(new / most, words)
        new += len(chosen)
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


def repeat(
    model: LanguageModel, events: Iterable[Event], seeds: Sequence[int], config: BranchingConfig
) -> Iterator[Event | Progressed]:
    """Make the run again with these seeds, several in each forward pass; yields the events that
    follow those before the end of the run, and the progress after each pass. The texts of a run
    follow its end, so that no part of a run is an estimate.

    Args:
        config: The settings of the run, or with a lower limit on memory.

    Raises:
        ConfigError, ModelError, MemoryLimitError: As of `explore`, or a run failed.
    """
    run = fold(before_end(events))
    _check(model, run)
    if config.threshold_unit == "rank":  # its probe is known
        nats = run.started.threshold_nats
        config = replace(config, entropy_threshold=nats, threshold_unit="nats")
    config = replace(
        config, drafter="none", stop_when="ended", token_budget=0
    )  # the same texts, all of them
    tokens, done = run.started.continued_tokens, 0
    requests = {
        seed: continue_from(model, run.started, tokens, replace(config, seed=seed))
        for seed in seeds
    }
    for ended, steps in _made(model, requests, prefix_cache(model.kv_shape, PREFIX_CACHE_MIB)):
        for seed, other in ended.items():
            yield from _texts_of(other, seed, run)
        done += len(ended)
        share = (done + steps / config.max_new_tokens) / len(seeds)
        yield Progressed(share, f"Other seeds: {done} of {len(seeds)} runs")
    yield RunEnded(len(run.steps), "finished")


def _made(
    model: LanguageModel, requests: Mapping[int, Request], prefixes: PrefixCache | None
) -> Iterator[tuple[dict[int, RunState], int]]:
    """After each pass: the runs that ended, and the steps of those that have not."""
    runs = ManyRuns[int](model, prefixes=prefixes)
    try:
        for tag, request in requests.items():
            runs.add(tag, request)
        while runs.busy:
            ended = runs.step()
            for one in ended:
                if one.error is not None:
                    raise one.error
                if one.problem:
                    raise MemoryLimitError(one.problem)
            yield {one.tag: fold(one.events) for one in ended}, sum(one.step for one in runs.active)
    finally:
        runs.close()


def _texts_of(other: RunState, seed: int, run: RunState) -> Iterator[TextScored]:
    """The texts of a run with another seed."""
    for leaf in other.paths:
        tokens = [*other.tokens(leaf.id)]
        if leaf.children or not tokens:
            continue
        place = leave(run, [token.id for token in tokens[:-1]])  # the tree may have all of it
        new = [
            (
                NewToken(place.path, each.id, each.text, each.log_prob, each.special),
                PathPrediction(place.path, each.entropy, tuple(each.candidates[:_CANDIDATES])),
            )
            for each in tokens[place.tokens :]
        ]
        weight = 0.0 if leaf.status == "pruned" else leaf.weight
        yield _scored(run, place, new, leaf.finish_reason, seed=seed, weight=weight)


def _scored(
    run: RunState,
    place: Place,
    new: Sequence[tuple[NewToken, PathPrediction]],
    reason: FinishReason | None,
    **more: Any,
) -> TextScored:
    tokens, predictions = (tuple(part) for part in zip(*new, strict=True))
    return TextScored(len(run.steps), place.path, place.kept, tokens, predictions, reason, **more)


def _check(model: LanguageModel, run: RunState) -> None:
    if any(path.status == "live" for path in run.paths):
        raise ConfigError("the run ended before its texts did; run the prompt again, to their end")
    if model.kv_shape.blocks is not None:
        raise ConfigError(
            f"{model.card.name} runs on a server, which names only its most likely tokens; "
            "load the model on this machine"
        )


class _Writer:
    """Writes texts after the prompt of a run, and reads how likely they are."""

    def __init__(self, model: LanguageModel, run: RunState) -> None:
        _check(model, run)
        self._model, self._run = model, run
        self._greedy = replace(probe_config(run.started.config), stop=(), stop_when="ended")
        self._prefixes = prefix_cache(model.kv_shape, PREFIX_CACHE_MIB)
        with torch.inference_mode():
            request = self._request((), run.started.config)
            self._reader = TextReader(model, request, run.started.config.max_new_tokens)

    def _request(self, tokens: Sequence[int], config: BranchingConfig) -> Request:
        started = self._run.started
        return continue_from(self._model, started, (*started.continued_tokens, *tokens), config)

    def write(self, beginnings: Sequence[Beginning]) -> Iterator[tuple[Ids, FinishReason] | None]:
        """The most likely text after each of these beginnings, and why it ends; None after each
        forward pass.
        """
        longest = self._run.started.config.max_new_tokens
        requests = dict[int, Request]()
        begun = [self._cut(each.tokens) for each in beginnings]
        for number, (ids, reason) in enumerate(begun):
            if reason is not None:
                yield ids, reason
            else:
                greedy = replace(self._greedy, max_new_tokens=longest - len(ids))
                requests[number] = self._request(ids, greedy)
        for ended, _ in _made(self._model, requests, self._prefixes):
            for number, run in ended.items():
                written = (token.id for token in run.paths[0].tokens)
                ids, reason = self._cut((*begun[number][0], *written))
                yield ids, reason or "length"
            yield None

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
        logits, predictions = self._reader.read([ids], whole=True)
        log_probs, listed = (
            predictions.log_prob(range(len(ids)), ids),
            candidates_of(model, predictions),
        )
        rows = range(place.tokens, len(ids))
        new = [
            (
                NewToken(
                    place.path,
                    ids[at],
                    model.text(ids[at]),
                    max(log_probs[at], _MIN_LOG_PROB),
                    model.is_special(ids[at]),
                ),
                PathPrediction(place.path, predictions.entropies[at], listed[at]),
            )
            for at in rows
        ]
        own = logits.double().log_softmax(dim=-1)
        by_model = tuple(max(float(own[at, ids[at]]), _MIN_LOG_PROB) for at in rows)
        return _scored(run, place, new, reason, model_log_probs=by_model if asked else ())
