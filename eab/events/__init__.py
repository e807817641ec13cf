"""What can happen in a run: frozen, plain values, one class per kind of event, a closed union.

Path ids are small integers in order of birth. A path is a sequence of tokens without a fork: at a
fork it ends and its children begin. Step s chooses the s-th new token; step 0 follows the prefill
of the prompt. Decisions hold no times, so the decisions of two runs compare exactly; timings are
events of their own. `step` and `path` of an event are the step and the path that it is about.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias

from eab import token_text
from eab.config import BranchingConfig
from eab.events import fields
from eab.weight_formats import AS_LOADED, PLAIN, full_name

FinishReason = Literal["stop", "length"]
EndReason = Literal["finished", "stopped", "unwatched", "failed"]
WhatIfKind = Literal["", "exact", "approximate"]


class Candidate(NamedTuple):
    """One of the most likely tokens of a prediction.

    Attributes:
        token: Its id.
        text: Its text (see eab.token_text).
        probability: In the processed distribution, rounded to six decimals.
    """

    token: fields.TokenId
    text: fields.TokenText
    probability: float


class PathRows(NamedTuple):
    """The KV rows that one live path reads.

    Attributes:
        path: Id of the path.
        shared: Rows that another live path reads, too.
        private: Rows that only this path reads.
    """

    path: int
    shared: int
    private: int


@dataclass(frozen=True, slots=True)
class Growth:
    """One reallocation of a cache's tensors, or a compaction of its rows.

    Attributes:
        rows: Rows that the tensors hold after it.
        rows_copied: Rows that had to be copied.
        bytes_copied: Bytes of these rows.
        peak_bytes: The most bytes that old and new tensors have held together so far (measured).
        r: For how many decode steps the tensors grew; 0 for the prompt and for a compaction.
    """

    rows: fields.Count
    rows_copied: fields.Count
    bytes_copied: fields.Count
    peak_bytes: fields.Count
    r: fields.Count = 0


@dataclass(frozen=True, slots=True)
class KVUsage:
    """What a KV cache holds: distinct rows by use, their bytes, and totals since the run began.

    Shared, private and spare rows add up to all rows held.

    Attributes:
        bytes_held: Bytes of the tensors (measured; computed in a what-if run, and where a server
            holds them).
        rows_shared: Rows that two or more live paths read.
        rows_private: Rows that one live path reads.
        rows_spare: Reserved rows: allocated, but without a token.
        rows_independent: Tokens of all these paths, which is what separate caches would use
            (computed); see eab.bmc.separate_caches for what they would hold.
        paths: The share of each live path.
        bytes_copied: Bytes that were stored before and moved again.
        allocations: Tensors made.
        peak_bytes: The most bytes alive at once, temporary tensors included.
        block_size: Rows of a block, where a server holds the rows in blocks; else 0.
        tokens_sent: Tokens of all texts that were sent to the server.
        tokens_cached: How many of them it did not have to compute (measured by the server; 0 where
            it does not say).
    """

    bytes_held: fields.Count
    rows_shared: fields.Count
    rows_private: fields.Count
    rows_spare: fields.Count
    rows_independent: fields.Count
    paths: Annotated[tuple[PathRows, ...], fields.PER_STEP]
    bytes_copied: fields.Count = 0
    allocations: fields.Count = 0
    peak_bytes: fields.Count = 0
    block_size: fields.Count = 0
    tokens_sent: fields.Count = 0
    tokens_cached: fields.Count = 0


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a reader of the run needs to know about the model.

    Attributes:
        name: As given to `eab.load_model`.
        family: The model type of transformers, such as `llama`.
        vocab_size: Number of tokens that it can predict.
        layers, kv_heads, head_dim: The shape of one KV row.
        dtype: Of K and V, and of weights that are as loaded.
        device: Where it ran.
        row_bytes: Bytes of one KV row: K and V of one token in all layers.
        weights: The format of the weights (see eab.weight_formats).
        layout: The layout of weights that are as loaded.
    """

    name: fields.ModelName
    family: fields.Word
    vocab_size: fields.Size
    layers: int
    kv_heads: int
    head_dim: int
    dtype: fields.Word
    device: fields.Word
    row_bytes: fields.Size
    weights: fields.Word = AS_LOADED
    layout: fields.Word = PLAIN

    @property
    def full_name(self) -> str:
        """Its name and its weight format, such as `embedded@int8`."""
        return full_name(self.name, self.weights)


