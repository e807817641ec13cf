"""The paths of one run: what each holds, and how the decisions of a step change them.

Without speculation, a path has predictions for at most the next step. With speculation, one forward
pass may accept several draft tokens of a path. The path is then ahead of the others and waits for
them, because every step is decided for all paths together. So speculation changes no decision.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import cast

from msgspec import structs

from eab.engine.branching.policy import Child, Leaf, Member, grown
from eab.engine.branching.random_streams import ROOT
from eab.engine.branching.sampling import Predictions
from eab.engine.caches.base import KVCache
from eab.engine.models.base import LanguageModel
from eab.engine.speculation.drafter import Drafter
from eab.engine.step_events import StepEvents
from eab.run.events import (
    DroppedTokens,
    Event,
    FinishReason,
    Forked,
    KvMeasured,
    NewToken,
    NewWeight,
    PathFinished,
    RunStarted,
)
from eab.token_text import StopStrings

MAX_AHEAD = 16  # steps; a path that is this far ahead skips the next passes


@dataclass(slots=True)
class Lookahead:
    """One live path."""

    tokens: list[int]  # the prompt and all tokens that are certain to follow it
    num_computed: int = 0  # how many of `tokens` are in the KV cache; the others are pending
    # For each step that is not decided yet, the next one first: the predictions of a forward pass,
    # and the index in them
    predictions: deque[tuple[Predictions, int]] = field(default_factory=deque)
    # What the current pass verifies after the pending tokens
    draft_tokens: list[int] = field(default_factory=list)
    # How many of `tokens` were searched for stop strings, including those of the prompt
    searched: int = 0
    tail: bytes = b""  # the end of the searched text (see `eab.run.stop_strings`)
    # The number of `tokens` up to the end of the first stop string, which may lie ahead of the step
    # that is being decided; 0 if there is none
    stops_at: int = 0

    def child(self, token: int) -> "Lookahead":
        """The state of a child of this path whose first token is `token`."""
        tokens = [*self.tokens, token]
        return Lookahead(tokens, self.num_computed, searched=self.searched, tail=self.tail)

    def search(self, stop: StopStrings, text_of: Callable[[int], str]) -> None:
        """Search the new tokens for a stop string; for control tokens, `text_of` is empty."""
        while not self.stops_at and self.searched < len(self.tokens):
            self.tail, cut = stop.search(self.tail, text_of(self.tokens[self.searched]))
            self.searched += 1
            self.stops_at = self.searched if cut else 0

    @property
    def num_pending(self) -> int:
        """How many of `tokens` are still to be computed."""
        return len(self.tokens) - self.num_computed

    def pending(self, limit: int) -> list[int]:
        """The next tokens to compute, at most `limit` of them."""
        return self.tokens[self.num_computed : self.num_computed + limit]

    def verify(
        self, predictions: Predictions, first: int, forced: Sequence[int | None]
    ) -> tuple[int, int]:
        """Take over a copy of the path's predictions from a pass, and accept or reject its draft
        tokens. Without the copy, one path that is ahead would keep those of all paths in memory.

        Args:
            first: Index of the prediction after the last pending token; the predictions after each
                draft token follow it.
            forced: For each of these predictions, the token that must follow; None where the path
                may fork.

        Returns:
            How many draft tokens are accepted, and how many are verified: the accepted ones, and
            the first rejected one. Where the path may fork, a draft token cannot be verified.
        """
        accepted = 0
        while accepted < len(self.draft_tokens) and forced[accepted] == self.draft_tokens[accepted]:
            accepted += 1
        copy = Predictions.joined([(predictions, first + at) for at in range(accepted + 1)])
        self.predictions += [(copy, at) for at in range(accepted + 1)]
        self.tokens += self.draft_tokens[:accepted]
        self.num_computed = len(self.tokens)
        following = forced[accepted]
        if following is not None:
            self.tokens.append(following)
        verified = accepted + (accepted < len(self.draft_tokens) and following is not None)
        self.draft_tokens = []
        return accepted, verified


class Paths:
    """The paths of one run; at first a single path, which holds the prompt.

    Attributes:
        leaves: Live and finished paths, in tree order.
        lookahead: The decoding state of each live path.
        step: The number of tokens decided on every live path; under `best-first`, on the longest.
    """

    def __init__(
        self, model: LanguageModel, started: RunStarted, cache: KVCache, drafter: Drafter | None
    ) -> None:
        self.leaves = [Leaf(path=0, stream_key=ROOT, weight=1.0, log_prob=0.0)]
        self.prompt_length = len(started.prompt_tokens)
        root = Lookahead(list(started.prompt_tokens), searched=self.prompt_length)
        self.lookahead = {0: root}
        self.step = 0
        self._model, self._cache, self._drafter = model, cache, drafter
        self._config = started.config
        self._stop = StopStrings(started.config.stop) if started.config.stop else None
        self._next_path = 1

    @property
    def live(self) -> list[Leaf]:
        """The paths that still decode, in tree order."""
        return [leaf for leaf in self.leaves if not leaf.finished]

    def states(self, leaves: Sequence[Leaf]) -> list[Lookahead]:
        """The decoding states of these live paths."""
        return [self.lookahead[leaf.path] for leaf in leaves]

    def needs_pass(self, leaf: Leaf) -> bool:
        """Whether the live path has pending tokens and needs a prediction after them. A path far
        ahead of the others waits for them.
        """
        state = self.lookahead[leaf.path]
        if self._stop is not None:
            state.search(self._stop, self._text_of)
        new = len(state.tokens) - self.prompt_length
        ends = new > 0 and (
            state.stops_at > 0
            or state.tokens[-1] in self._model.stop_ids
            or new >= self._config.max_new_tokens
        )
        return state.num_pending > 0 and not ends and len(state.predictions) < MAX_AHEAD

    def logits_rows(self, leaves: Sequence[Leaf]) -> list[tuple[Leaf, int]]:
        """The path and the step of each row of logits in a pass over these paths."""
        return [
            (leaf, len(state.tokens) - self.prompt_length + index)
            for leaf, state in zip(leaves, self.states(leaves), strict=True)
            for index in range(len(state.draft_tokens) + 1)
        ]

    def measure(self, step: int) -> KvMeasured:
        """The current KV cache usage, with that of each live path, as measured at this step."""
        return KvMeasured(step, self._cache.usage([leaf.path for leaf in self.live]))

    def commit(
        self, population: Sequence[Member], weights: Sequence[float | None]
    ) -> dict[int, list[Event]]:
        """Take over the new weight of each member; None drops it.

        Returns:
            What happened at each step, in order: several steps if paths differ in length.
        """
        children = (one.leaf.tokens for one in population if isinstance(one, Child))
        last = max(children, default=self.step)
        pairs = zip(population, weights, strict=True)
        families = [list(family) for _, family in groupby(pairs, key=_path)]
        steps = [_step(family[0][0], last) for family in families]
        leaves: list[list[Leaf]] = [[] for _ in families]
        events: dict[int, list[Event]] = {}
        for step in sorted({*steps}):
            new, places = StepEvents(step), [at for at, its in enumerate(steps) if its == step]
            for place in places:
                leaves[place] = self._commit_path(families[place], new)
            for place in places:
                leaves[place] = [self._finish(leaf, new) for leaf in leaves[place]]
            events[step] = new.events()
        self.leaves = [*chain.from_iterable(leaves)]
        self.step = max(self.step, last + 1)
        return events

    def _commit_path(
        self, family: Sequence[tuple[Member, float | None]], new: StepEvents
    ) -> list[Leaf]:
        """Drop, keep, extend or fork one path, given its members of the population."""
        member = family[0][0]
        kept = [(one, weight) for one, weight in family if weight is not None]
        if not kept:
            path = _path(family[0])
            new.pruned.append(path)
            if not (isinstance(member, Leaf) and member.finished):
                self.release(path)
            return []
        if isinstance(member, Leaf):
            return [self._reweighted(member, kept[0][1], new)]
        if len(kept) < len(family):
            dropped = tuple(child.token for child, weight in family if weight is None)
            new.dropped.append(DroppedTokens(member.leaf.path, dropped))
        children = cast(list[tuple[Child, float]], kept)
        if len(children) == 1:
            return [self._extend(*children[0], new)]
        return self._fork(member.leaf, children, new)

    def _extend(self, child: Child, weight: float, new: StepEvents) -> Leaf:
        """Append one token to the path."""
        leaf = grown(child, child.leaf.path, weight, new.step)
        tokens = self.lookahead[leaf.path].tokens
        if len(tokens) == self.prompt_length + new.step:  # else verification appended it
            tokens.append(child.token)
        new.tokens.append(self._new_token(leaf, child))
        if weight != child.leaf.weight:
            new.weights.append(NewWeight(leaf.path, weight))
        return leaf

    def _fork(
        self, parent: Leaf, children: Sequence[tuple[Child, float]], new: StepEvents
    ) -> list[Leaf]:
        """End the path in two or more children, each a new path."""
        ids = range(self._next_path, self._next_path + len(children))
        self._next_path = ids.stop
        leaves = [
            grown(child, path, weight, new.step)
            for path, (child, weight) in zip(ids, children, strict=True)
        ]
        heirs = [path for path, (child, _) in zip(ids, children, strict=True) if child.heir]
        weights = tuple(leaf.weight for leaf in leaves)
        heir = heirs[0] if heirs else -1
        new.forked.append(Forked(new.step, parent.path, tuple(ids), weights, heir))
        pairs = zip(leaves, children, strict=True)
        new.tokens += [self._new_token(leaf, child) for leaf, (child, _) in pairs]
        self._cache.fork(parent.path, ids)
        state = self.lookahead.pop(parent.path)
        self.lookahead |= {leaf.path: state.child(leaf.token) for leaf in leaves}
        if self._drafter is not None:
            self._drafter.fork(parent.path, ids)
        return leaves

    def _new_token(self, leaf: Leaf, child: Child) -> NewToken:
        text, special = self._model.text(child.token), self._model.is_special(child.token)
        return NewToken(leaf.path, child.token, text, child.token_log_prob, special)

    def _reweighted(self, leaf: Leaf, weight: float, new: StepEvents) -> Leaf:
        if weight == leaf.weight:
            return leaf
        new.weights.append(NewWeight(leaf.path, weight))
        return structs.replace(leaf, weight=weight)

    def _finish(self, leaf: Leaf, events: StepEvents) -> Leaf:
        """Finish the leaf and free its rows if its text ends; else its last token is pending."""
        if leaf.finished:
            return leaf
        state = self.lookahead[leaf.path]
        if self._stop is not None:
            state.search(self._stop, self._text_of)
        has_string = 0 < state.stops_at <= self.prompt_length + leaf.tokens
        stopped = has_string or leaf.token in self._model.stop_ids
        if not (stopped or leaf.tokens >= self._config.max_new_tokens):
            return leaf
        reason: FinishReason = "stop" if stopped else "length"
        events.finished.append(PathFinished(leaf.tokens - 1, leaf.path, reason))
        self.keep(leaf.path)
        self.release(leaf.path)
        return structs.replace(leaf, finished=True)

    def ends(self, leaf: Leaf, token: int) -> bool:
        """Whether the text of a live path ends if this token follows."""
        if token in self._model.stop_ids or leaf.tokens + 1 >= self._config.max_new_tokens:
            return True
        if self._stop is None:
            return False
        state = self.lookahead[leaf.path]
        state.search(self._stop, self._text_of)
        return self._stop.search(state.tail, self._text_of(token))[1] > 0

    def _text_of(self, token: int) -> str:
        return "" if self._model.is_special(token) else self._model.text(token)

    def keep(self, path: int) -> None:
        """Add the computed rows of the path to the prefix cache, if there is one."""
        state = self.lookahead[path]
        self._cache.keep(path, state.tokens[: state.num_computed])

    def release(self, path: int) -> None:
        """End the path and free its rows."""
        self._cache.release(path)
        del self.lookahead[path]
        if self._drafter is not None:
            self._drafter.release(path)


def _path(weighed: tuple[Member, float | None]) -> int:
    member = weighed[0]
    return member.path if isinstance(member, Leaf) else member.leaf.path


def _step(member: Member, last: int) -> int:
    """The step at which something happens to the member, if `last` is that of the longest path."""
    if isinstance(member, Child):
        return member.leaf.tokens
    return max(last, member.tokens - 1)
