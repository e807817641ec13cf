"""One run in the making: its tree, weights, random streams, limits and KV cache, as one object.

The engine feeds it logits; it answers with events. It knows nothing of other runs or of the model's
inside.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from torch import Tensor

from eab.branching.policies import Child, Leaf, Member, grown, make_policy
from eab.branching.random_streams import ROOT
from eab.branching.sampling import CANDIDATES, Predictions
from eab.caches.base import ForwardBatch
from eab.caches.calibration import calibrated
from eab.caches.factory import make_cache
from eab.caches.growth import GrowthRule, Workload, auto_growth_rule, best_r
from eab.config import BranchingConfig
from eab.engine.lookahead import MOST_AHEAD, Lookahead
from eab.errors import MemoryLimitError, ModelError, PromptError
from eab.events import (
    Candidate,
    Event,
    Forked,
    KvMeasured,
    LimitActed,
    PathFinished,
    Predicted,
    Pruned,
    Reweighted,
    RowsAllocated,
    RunStarted,
    Speculated,
    TokenAppended,
)
from eab.models.base import LanguageModel
from eab.speculation.drafter import DraftRequest
from eab.speculation.speculator import make_speculator

RECORDED_FROM = 0.0005  # candidates less likely than this are not worth their place in a run file
MAX_PROMPT_CHARACTERS = 200_000
PREFILL_CHUNK = 512  # tokens
MASK_CELLS = (
    2**23
)  # tokens of a chunk times rows that they may see: bounds the attention mask of a long prompt


class Generation:
    """The state of one run.

    `leaves` are live and finished paths in tree order. `step` is the number of tokens chosen so far
    on a live path.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompt: str,
        tokens: Sequence[int],
        config: BranchingConfig,
        threshold_nats: float,
        continued: int = 0,
        draft: LanguageModel | None = None,
    ) -> None:
        self.config = config
        self.step = 0
        self.leaves = [Leaf(path=0, stream_key=ROOT, weight=1.0, log_prob=0.0)]
        ahead = growth_rule(model, config, len(tokens))
        self.cache = make_cache(
            config.cache,
            model.kv_shape,
            ahead,
            config.kv_limit_mib * 2**20,
            config.attention == "padded",
        )
        self._model = model
        self._policy = make_policy(config, threshold_nats)
        self._speculator = make_speculator(config, model, draft, self._policy)
        self._ahead = {0: Lookahead(list(tokens))}  # of each live path
        self._reading: list[Leaf] = []  # the paths of the pass under way
        self._prompt_length = len(tokens)
        self._next_path = 1
        self.started = RunStarted(
            prompt,
            tuple(tokens),
            tuple(map(model.text, tokens)),
            model.card,
            config,
            threshold_nats,
            draft=draft.card if draft is not None and config.drafter == "model" else None,
            continued=continued,
        )

    @property
    def live(self) -> list[Leaf]:
        """Paths that still grow, in tree order."""
        return [leaf for leaf in self.leaves if not leaf.finished]

    def pack(self) -> tuple[ForwardBatch, list[Event]]:
        """Room in the cache for the tokens that wait, and the pass that takes them through the
        model.
        """
        before = self.cache.reserve(self._first_rows(), self.config.max_new_tokens - self.step)
        self._reading = [leaf for leaf in self.live if self._goes_on(self._ahead[leaf.path])]
        size = min(PREFILL_CHUNK, max(16, MASK_CELLS // self._prompt_length))
        unread = [self._ahead[leaf.path].unread(size) for leaf in self._reading]
        self._guess()
        try:
            packed = self._packed(unread)
        except MemoryLimitError:  # without the guesses there may be room
            for leaf in self._reading:
                self._ahead[leaf.path].draft_tokens = []
            packed = self._packed(unread)
        for leaf, tokens in zip(self._reading, unread, strict=True):
            self._ahead[leaf.path].read += len(tokens)
        growths = ([before] if before else []) + list(packed.growths)
        return packed, [RowsAllocated(self.step, growth) for growth in growths]

    def _packed(self, unread: Sequence[Sequence[int]]) -> ForwardBatch:
        drafts = [self._ahead[leaf.path].draft_tokens for leaf in self._reading]
        return self.cache.prepare(
            [leaf.path for leaf in self._reading],
            [[*tokens, *guesses] for tokens, guesses in zip(unread, drafts, strict=True)],
            [1 + len(guesses) for guesses in drafts],
        )

    def _goes_on(self, ahead: Lookahead) -> bool:
        """Whether tokens of the path wait for their forward pass, and it is of use to know what
        follows them.
        """
        new = len(ahead.text) - self._prompt_length
        ends = new > 0 and (
            ahead.text[-1] in self._model.stop_ids or new >= self.config.max_new_tokens
        )
        return ahead.read < len(ahead.text) and not ends and len(ahead.lines) < MOST_AHEAD

    def _guess(self) -> None:
        """Ask the drafter, if there is one, for what may follow each path of the pass; never in a
        prompt.
        """
        if self._speculator is None or self.prefilling:
            return
        contexts = []
        for leaf in self._reading:
            text = self._ahead[leaf.path].text
            step = len(text) - self._prompt_length
            contexts.append(
                DraftRequest(
                    leaf.path, leaf.stream_key, text, step, self.config.max_new_tokens - 1 - step
                )
            )
        for context, guesses in zip(contexts, self._speculator.propose(contexts), strict=True):
            self._ahead[context.path].draft_tokens = guesses

    def _first_rows(self) -> int:
        """The prompt alone; with r at its maximum all rows that the run can ever need."""
        config = self.config
        up_front = config.r != "auto" and config.r >= config.max_new_tokens
        return self._prompt_length + (config.max_paths * config.max_new_tokens if up_front else 0)

    @property
    def prefilling(self) -> bool:
        """Whether a part of the prompt still waits for its forward pass."""
        return any(ahead.read < self._prompt_length for ahead in self._ahead.values())

    def measure(self) -> KvMeasured:
        """The KV cache as it is now, for the live paths."""
        return KvMeasured(self.step, self.cache.usage([leaf.path for leaf in self.live]))

    def advance(self, logits: Tensor, tokens: int, forward_seconds: float) -> list[Event]:
        """Take in the logits of the pass, and decide every step that all live paths have come to.

        tokens: through the model in the pass, which took so many seconds.
        """
        if self.prefilling:
            return []  # of a chunk of the prompt nothing is wanted
        step, start = self.step, time.perf_counter()
        tries = self._take_in(Predictions(logits, self.config))
        seconds = forward_seconds + time.perf_counter() - start
        events: list[Event] = [*tries]
        while self.live and all(self._ahead[leaf.path].lines for leaf in self.live):
            events.append(self.measure())
            events += self._decide()
        if self._speculator is not None and step > 0:  # else it was the prompt's pass
            verified = [(len(one.draft_tokens), one.accepted) for one in tries]
            self._speculator.heard(tokens, seconds, verified, len(self._reading), self.step - step)
        return events

    def _take_in(self, predictions: Predictions) -> list[Speculated]:
        """Give each path of the pass its lines; what was guessed wrong leaves the cache."""
        if not all(entropy == entropy for entropy in predictions.entropies):
            raise ModelError(
                f"the model gave logits that are not numbers at step {self.step}; try dtype float32"
            )
        guessed = any(self._ahead[leaf.path].draft_tokens for leaf in self._reading)
        foreseen = self._foreseen(predictions) if guessed else [None] * len(predictions.entropies)
        tries: list[Speculated] = []
        first = 0
        for leaf in self._reading:
            ahead = self._ahead[leaf.path]
            step, draft_tokens = len(ahead.text) - self._prompt_length, ahead.draft_tokens
            lines = foreseen[first : first + len(draft_tokens) + 1]
            accepted, verified = ahead.confirm(predictions, first, lines, to_itself=guessed)
            first += len(draft_tokens) + 1
            if accepted < len(draft_tokens):
                self.cache.trim(leaf.path, ahead.read)
            if draft_tokens:
                texts = tuple(map(self._model.text, draft_tokens))
                tries.append(
                    Speculated(step, leaf.path, tuple(draft_tokens), texts, accepted, verified)
                )
        return tries

    def _foreseen(self, predictions: Predictions) -> list[int | None]:
        """Per line of the pass the token that is certain to follow."""
        draws = [
            (leaf.stream_key, len(ahead.text) - self._prompt_length + line)
            for leaf in self._reading
            for ahead in [self._ahead[leaf.path]]
            for line in range(len(ahead.draft_tokens) + 1)
        ]
        return self._policy.forced_tokens(predictions, draws)

    def _decide(self) -> list[Event]:
        """Choose the next token of every live path: fork, prune, finish."""
        live = self.live
        predictions = Predictions.joined([self._ahead[leaf.path].lines.popleft() for leaf in live])
        events: list[Event] = [
            self._predicted(leaf, line, predictions) for line, leaf in enumerate(live)
        ]
        families = iter(self._policy.branch(live, predictions, self.step))
        population = [
            member
            for leaf in self.leaves
            for member in ([leaf] if leaf.finished else next(families))
        ]
        return events + self.commit(population, self._policy.prune(population, self.step))

    def commit(self, population: Sequence[Member], weights: Sequence[float | None]) -> list[Event]:
        """End the step: each member of the population (in tree order) goes on with its weight, or
        is dropped (None).
        """
        events: list[Event] = []
        leaves: list[Leaf] = []
        pairs = zip(population, weights, strict=True)
        for _, family in groupby(pairs, key=lambda pair: _path(pair[0])):
            leaves += self._commit(list(family), events)
        self.leaves = [self._finish(leaf, events) for leaf in leaves]
        self.step += 1
        return events

    def _predicted(self, leaf: Leaf, line: int, predictions: Predictions) -> Predicted:
        ranked = zip(predictions.top_tokens[line], predictions.top_probabilities[line], strict=True)
        candidates = [
            Candidate(token, self._model.text(token), round(p, 6))
            for token, p in ranked
            if p >= RECORDED_FROM
        ]
        return Predicted(
            self.step, leaf.path, predictions.entropies[line], tuple(candidates[:CANDIDATES])
        )

    def _commit(
        self, family: Sequence[tuple[Member, float | None]], events: list[Event]
    ) -> list[Leaf]:
        """What becomes of one path: it is dropped, goes on, or forks."""
        member = family[0][0]
        survivors = [(child, weight) for child, weight in family if weight is not None]
        if not survivors:
            events.append(Pruned(self.step, _path(member)))
            if not (isinstance(member, Leaf) and member.finished):
                self.release(_path(member))
            return []
        if isinstance(member, Leaf):
            return [self._reweighted(member, survivors[0][1], events)]
        children = [(child, weight) for child, weight in survivors if isinstance(child, Child)]
        dropped = tuple(
            child.token for child, weight in family if isinstance(child, Child) and weight is None
        )
        if dropped:
            events.append(LimitActed(self.step, member.leaf.path, dropped))
        if len(children) == 1:
            return [self._append(children[0][0], children[0][1], events)]
        return self._fork(member.leaf, children, events)

    def _append(self, child: Child, weight: float, events: list[Event]) -> Leaf:
        """The path goes on by one token."""
        leaf = grown(child, child.leaf.path, weight, self.step)
        ahead = self._ahead[leaf.path]
        if len(ahead.text) == self._prompt_length + self.step:
            ahead.text.append(child.token)
        events.append(self._token_appended(leaf, child))
        return self._reweighted(leaf, weight, events, before=child.leaf.weight)

    def _fork(
        self, parent: Leaf, children: Sequence[tuple[Child, float]], events: list[Event]
    ) -> list[Leaf]:
        """The path ends in two or more children, each a path of its own."""
        ids = range(self._next_path, self._next_path + len(children))
        self._next_path = ids.stop
        leaves = [
            grown(child, path, weight, self.step)
            for path, (child, weight) in zip(ids, children, strict=True)
        ]
        heir = next(
            (path for path, (child, _) in zip(ids, children, strict=True) if child.heir), -1
        )
        events.append(
            Forked(self.step, parent.path, tuple(ids), tuple(leaf.weight for leaf in leaves), heir)
        )
        events += [
            self._token_appended(leaf, child)
            for leaf, (child, _) in zip(leaves, children, strict=True)
        ]
        self.cache.fork(parent.path, ids)
        ahead = self._ahead.pop(parent.path)
        self._ahead |= {leaf.path: ahead.child(leaf.token) for leaf in leaves}
        if self._speculator is not None:
            self._speculator.drafter.fork(parent.path, ids)
        return leaves

    def _token_appended(self, leaf: Leaf, child: Child) -> TokenAppended:
        text, special = self._model.text(child.token), self._model.is_special(child.token)
        return TokenAppended(self.step, leaf.path, child.token, text, child.token_log_prob, special)

    def _reweighted(
        self, leaf: Leaf, weight: float, events: list[Event], before: float | None = None
    ) -> Leaf:
        if weight != (leaf.weight if before is None else before):
            events.append(Reweighted(self.step, leaf.path, weight))
        return replace(leaf, weight=weight)

    def _finish(self, leaf: Leaf, events: list[Event]) -> Leaf:
        """Mark the leaf finished if it is, and free its rows; otherwise its last token waits for
        the next pass.
        """
        stopped = leaf.token in self._model.stop_ids
        if leaf.finished or not (stopped or self.step + 1 >= self.config.max_new_tokens):
            return leaf
        events.append(PathFinished(self.step, leaf.path, "stop" if stopped else "length"))
        self.release(leaf.path)
        return replace(leaf, finished=True)

    def release(self, path: int) -> None:
        """The path ends; its rows are free."""
        self.cache.release(path)
        del self._ahead[path]
        if self._speculator is not None:
            self._speculator.drafter.release(path)

    @property
    def draft_seconds(self) -> float:
        """What the guesses of the latest pass took."""
        return 0.0 if self._speculator is None else self._speculator.draft_seconds


def growth_rule(model: LanguageModel, config: BranchingConfig, prompt: int) -> int | GrowthRule:
    """r of the tree cache; "auto" weighs copies against spare rows only where attention visits the
    spare rows.

    The costs are then measured on this machine, which takes a few seconds once per model. How long
    the run will be is known only of a single path that no token can end.
    """
    if config.r != "auto":
        return config.r
    if config.attention == "sliced" or config.cache != "tree":
        return auto_growth_rule(None)
    costs = calibrated(model.kv_shape, prompt + config.max_new_tokens)
    if config.max_paths == 1 and not model.stop_ids:
        return best_r(costs, Workload(config.max_new_tokens, prompt))
    return auto_growth_rule(costs)


def prompt_tokens(
    model: LanguageModel, prompt: str, config: BranchingConfig, continued: Sequence[int] = ()
) -> tuple[int, ...]:
    """The prompt's token ids, then `continued`; PromptError if there is nothing to read or no room
    to write.
    """
    if not prompt.strip():
        raise PromptError("the prompt is empty; write a few words for the model to continue")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise PromptError(
            f"the prompt has {len(prompt):,} characters; at most {MAX_PROMPT_CHARACTERS:,} are allowed. Shorten it"
        )
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the prompt is no valid text at character {error.start + 1}; type it again"
        ) from error
    unknown = next((token for token in continued if not 0 <= token < model.card.vocab_size), None)
    if unknown is not None:
        raise PromptError(
            f"there is no token {unknown}; {model.card.name} knows 0 to {model.card.vocab_size - 1}"
        )
    if any(token in model.stop_ids for token in continued):
        raise PromptError(
            "the text has ended there: nothing grows after a stop token. Choose another token"
        )
    tokens = (*model.encode(prompt, config), *continued)
    room = model.context - config.max_new_tokens
    if len(tokens) == len(continued):
        raise PromptError("the tokenizer makes no token of this prompt; write some words")
    if len(tokens) > room:
        raise PromptError(
            f"the prompt has {len(tokens)} tokens and max_new_tokens is {config.max_new_tokens}, but the model "
            f"{model.card.name} reads {model.context} in all. Shorten the prompt or lower max_new_tokens"
        )
    return tokens


def _path(member: Member) -> int:
    return member.path if isinstance(member, Leaf) else member.leaf.path