class Pause:
    """An event that ends a unit of work: here a run or a measurement can stop or let others run."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Progressed(Pause):
    """Progress of a measurement.

    Attributes:
        share: How much of it is done, from 0 to 1.
        words: What it is doing.
    """

    share: float
    words: str


@dataclass(frozen=True, slots=True)
class Probed(Pause):
    """One step of the greedy probe that comes before RunStarted where the threshold is a quantile.

    Attributes:
        step: Step of the probe.
        entropy: In nats.
    """

    step: fields.StepIndex
    entropy: fields.Nats


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The header of a run: the first event after the probe.

    Attributes:
        prompt: The text that the user gave.
        prompt_tokens: Token ids of the prompt, then those taken over from another run.
        prompt_texts: Their texts.
        model: The model.
        config: The settings.
        threshold_nats: The entropy threshold in nats, whatever unit the settings use.
        draft: The draft model, if the drafter is one.
        what_if: Empty for a run of the model. Else the run was recomputed from the events of
            another (see eab.what_if): `exact` if it is what the engine would do, `approximate` if
            it may differ. Such a run has no measured times.
        continued: How many of the last prompt_tokens were taken over from another run.
    """

    prompt: fields.PromptText
    prompt_tokens: Annotated[tuple[fields.TokenId, ...], fields.PER_PROMPT]
    prompt_texts: Annotated[tuple[fields.TokenText, ...], fields.PER_PROMPT]
    model: ModelCard
    config: BranchingConfig
    threshold_nats: fields.Nats
    draft: ModelCard | None = None
    what_if: WhatIfKind = ""
    continued: fields.Count = 0

    @property
    def continued_tokens(self) -> tuple[int, ...]:
        """The token ids that were taken over from another run."""
        return self.prompt_tokens[len(self.prompt_tokens) - self.continued :]

    @property
    def beginning(self) -> str:
        """The text that the run continues: the prompt and what was taken over from another run."""
        return self.prompt + token_text.join(
            self.prompt_texts[len(self.prompt_texts) - self.continued :]
        )


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a decision saw of a path's next-token distribution.

    Attributes:
        entropy: Of the processed distribution, in nats.
        candidates: Its most likely tokens, most likely first.
    """

    step: fields.StepIndex
    path: int
    entropy: fields.Nats
    candidates: Annotated[tuple[Candidate, ...], fields.PER_PREDICTION]


@dataclass(frozen=True, slots=True)
class Speculated:
    """One forward pass verified draft tokens of a path.

    The pass may reach steps that are decided later, when all paths have come so far.

    Attributes:
        step: The step that the first draft token is for.
        draft_tokens: The draft tokens.
        draft_texts: Their texts.
        accepted: How many were accepted, from the first on.
        verified: How many were accepted or rejected. Tokens after the first rejection are discarded
            unverified, and so are those from a possible fork on.
    """

    step: fields.StepIndex
    path: int
    draft_tokens: Annotated[tuple[fields.TokenId, ...], fields.PER_DRAFT]
    draft_texts: Annotated[tuple[fields.TokenText, ...], fields.PER_DRAFT]
    accepted: int
    verified: int


@dataclass(frozen=True, slots=True)
class TokenAppended:
    """A path grew by one token.

    Attributes:
        token: Id of the token.
        text: Its exact bytes as UTF-8 with `surrogateescape`, so that half a character stays exact
            (see eab.token_text).
        log_prob: In the processed distribution, in nats.
        special: Whether it is a control token, which is not part of the text.
    """

    step: fields.StepIndex
    path: int
    token: fields.TokenId
    text: fields.TokenText
    log_prob: fields.LogProb
    special: bool


@dataclass(frozen=True, slots=True)
class Forked:
    """A path ended in two or more children; the first token of each follows as an event.

    Attributes:
        step: The step.
        path: The path that ended.
        children: Ids of its children, in tree order.
        weights: The weight of each child.
        heir: The child that would have come without the fork; it keeps the path's random stream.
            -1 if it was pruned at birth.
    """

    step: fields.StepIndex
    path: int
    children: Annotated[tuple[int, ...], fields.PER_STEP]
    weights: Annotated[tuple[fields.Weight, ...], fields.PER_STEP]
    heir: int


@dataclass(frozen=True, slots=True)
class LimitActed:
    """The path limit pruned children of this path at birth.

    Attributes:
        dropped: Tokens of the pruned children.
    """

    step: fields.StepIndex
    path: int
    dropped: Annotated[tuple[int, ...], fields.PER_STEP]


@dataclass(frozen=True, slots=True)
class Pruned:
    """The path limit pruned a path; its private KV rows are free again."""

    step: fields.StepIndex
    path: int


@dataclass(frozen=True, slots=True)
class Reweighted:
    """The weight of a path changed because others were pruned (`fair`) or because the number of
    paths changed (`original`).
    """

    step: fields.StepIndex
    path: int
    weight: fields.Weight


@dataclass(frozen=True, slots=True)
class PathFinished:
    """A path is complete: it drew a stop token, or reached max_new_tokens."""

    step: fields.StepIndex
    path: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class RowsAllocated:
    """The KV tensors grew, or their rows were compacted."""

    step: fields.StepIndex
    growth: Growth


@dataclass(frozen=True, slots=True)
class KvMeasured:
    """The KV cache right after the forward pass of a step, for the paths that took part in it."""

    step: fields.StepIndex
    usage: KVUsage


@dataclass(frozen=True, slots=True)
class StepTimed(Pause):
    """One forward pass with the decisions that followed it. Times are zero in a what-if run.

    Attributes:
        step: The first step that the pass served. With draft tokens a pass may serve several steps,
            or only a part of one.
        tokens: Tokens that went through the model.
        seconds: Wall time of the pass and its decisions.
        forward_seconds: Wall time of the pass.
        draft_seconds: Wall time of the drafter.
    """

    step: fields.StepIndex
    tokens: fields.Count
    seconds: fields.Seconds
    forward_seconds: fields.Seconds
    draft_seconds: fields.Seconds = 0.0


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event.

    Attributes:
        step: Steps decided so far.
        reason: `unwatched`: the server stopped the run because no open tab watched it.
        message: What went wrong, if the reason is `failed`.
    """

    step: fields.StepIndex
    reason: EndReason
    message: fields.Message = ""

    @property
    def stopped(self) -> bool:
        """Whether it was stopped early although nothing went wrong."""
        return self.reason in ("stopped", "unwatched")


Event: TypeAlias = (
    Probed
    | RunStarted
    | Predicted
    | Speculated
    | TokenAppended
    | Forked
    | LimitActed
    | Pruned
    | Reweighted
    | PathFinished
    | RowsAllocated
    | KvMeasured
    | StepTimed
    | RunEnded
)
