"""Runs from samples that others made: `run = eab.from_samples("samples.jsonl")`."""

import math
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from eab import token_text
from eab.analysis.sample_tree import Branch, sample_tree
from eab.api.arguments import Prompt
from eab.api.run import Run
from eab.config import MAX_PATHS, BranchingConfig
from eab.engine.models.loading import load_tokenizer
from eab.engine.models.prompts import TokenTexts
from eab.engine.step_events import entropy_bounds
from eab.errors import ConfigError
from eab.run.events import (
    Candidate,
    DroppedTokens,
    EntropyBounds,
    Event,
    Forked,
    KvMeasured,
    KVUsage,
    LimitActed,
    ModelCard,
    NewToken,
    PathFinished,
    PathPrediction,
    PathRows,
    Predicted,
    RunEnded,
    RunStarted,
    StepTimed,
    TokensAppended,
)
from eab.run.events.fields import MAX_CANDIDATES
from eab.run.record.samples import (
    CUT,
    Found,
    PromptSamples,
    Sample,
    SampleReader,
    Vocabulary,
    lines_of,
    pairs_of,
)

Samples: TypeAlias = str | Path | Iterable[Any]
_LARGEST_VOCABULARY: Final = 2**20  # tokens; no known vocabulary is as large
_ALL: Final = 1 - 1e-5  # the sum of all probabilities, up to rounding


def from_samples(
    samples: Samples,
    prompt: Prompt | None = None,
    tokenizer: str | PreTrainedTokenizerBase | None = None,
) -> Run:
    """A run from samples that others made.

        run = eab.from_samples("samples.jsonl")
        run = eab.from_samples(["Paris.", "Paris, France."], "The capital of France is")

    The samples become a tree: what they have in common from the start appears once, and the weight
    of a path is its share of the samples. It has at most 256 texts; if there are more, some drawn
    at random stand for the others (see `eab.analysis.sample_tree`). What needs a model, such as
    another threshold, is refused.

    Args:
        samples: The path of a file of JSON lines, or a list of objects as in such a file, of texts,
            or of responses of OpenAI's library. docs/library.md describes the formats.
        prompt: The prompt of samples that name none.
        tokenizer: The tokenizer of the model, or the model's name; it splits texts, and gives the
            texts of token ids. Without it, a text is split into words and signs.

    Raises:
        RecordError: The file cannot be read.
        ConfigError: Samples are wrong (the error has the reason for each line), or have several
            prompts.
        ModelError: There is no such tokenizer.
    """
    with closing(runs_from_samples(samples, prompt, tokenizer)) as runs:
        run = next(runs)
        if next(runs, None) is not None:
            raise ConfigError(
                "the samples have several prompts, and a run has one; runs_from_samples gives a "
                "run for each"
            )
    return run


def runs_from_samples(
    samples: Samples,
    prompt: Prompt | None = None,
    tokenizer: str | PreTrainedTokenizerBase | None = None,
) -> Generator[Run]:
    """A run for each prompt, in order of appearance; see `from_samples`."""
    vocabulary = Vocabulary()
    if tokenizer is not None:
        known = load_tokenizer(tokenizer)[0] if isinstance(tokenizer, str) else tokenizer
        vocabulary = Vocabulary(known, TokenTexts(known))
    with lines_of(samples) as (file, name):
        reader = SampleReader(file, name, vocabulary, prompt)
        for group in reader.find():
            yield Run(_events(reader, group))


def _events(reader: SampleReader, group: PromptSamples) -> Iterator[Event]:
    found = sorted(group.found, key=lambda one: one.key)
    root = sample_tree([np.frombuffer(one.key, ">u4") for one in found], MAX_PATHS)
    steps = list(_Growth(reader, found).steps(root))
    yield _started(group, reader.vocabulary, root, len(steps))
    for events in steps:
        yield from events
    yield RunEnded(step=len(steps), reason="finished")


