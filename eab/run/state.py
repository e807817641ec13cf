"""The state of a run after its header and any further events."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import Final, NoReturn, assert_never

from eab import token_text
from eab.errors import MemoryLimitError, PromptError, RecordError
from eab.formatting import counted, quoted, shortened
from eab.run import scored_texts
from eab.run.events import (
    Event,
    Forked,
    KvMeasured,
    KVUsage,
    Labelled,
    LabelRule,
    LimitActed,
    PathFinished,
    PathPrediction,
    Predicted,
    Probed,
    Pruned,
    Reweighted,
    RowsAllocated,
    RunEnded,
    RunStarted,
    Speculated,
    StepTimed,
    TextScored,
    TokensAppended,
)
from eab.run.tree import (
    Path,
    Sample,
    Step,
    Token,
    largest_first,
    least_probability,
)
from eab.token_text import StopStrings

_MAX_PROMPT: Final = 40  # characters of the prompt in a repr


class RunState:
    """The state of a run after its header, RunStarted, and any further events.

    Only `apply` changes it; otherwise treat it as frozen.

    Attributes:
        started: The header: prompt, model, settings.
        probe: Entropies (nats) of the greedy probe before it, for a rank threshold.
        ended: The final event; None while the run continues.
        events: All events so far.
        labels: By the words of the settings, or what the user labelled since (see
            `eab.analysis.labels`).
        explored: Texts that were explored after the last step (see the event TextScored), without
            weight.
        repeats: Texts of runs that differ only in their seeds, by seed, with their weights there.
        peaks: The tokens whose entropy is higher than that of all tokens of the steps before them.
    """

    def __init__(self, started: RunStarted, probe: Sequence[float] = ()) -> None:
        self.started, self.probe = started, tuple(probe)
        self.ended: RunEnded | None = None
        self.paths = [Path(id=0, parent=-1, weights=[(0, 1.0)], heir=True, touched=0)]
        self.steps: list[Step] = []
        self.labels = tuple(
            LabelRule(word, "contains", word) for word in started.config.label_words
        )
        self.explored: list[Sample] = []
        self.repeats: dict[int, list[Sample]] = {}
        self.peaks: list[Token] = []
        self.speculations: list[Speculated] = []
        self.events: list[Event] = [*map(Probed, count(), self.probe), started]
        self._predicted_step = -1
        self._predicted: dict[int, PathPrediction] = {}  # predictions of that step, by path
        self._stop = StopStrings(started.config.stop)
        self._tails = {0: (b"", 0)}  # by path, as returned by `StopStrings.search`

    def __repr__(self) -> str:
        prompt = shortened(self.started.prompt, _MAX_PROMPT)
        steps, paths = counted(len(self.steps), "step"), counted(len(self.paths), "path")
        texts = counted(len(self.leaves()), "text")
        ending = self.ended.reason if self.ended is not None else "unfinished"
        exactness = ", approximate" if self.is_approximate else ""
        return f"<Run of {prompt!r}: {steps}, {paths}, {texts}, {ending}{exactness}>"

    def apply(self, event: Event) -> None:
        """Fold one more event.

        Raises:
            RecordError: The event cannot follow what came before.
        """
        if self.ended is not None and not isinstance(event, Labelled):
            raise RecordError(f"the run continues with {type(event).__name__} after its end")
        try:
            self._apply(event)
        except (IndexError, KeyError) as error:
            raise RecordError(
                f"event {len(self.events)} ({type(event).__name__}) names a path that does not "
                "exist yet"
            ) from error
        self.events.append(event)

    def _apply(self, event: Event) -> None:
        match event:
            case Probed() | RunStarted():
                raise RecordError("the run starts twice; a run file contains one run")
            case Predicted():
                self._predict(event)
            case Speculated():
                self._path(event.path)
                self.speculations.append(event)
            case TokensAppended():
                self._append(event)
            case Forked():
                self._fork(event)
            case LimitActed():
                for dropped in event.dropped:
                    self._path(dropped.path).limited_steps.append(event.step)
            case Pruned():
                self._leaf(event.path, event.step).status = "pruned"
            case Reweighted():
                for path, weight in event.weights:
                    self._leaf(path, event.step).weights.append((event.step, weight))
            case PathFinished():
                ended = self._live(event.path, event.step)
                ended.status, ended.finish_reason = "finished", event.reason
                ended.reward = event.reward
                self._cut(ended)
            case RowsAllocated():
                self._step(event.step).growth = event.growth
            case KvMeasured():
                measured = [rows.path for rows in event.usage.paths]
                if measured:
                    self._path(min(measured)), self._path(max(measured))
                self._step(event.step).kv = event.usage
            case StepTimed():
                self._step(event.step).add_timing(event)
            case TextScored():
                scored_texts.apply(self, event)
            case RunEnded():
                self.ended = event
            case Labelled():
                self._label(event)
            case _:
                assert_never(event)

    def _predict(self, event: Predicted) -> None:
        step, paths = event.step, self.paths
        if step != self._predicted_step:
            self._predicted_step, self._predicted = step, {}
        for seen in event.predictions:
            number = seen.path
            if number < 0 or paths[number].status != "live":
                self._live(number, step)  # raises the error
            paths[number].touched = step
            self._predicted[number] = seen

    # Nearly all the time of a fold is spent here, so this makes few calls.
    def _append(self, event: TokensAppended) -> None:
        step, paths = event.step, self.paths
        seen = self._predicted if step == self._predicted_step else {}
        highest = self.highest_entropy if self.peaks else -math.inf
        goes_back = bool(self.peaks) and step < self.peaks[-1].step
        for number, token, text, log_prob, special in event.tokens:
            path = paths[number]
            tokens = path.tokens
            expected = tokens[-1].step + 1 if tokens else path.born
            if number < 0 or path.status != "live" or step != expected:
                self._refuse_token(number, step, expected)
            origin = number if tokens or path.parent < 0 else path.parent
            _, entropy, candidates, whole = seen.get(origin) or self._seen(origin, step)
            tokens.append(Token(step, token, text, special, log_prob, entropy, candidates, whole))
            path.touched = step
            if entropy is not None and (entropy > highest or goes_back):
                self._add_peak(tokens[-1], entropy)
                highest = max(highest, entropy)
            if self._stop and not special:
                self._tails[number] = self._stop.search(self._tails[number][0], text)

    def _add_peak(self, token: Token, entropy: float) -> None:
        place = bisect_right(self.peaks, token.step, key=lambda peak: peak.step)
        if place and (self.peaks[place - 1].entropy or 0.0) >= entropy:
            return
        higher = [peak for peak in self.peaks[place:] if (peak.entropy or 0.0) > entropy]
        self.peaks[place:] = [token, *higher]

    def _refuse_token(self, number: int, step: int, expected: int) -> NoReturn:
        self._live(number, step)
        raise RecordError(
            f"path {number} appends a token at step {step}; its next step is {expected}"
        )

    def _seen(self, path: int, step: int) -> PathPrediction:
        """The prediction that the decision for a path saw at this step."""
        if step != self._predicted_step or path not in self._predicted:
            raise RecordError(f"path {path} continues at step {step} without a prediction")
        return self._predicted[path]

    def _cut(self, path: Path) -> None:
        """Cut a path's text at its stop string, if it has one."""
        path.cut = left = self._tails[path.id][1] if self._stop else 0
        for token in reversed(path.tokens):
            if left <= 0:
                return
            raw = b"" if token.special else token_text.to_bytes(token.text)
            kept = token_text.from_bytes(raw[: max(0, len(raw) - left)])
            token.cut = 0 if token.special else len(token.text) - len(kept)
            left -= len(raw)

    def _fork(self, event: Forked) -> None:
        parent = self._live(event.path, event.step)
        if len(event.weights) != len(event.children):
            raise RecordError(
                f"path {parent.id} forks into {event.children} with {len(event.weights)} weights"
            )
        if event.children != tuple(range(len(self.paths), len(self.paths) + len(event.children))):
            raise RecordError(
                f"path {parent.id} forks into {event.children}; ids must follow the order of "
                "creation"
            )
        parent.status, parent.children = "forked", event.children
        parent.fork_entropy = self._seen(parent.id, event.step).entropy
        total = math.fsum(event.weights)
        for child, weight in zip(event.children, event.weights, strict=True):
            share = weight / total if total > 0 else 0.0
            if self._stop:
                self._tails[child] = (self._tails[parent.id][0], 0)
            weights, is_heir = [(event.step, weight)], child == event.heir
            self.paths.append(Path(child, parent.id, weights, is_heir, event.step, share))

    def _label(self, event: Labelled) -> None:
        for rule in event.rules:
            if rule.kind == "mark" and not 0 <= rule.token < len(self._path(rule.path).tokens):
                raise RecordError(
                    f"the label {quoted(rule.label)} marks token {rule.token} of path {rule.path}, "
                    f"which has {len(self.paths[rule.path].tokens)}"
                )
        self.labels = event.rules

    def _path(self, path: int) -> Path:
        if path < 0:
            raise IndexError(path)
        return self.paths[path]

    def _live(self, path: int, step: int) -> Path:
        leaf = self._leaf(path, step)
        if leaf.status != "live":
            raise RecordError(f"path {path} is {leaf.status}; it cannot continue")
        return leaf

    def _leaf(self, path: int, step: int) -> Path:
        leaf = self._path(path)
        if leaf.status not in ("live", "finished"):
            raise RecordError(
                f"path {path} is {leaf.status}; nothing can happen to it at step {step}"
            )
        leaf.touched = step
        return leaf

    def _step(self, step: int) -> Step:
        if step == len(self.steps):
            self.steps.append(Step(step))
        if not 0 <= step < len(self.steps):
            raise RecordError(
                f"step {step} is measured after step {len(self.steps) - 1}; steps must be "
                "consecutive"
            )
        return self.steps[step]

    def raise_if_failed(self) -> None:
        """Raise MemoryLimitError if the run ended because its KV cache outgrew the limit."""
        raise_if_failed(self.ended)

    def lineage(self, path: int) -> tuple[int, ...]:
        """Ids of the paths from the root to this one."""
        if not isinstance(path, int) or not 0 <= path < len(self.paths):
            raise PromptError(f"there is no path {quoted(path)}; the run has {len(self.paths)}")
        ids: list[int] = []
        while path >= 0:
            ids.append(path)
            path = self.paths[path].parent
        return tuple(reversed(ids))

    def leaves(self) -> list[Path]:
        """Live and finished paths, in order of birth; their weights sum to 1, or under the policies
        `beam` and `best-first` to the probability of their texts.
        """
        return [path for path in self.paths if path.status in ("live", "finished")]

    def forks(self) -> list[Path]:
        """The paths that forked, in order of birth."""
        return [path for path in self.paths if len(self.branches(path)) > 1]

    def branches(self, path: Path) -> list[Path]:
        """The children of a path that its fork made, without given texts."""
        children = (self.paths[child] for child in path.children)
        return [child for child in children if child.status != "given"]

    def in_tree_order(self) -> Iterator[Path]:
        """All paths, each before its children, and these in the order in which they are listed."""
        pending = [0]
        while pending:
            path = self.paths[pending.pop()]
            yield path
            pending += reversed(path.children)

    @property
    def complete_repeats(self) -> list[int]:
        """The seeds of the runs in `repeats` of which all texts are there: the weights sum to 1."""
        return [
            seed
            for seed, texts in self.repeats.items()
            if math.isclose(math.fsum(text.weight for text in texts), 1.0, abs_tol=1e-6)
        ]

    @property
    def tokens_left(self) -> int:
        """How many more tokens its live texts may have."""
        longest = self.started.config.max_new_tokens
        live = [path.id for path in self.paths if path.status == "live"]
        return sum(longest - sum(1 for _ in self.tokens(path)) for path in live)

    @property
    def was_cut(self) -> bool:
        """Whether a text ended at `max_new_tokens`, so that it can go on."""
        goes_on = self.started.config.by_step  # see `eab.run.threshold.longer`
        return goes_on and any(leaf.finish_reason == "length" for leaf in self.leaves())

    @property
    def highest_entropy(self) -> float:
        """The highest measured entropy (nats); 0 if there is none."""
        return (self.peaks[-1].entropy if self.peaks else None) or 0.0

    def entropies(self) -> list[float]:
        """The measured entropies (nats) of all decisions; the children of a fork share the first
        one.
        """
        decided: dict[tuple[int, int], float] = {}
        for path in self.paths:
            for index, token in enumerate(path.tokens):
                if token.entropy is not None:
                    decided[(path.id, index) if index else (path.parent, -1)] = token.entropy
        return [*decided.values()]

    def tokens(self, path: int) -> Iterator[Token]:
        """All generated tokens from the root to the end of this path."""
        return chain.from_iterable(self.paths[each].tokens for each in self.lineage(path))

    def tokens_before(self, path: int) -> int:
        """How many of `tokens(path)` come from the ancestors of this path."""
        return sum(len(self.paths[each].tokens) for each in self.lineage(path)[:-1])

    def continuation(self, path: int, index: int, candidate: int = -1) -> tuple[int, ...]:
        """Token ids that continue the prompt up to a token of a path, or another candidate in its
        place, for `generate(..., continued=...)`. `index` counts in `tokens(path)`, from the root.

        Raises:
            PromptError: The run has no such token.
        """
        tokens = [*self.tokens(path)]
        if not isinstance(index, int) or not 0 <= index < len(tokens):
            raise PromptError(
                f"the text of path {path} has {len(tokens)} tokens; there is no token {index}"
            )
        before, chosen = [token.id for token in tokens[:index]], tokens[index]
        if not isinstance(candidate, int) or candidate >= len(chosen.candidates):
            raise PromptError(
                f"the token has {len(chosen.candidates)} candidates; there is no number {candidate}"
            )
        forced = chosen.candidates[candidate].token if candidate >= 0 else chosen.id
        return (*self.started.continued_tokens, *before, forced)

    def text(self, path: int) -> str:
        """The exact text from the root to the end of this path, without control tokens and up to
        any stop string.
        """
        whole = "".join(token.text for token in self.tokens(path) if not token.special)
        raw = token_text.to_bytes(whole)
        return token_text.from_bytes(raw[: len(raw) - self.paths[path].cut])

    def sample(self, path: int) -> Sample:
        """The leaf `path` as a sample."""
        leaf = self.paths[path]
        return Sample(
            text=token_text.join([self.text(path)]),
            tokens=tuple(self.tokens(path)),
            weight=leaf.weight,
            finish_reason=leaf.finish_reason or "unfinished",
            lineage=self.lineage(path),
            reward=leaf.reward,
            cut=leaf.cut,
        )

    @property
    def samples(self) -> list[Sample]:
        """All leaves as samples, heaviest first; equal weights in order of birth. Those of beam
        search by score, as transformers returns them: its `num_return_sequences` first ones.
        """
        samples, config = [self.sample(leaf.id) for leaf in self.leaves()], self.started.config
        if config.policy == "beam":
            return sorted(samples, key=lambda sample: -sample.beam_score(config.length_penalty))
        return [samples[at] for at in largest_first([sample.weight for sample in samples])]

    @property
    def peak_kv(self) -> KVUsage | None:
        """The measurement with the most distinct rows in use."""
        measured = [step.kv for step in self.steps if step.kv is not None]
        return max(
            measured,
            key=lambda kv: (kv.rows_shared + kv.rows_private, kv.rows_independent),
            default=None,
        )

    def is_drawn(self, path: Path) -> bool:
        """Whether its first token was drawn from all without a branch of their own, and stands for
        them: it is the last branch, and has more of the weight than its token.
        """
        if self.started.config.policy != "fair" or path.parent < 0:
            return False
        first, *others = self.branches(self.paths[path.parent]) or [path]
        if not others or path is not others[-1] or not (path.tokens and first.tokens):
            return False
        own, most = (least_probability(branch.tokens[:1]) for branch in (path, first))
        return path.share * most > 1.01 * own * first.share

    @property
    def peak_step(self) -> int:
        """The last step with the most live paths."""
        live = [0 if step.kv is None else len(step.kv.paths) for step in self.steps]
        return max(range(len(live)), key=lambda step: (live[step], step), default=0)

    @property
    def last_kv(self) -> KVUsage | None:
        """The last measurement, with the totals of the run."""
        return next((step.kv for step in reversed(self.steps) if step.kv is not None), None)

    @property
    def forward_passes(self) -> int:
        """Forward passes so far: one per step, except with chunked prefill and speculation."""
        return sum(step.forward_passes for step in self.steps)

    @property
    def is_what_if(self) -> bool:
        """Whether it was recomputed from another run; it has computed bytes and no times."""
        return self.started.what_if != ""

    @property
    def is_approximate(self) -> bool:
        """Whether it was recomputed and the model might give another run at these settings."""
        return self.started.what_if == "approximate"

    @property
    def seconds(self) -> float | None:
        """Wall time of all steps (measured); None for a what-if run and an imported one."""
        if self.is_what_if or self.started.imported:
            return None
        return sum(step.timing.seconds for step in self.steps if step.timing is not None)

    @property
    def tokens_through_model(self) -> int:
        """Tokens that went through the model, including the prompt and pruned paths."""
        return sum(step.timing.tokens for step in self.steps if step.timing is not None)

    @property
    def new_tokens_computed(self) -> int:
        """Tokens after the prompt that went through the model."""
        timings = (step.timing for step in self.steps[1:])
        return sum(timing.tokens for timing in timings if timing is not None)

    @property
    def tokens_reused(self) -> int:
        """Prompt tokens that other runs or this run's probe had already computed."""
        last = self.last_kv
        return 0 if last is None else last.tokens_reused

    @property
    def tokens_needed(self) -> int:
        """Tokens that would have gone through the model without that reuse."""
        return self.tokens_through_model + self.tokens_reused


def raise_if_failed(ended: RunEnded | None) -> None:
    """Raise MemoryLimitError if a run ended because its KV cache outgrew the limit."""
    if ended is not None and ended.reason == "failed":
        raise MemoryLimitError(ended.message)
