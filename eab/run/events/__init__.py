"""The events of a run: a closed union of frozen, plain values, one class per kind of event. Each
field declares its limits, which msgspec checks when it reads an event (eab.run.record.run_file).

Path ids are small integers in order of birth. A path is a sequence of tokens without a fork: it
ends at a fork, where its children start. Step s chooses the s-th new token of a text; step 0
follows the prefill of the prompt. Paths of equal length take a step together. Under `best-first`,
paths of different lengths share a pass, whose events come step by step, shorter paths first.
Decisions hold no times, so those of two runs can be compared exactly; times are separate events. An
event's `step` and `path` are the step and the path that it is about.

Changes to most paths of a step share one event, which lists the paths in tree order; rare changes
have one event per path. A step that makes decisions emits KvMeasured, Predicted, LimitActed,
Pruned, Forked, TokensAppended, Reweighted, PathFinished in this order and omits empty ones.
"""

from typing import Annotated, Literal, TypeAlias

from eab import token_text
from eab.config import OWN, BranchingConfig
from eab.run.events import fields
from eab.run.events.values import (
    Candidate,
    DroppedTokens,
    EntropyBounds,
    Growth,
    KVUsage,
    LabelRule,
    LayerRow,
    Message,
    ModelCard,
    NewToken,
    NewWeight,
    PathPrediction,
    PathRows,
    Value,
    WindowRows,
)

__all__ = [
    "Candidate",
    "DroppedTokens",
    "EndReason",
    "EntropyBounds",
    "Event",
    "FinishReason",
    "Forked",
    "Growth",
    "KVUsage",
    "KvMeasured",
    "LabelRule",
    "Labelled",
    "LayerRow",
    "LimitActed",
    "Message",
    "ModelCard",
    "NewToken",
    "NewWeight",
    "PathFinished",
    "PathPrediction",
    "PathRows",
    "Pause",
    "Predicted",
    "Probed",
    "Progressed",
    "Pruned",
    "Reweighted",
    "RowsAllocated",
    "RunEnded",
    "RunStarted",
    "Speculated",
    "StepTimed",
    "TextScored",
    "TokensAppended",
    "WhatIfKind",
    "WindowRows",
]

FinishReason = Literal["stop", "length"]
EndReason = Literal["finished", "decided", "explored", "budget", "stopped", "unwatched", "failed"]
WhatIfKind = Literal["", "exact", "approximate"]


class _Kind(Value, frozen=True, tag_field="event", tag=True):
    """A kind of event; JSON names it by its class, as `event`."""


class Pause(_Kind, frozen=True):
    """An event that ends a unit of work; a run or measurement can stop or let others run here."""


class Progressed(Pause, frozen=True):
    """Progress of a measurement."""

    share: float  # the fraction done, from 0 to 1
    words: str


class Probed(Pause, frozen=True):
    """A step of the greedy probe, which precedes RunStarted if the threshold is a rank."""

    step: fields.StepIndex
    entropy: fields.Nats  # in nats
    text: fields.TokenText = ""  # the token's, to be shown meanwhile; not kept with the run