def _started(group: PromptSamples, vocabulary: Vocabulary, root: Branch, steps: int) -> RunStarted:
    tokens = group.token_ids or tuple(vocabulary.split(group.prompt))
    texts = tuple(map(vocabulary.text, tokens))
    config = BranchingConfig(policy="independent", max_paths=root.leaves, max_new_tokens=steps)
    model = ModelCard(
        name=group.model or "imported",
        family="imported",
        vocab_size=_LARGEST_VOCABULARY,
        layers=0,
        kv_heads=0,
        head_dim=0,
        dtype="",
        device="",
        row_bytes=0,
    )
    return RunStarted(
        prompt=group.prompt or token_text.join(texts),
        prompt_tokens=tokens,
        prompt_texts=texts,
        model=model,
        config=config,
        threshold_nats=config.entropy_threshold,
        messages=group.messages,
        by_token_ids=bool(group.token_ids),
        imported=len(group.found),
    )


class _Place(NamedTuple):
    """A place of a sample: its token, and what is known of the distribution before it."""

    token: int
    text: str
    log_prob: float | None
    special: bool
    entropy: float | None
    candidates: tuple[Candidate, ...]
    whole: EntropyBounds | None


@dataclass(frozen=True, slots=True)
class _Path:
    """A path of the tree, with its number in the run."""

    id: int
    branch: Branch
    stop: int  # the step after its last token
    places: Sequence[_Place]  # at each step from 0 on
    was_cut: bool

    def seen(self, step: int) -> PathPrediction:
        at = self.places[step]
        return PathPrediction(
            path=self.id, entropy=at.entropy, candidates=at.candidates, whole=at.whole
        )

    def token(self, step: int) -> NewToken:
        at = self.places[step]
        return NewToken(
            path=self.id, token=at.token, text=at.text, log_prob=at.log_prob, special=at.special
        )

    def ends_after(self, step: int) -> bool:
        return not self.branch.children and self.stop == step + 1


class _Growth:
    """Lets a tree of samples grow step by step, as if it were generated."""

    def __init__(self, reader: SampleReader, found: Sequence[Found]) -> None:
        self._reader, self._found = reader, found
        self._read: dict[int, tuple[list[_Place], bool]] = {}  # places, and whether it was cut
        self._born = 0

    def steps(self, root: Branch) -> Iterator[list[Event]]:
        """The events of each step."""
        live, step = [self._path(root)], 0
        while live:
            grown, forks = self._forked(live, step)
            dropped = tuple(
                DroppedTokens(path=path.id, tokens=path.branch.dropped[:MAX_PATHS])
                for path in live
                if path.branch.dropped_at == step
            )
            yield [
                KvMeasured(step=step, usage=_nothing_held(live)),
                Predicted(step=step, predictions=tuple(path.seen(step) for path in live)),
                *([LimitActed(step=step, dropped=dropped)] if dropped else []),
                *forks,
                TokensAppended(step=step, tokens=tuple(path.token(step) for path in grown)),
                *(self._finished(path, step) for path in grown if path.ends_after(step)),
                StepTimed(step=step, tokens=0, seconds=0.0, forward_seconds=0.0),
            ]
            live = [path for path in grown if not path.ends_after(step)]
            step += 1

    def _forked(self, live: Sequence[_Path], step: int) -> tuple[list[_Path], list[Event]]:
        """The paths after the forks of this step, and the forks."""
        grown: list[_Path] = []
        forks: list[Event] = []
        for path in live:
            if path.stop > step:
                grown.append(path)
                continue
            children = [self._path(child) for child in path.branch.children]
            grown += children
            weights = tuple(child.branch.samples / len(self._found) for child in children)
            ids = tuple(child.id for child in children)
            forks.append(Forked(step=step, path=path.id, children=ids, weights=weights, heir=-1))
        return grown, forks

    def _path(self, branch: Branch) -> _Path:
        if branch.shown not in self._read:
            sample = self._reader.read(self._found[branch.shown])
            self._read[branch.shown] = _places(sample, self._reader.vocabulary), sample.was_cut
        places, was_cut = self._read[branch.shown]
        self._born += 1
        has_end = branch.children or places[-1].token != CUT or branch.stop - branch.start < 2
        stop = branch.stop if has_end else branch.stop - 1
        return _Path(self._born - 1, branch, stop, places, was_cut)

    def _finished(self, path: _Path, step: int) -> PathFinished:
        rewards = [one.reward for one in self._found[path.branch.first : path.branch.last]]
        return PathFinished(
            step=step,
            path=path.id,
            reason="length" if path.was_cut else "stop",
            reward=_common_reward([reward for reward in rewards if reward is not None]),
        )