class RunStarted(_Kind, frozen=True):
    """The header of a run: the first event after the probe."""

    prompt: fields.PromptText  # the user's text, or the title of a chat
    # Token ids of the prompt, then of the tokens taken over from another run
    prompt_tokens: Annotated[tuple[fields.TokenId, ...], fields.PER_PROMPT]
    prompt_texts: Annotated[tuple[fields.TokenText, ...], fields.PER_PROMPT]
    model: ModelCard
    config: BranchingConfig
    threshold_nats: fields.Nats  # the entropy threshold in nats, whatever unit the settings use
    draft: ModelCard | None = None  # the draft model, if the drafter is a model
    # Empty if the model made this run. Otherwise it was recomputed from another run's events (see
    # eab.engine.what_if): `exact` if the engine would give the same run, `approximate` if not sure.
    # A recomputed run has no measured times.
    what_if: WhatIfKind = ""
    # How many prompt_tokens, counted from the end, were taken over from another run
    continued: fields.Count = 0
    # The chat given instead of a prompt; empty if there is none
    messages: Annotated[tuple[Message, ...], fields.PER_CHAT] = ()
    # The class names of the logits processors that changed the scores, in order
    logits_processors: Annotated[tuple[fields.Word, ...], fields.PER_PROCESSOR] = ()
    parse_special: bool = False  # whether control tokens in the prompt were control tokens
    by_token_ids: bool = False  # whether the prompt was given as token ids; `prompt` is their text
    # How many samples that others made were imported as this run; 0 if a model made it here
    imported: fields.Count = 0

    @property
    def own_parts(self) -> str:
        """Names the parts that a program supplied and no file holds; empty if there are none."""
        own = [f"the policy {self.config.policy}"] if self.config.policy.startswith(OWN) else []
        names = ", ".join(self.logits_processors)
        return " and ".join([*own, *([f"logits processors ({names})"] if names else [])])

    @property
    def can_be_recomputed(self) -> bool:
        """Whether the run's events hold all that its decisions depended on."""
        # that of paths which do not take each step together is not known in full: their order
        return self.config.by_step and not self.own_parts and not self.imported

    @property
    def continued_tokens(self) -> tuple[int, ...]:
        """The token ids taken over from another run."""
        return self.prompt_tokens[len(self.prompt_tokens) - self.continued :]

    @property
    def own_tokens(self) -> tuple[int, ...]:
        """The token ids of the prompt."""
        return self.prompt_tokens[: len(self.prompt_tokens) - self.continued]

    @property
    def is_chat(self) -> bool:
        """Whether a chat template was used, which puts text after the prompt."""
        own, prompt = len(self.own_tokens), self.prompt.rstrip()
        text = token_text.join(self.prompt_texts[:own]).rstrip()
        is_unknown = self.continued > 0 and prompt not in text
        return bool(self.messages) or not (is_unknown or text.endswith(prompt))

    @property
    def beginning(self) -> str:
        """The text that the run continues: the prompt, a final assistant message if there is one,
        and the text taken over from another run.
        """
        return self.followed_by("")

    def followed_by(self, generated: str) -> str:
        """`beginning` followed by this text; in a chat, the answer is on a line of its own."""
        last = self.messages[-1] if self.messages else None
        is_open = last is not None and last.role == "assistant" and last.content != self.prompt
        begun = last.content if last is not None and is_open else ""
        kept = self.prompt_texts[len(self.prompt_texts) - self.continued :]
        text = begun + token_text.join([*kept, generated])
        return f"{self.prompt}\n{text}" if text and self.is_chat else self.prompt + text

    @property
    def kept_text(self) -> str:
        """The text taken over from another run."""
        return token_text.join(self.prompt_texts[len(self.prompt_texts) - self.continued :])


class Predicted(_Kind, frozen=True):
    """The next-token distribution of each live path, as the decisions of a step saw it."""

    step: fields.StepIndex
    predictions: Annotated[tuple[PathPrediction, ...], fields.PER_STEP]


class Speculated(_Kind, frozen=True):
    """One forward pass verified draft tokens of a path.

    The pass may reach steps that are decided later, once all paths have reached them.
    """

    step: fields.StepIndex  # the step that the first draft token is for
    path: fields.PathId
    draft_tokens: Annotated[tuple[fields.TokenId, ...], fields.PER_DRAFT]
    draft_texts: Annotated[tuple[fields.TokenText, ...], fields.PER_DRAFT]
    accepted: fields.Whole  # how many were accepted, counted from the first
    # How many were accepted or rejected. Tokens after the first rejection, or from a possible fork
    # on, are discarded unverified.
    verified: fields.Whole


class TokensAppended(_Kind, frozen=True):
    """Paths grew by one token each."""

    step: fields.StepIndex
    tokens: Annotated[tuple[NewToken, ...], fields.PER_STEP]


class Forked(_Kind, frozen=True):
    """A path forked into two or more children; TokensAppended gives each its first token."""

    step: fields.StepIndex
    path: fields.PathId
    # Ids of the children, in tree order
    children: Annotated[tuple[fields.PathId, ...], fields.PER_STEP]
    weights: Annotated[tuple[fields.Weight, ...], fields.PER_STEP]
    # The child that would have followed without the fork; it keeps the path's random stream. -1 if
    # it was pruned at birth.
    heir: fields.PathId


class LimitActed(_Kind, frozen=True):
    """The path limit pruned children of these paths at birth."""

    step: fields.StepIndex
    dropped: Annotated[tuple[DroppedTokens, ...], fields.PER_STEP]


class Pruned(_Kind, frozen=True):
    """The path limit pruned a path, and its private KV rows were freed."""

    step: fields.StepIndex
    path: fields.PathId


class Reweighted(_Kind, frozen=True):
    """The weights of paths changed because others were pruned (`fair`) or because the number of
    paths changed (`original`).
    """

    step: fields.StepIndex
    weights: Annotated[tuple[NewWeight, ...], fields.PER_STEP]


class PathFinished(_Kind, frozen=True):
    """A path is complete: it drew a stop token, its text contains a stop string (both `stop`), or
    it reached max_new_tokens (`length`).
    """

    step: fields.StepIndex
    path: fields.PathId
    reason: FinishReason
    # What others said of the samples with this text, in an imported run: a number or a word
    reward: fields.Reward | None = None


class RowsAllocated(_Kind, frozen=True):
    """The KV tensors grew, or their rows were compacted, which may shrink the tensors."""

    step: fields.StepIndex
    growth: Growth


class KvMeasured(_Kind, frozen=True):
    """The KV cache right after the forward pass of a step, for the paths that took part in it."""

    step: fields.StepIndex
    usage: KVUsage


class StepTimed(Pause, frozen=True):
    """One forward pass and the decisions after it, with their times (zero in a what-if run)."""

    # The first step that the pass served. With draft tokens a pass may serve several steps, or only
    # a part of one.
    step: fields.StepIndex
    tokens: fields.Count
    seconds: fields.Seconds  # wall time of the pass and its decisions
    forward_seconds: fields.Seconds  # wall time of the pass
    draft_seconds: fields.Seconds = 0.0  # wall time of the drafter


class RunEnded(_Kind, frozen=True):
    """The last event that the engine emits."""

    step: fields.StepIndex  # steps decided so far
    # `decided`, `explored`, `budget`: see `eab.engine.step_events.Ending`; `unwatched`: the server
    # stopped the run because no open tab watched it
    reason: EndReason
    message: fields.Message = ""  # what went wrong, if the reason is `failed`

    @property
    def stopped(self) -> bool:
        """Whether the run was stopped early without an error."""
        return self.reason in ("stopped", "unwatched")

    @property
    def complete(self) -> bool:
        """Whether it ended by itself: all its texts had ended, or the settings ended it."""
        return self.reason == "finished" or self.early

    @property
    def early(self) -> bool:
        """Whether the settings ended it before all its texts had ended."""
        return self.reason in ("decided", "explored", "budget")


class TextScored(Pause, frozen=True):
    """The model read a text that no path has: one that the user gave, which becomes a path, or one
    that was explored after the last step, which does not. It leaves the tree after some tokens of a
    path, and has no weight, so estimates stay as they are. Or it is a text of another run.
    """

    step: fields.StepIndex  # steps decided so far
    path: fields.PathId  # the path that it leaves, and how many tokens of it come before
    kept: fields.Count
    tokens: Annotated[tuple[NewToken, ...], fields.PER_TEXT]  # after these
    predictions: Annotated[tuple[PathPrediction, ...], fields.PER_TEXT]  # of each of these tokens
    reason: FinishReason | None  # None if the text was not written to its end
    # Of a text that the user gave: of each token, in the model's own distribution, before
    # temperature and filters (nats); empty for an explored text
    model_log_probs: Annotated[tuple[fields.LogProb, ...], fields.PER_PATH] = ()
    # Of a text of another run, which differs only in its seed: the seed, and the weight there
    seed: fields.Whole | None = None
    weight: fields.Weight = 0.0


class Labelled(_Kind, frozen=True):
    """The user gave labels to texts of the run, which may have ended; replaces earlier labels."""

    step: fields.StepIndex  # steps decided so far
    rules: Annotated[tuple[LabelRule, ...], fields.PER_RUN]


Event: TypeAlias = (
    Probed
    | RunStarted
    | Predicted
    | Speculated
    | TokensAppended
    | Forked
    | LimitActed
    | Pruned
    | Reweighted
    | PathFinished
    | RowsAllocated
    | KvMeasured
    | StepTimed
    | TextScored
    | RunEnded
    | Labelled
)