def _nothing_held(live: Sequence[_Path]) -> KVUsage:
    return KVUsage(
        bytes_held=0,
        rows_shared=0,
        rows_private=0,
        rows_spare=0,
        rows_independent=0,
        paths=tuple(PathRows(path=path.id, shared=0, private=0) for path in live),
    )


def _common_reward(rewards: Sequence[float | str]) -> float | str | None:
    """The mean of rewards, or the most frequent label; None if there are none."""
    numbers = [reward for reward in rewards if isinstance(reward, float)]
    if numbers and len(numbers) == len(rewards):
        return math.fsum(numbers) / len(numbers)
    return Counter(rewards).most_common(1)[0][0] if rewards else None


def _places(sample: Sample, vocabulary: Vocabulary) -> list[_Place]:
    """The places of a sample, its end included."""
    count = len(sample.tokens)
    tops = [pairs_of(top, vocabulary) for top in sample.tops]
    tops += [[] for _ in range(count - len(tops))]
    return [
        _Place(
            token,
            vocabulary.text(token),
            log_prob,
            at >= sample.shown or vocabulary.is_special(token),
            None if whole is None else whole.low,
            tuple(_candidate(*pair, vocabulary) for pair in top[:MAX_CANDIDATES]),
            None if _is_all(top) else whole,
        )
        for at, (token, log_prob, top, whole) in enumerate(
            zip(
                sample.tokens,
                [*sample.log_probs, None],
                tops,
                _bounds(tops, sample.tokens),
                strict=True,
            )
        )
    ]


def _candidate(token: int, log_prob: float, vocabulary: Vocabulary) -> Candidate:
    probability = round(min(1.0, math.exp(log_prob)), 6)
    return Candidate(token=token, text=vocabulary.text(token), probability=probability)


_Pairs: TypeAlias = Sequence[tuple[int, float]]  # tokens and ln p, most likely first


def _is_all(top: _Pairs) -> bool:
    """Whether these are all tokens that are possible."""
    return math.fsum(math.exp(log_prob) for _, log_prob in top) >= _ALL


def _bounds(tops: Sequence[_Pairs], tokens: Sequence[int]) -> list[EntropyBounds | None]:
    """The entropy at each place is certainly between these bounds; None if nothing is known."""
    known = [_most_likely(top, token) for top, token in zip(tops, tokens, strict=True)]
    widest = max(map(len, known))
    if not widest:
        return [None for _ in known]
    padded = [[*row, *[-math.inf] * (widest - len(row))] for row in known]
    bounds = entropy_bounds(torch.tensor(padded), _LARGEST_VOCABULARY).tolist()
    return [EntropyBounds(*each) if row else None for each, row in zip(bounds, known, strict=True)]


def _most_likely(top: _Pairs, taken: int) -> list[float]:
    """ln p of tokens of which it is certain that no others are more likely. A server may name the
    token taken in addition to these, and then it is the least likely one.
    """
    if top and not _is_all(top) and top[-1][0] == taken and top[-1][1] < math.log(0.5):
        top = top[:-1]
    return [log_prob for _, log_prob in top]
