"""What can happen in a run: frozen, plain values, one class per thing, a closed union.

Ids of paths are small integers in order of birth. A path is a stretch without a fork: at a fork it
ends and its children begin. Decisions carry no clock, so two runs compare exactly; timing is an
event of its own. Step s chooses the s-th new token; step 0 follows the prefill of the prompt.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias

from eab import token_text
from eab.config import BranchingConfig

FinishReason = Literal["stop", "length"]


class Within(NamedTuple):
    """The range of a field, checked where a run file is read (see eab.record): runs are untrusted."""

    low: float
    high: float


TokenId = Annotated[int, Within(0, 2**40)]
Step = Annotated[int, Within(0, 2**20)]
Count = Annotated[int, Within(0, 2**50)]  # of rows, bytes, tokens
Nats = Annotated[float, Within(0.0, 100.0)]
LogProb = Annotated[float, Within(-1e6, 1e-3)]  # nats; rounding may exceed 0 a little
Weight = Annotated[float, Within(0.0, 1.001)]
Seconds = Annotated[float, Within(0.0, 1e9)]

EndReason = Literal["finished", "stopped", "unwatched", "failed"]
WhatIfKind = Literal["", "exact", "approximate"]


class Candidate(NamedTuple):
    """One token that the model considered. Probability: processed, rounded to six decimals."""

    token: TokenId
    text: str
    probability: float


class PathRows(NamedTuple):
    """KV rows that one live path sees: shared with another live path, or seen by this path
    alone.
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

    rows: Count
    rows_copied: Count
    bytes_copied: Count
    peak_bytes: Count
    r: Count = 0


@dataclass(frozen=True, slots=True)
class KVUsage:
    """What a KV cache holds: distinct rows by use, their bytes, and totals since the run began.

    Shared, private and spare rows add up to all rows held.

    Attributes:
        bytes_held: Bytes of the tensors (measured; computed in a what-if run).
        rows_shared: Rows that two or more live paths read.
        rows_private: Rows that one live path reads.
        rows_spare: Allocated rows that hold no token.
        rows_independent: Rows that the same paths would hold with a cache each (computed).
        paths: The share of each live path.
        bytes_copied: Bytes that were stored before and moved again.
        allocations: Tensors made.
        peak_bytes: The most bytes alive at once, temporary tensors included.
    """

    bytes_held: Count
    rows_shared: Count
    rows_private: Count
    rows_spare: Count
    rows_independent: Count
    paths: tuple[PathRows, ...]
    bytes_copied: Count = 0
    allocations: Count = 0
    peak_bytes: Count = 0


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a reader of the run needs to know about the model. row_bytes: K and V of one token, all
    layers.
    """

    name: str
    family: str
    vocab_size: Annotated[int, Within(1, 2**40)]
    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    device: str
    row_bytes: Annotated[int, Within(1, 2**40)]


class Pause:
    """An event that ends a piece of work: here a run or a measurement can be stopped, or make way
    for another.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Progressed(Pause):
    """How far the experiment is (0 to 1), and what it is doing."""

    share: float
    words: str


@dataclass(frozen=True, slots=True)
class Probed(Pause):
    """Only before RunStarted, for a quantile threshold: the entropy (nats) at a step of the greedy
    probe.
    """

    step: int
    entropy: Nats


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first event after the probe. `prompt_texts` are the prompt's tokens.

    threshold_nats: what the config's threshold came to; the entropy can reach ln(model.vocab_size).
    draft: the model that guesses, if the drafter is one.
    what_if: empty for a run that a model made; else it was worked out from the events of such a run
    (eab.what_if.resimulate), is what the engine would do or may differ from it, and has no measured
    times.
    continued: how many of the last prompt_tokens were taken from another run; `prompt` is the text
    before them.
    """

    prompt: str
    prompt_tokens: tuple[TokenId, ...]
    prompt_texts: tuple[str, ...]
    model: ModelCard
    config: BranchingConfig
    threshold_nats: Nats
    draft: ModelCard | None = None
    what_if: WhatIfKind = ""
    continued: Count = 0

    @property
    def beginning(self) -> str:
        """The text that the run goes on from: the prompt, and what was taken from another run."""
        return self.prompt + token_text.join(
            self.prompt_texts[len(self.prompt_texts) - self.continued :]
        )


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a decision saw: entropy (nats) of the processed distribution and its most likely
    tokens.
    """

    step: int
    path: int
    entropy: Nats
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Speculated:
    """One forward pass tried guessed tokens of a path, the first of them for step `step`;
    `accepted` were right.

    judged: accepted, and one more if the next was wrong; those after it were in vain, and where the
    path may fork nothing can be said of a guess. The pass may reach steps that are decided later,
    when all paths have come so far.
    """

    step: Step
    path: int
    draft_tokens: tuple[TokenId, ...]
    draft_texts: tuple[str, ...]
    accepted: int
    verified: int


@dataclass(frozen=True, slots=True)
class TokenAppended:
    """A path grew by one token.

    text: the token's exact bytes, as UTF-8 with `surrogateescape` (half a character stays exact;
    see token_text).
    log_prob: under the processed distribution (nats). special: a control token that is not part of
    the text.
    """

    step: int
    path: int
    token: TokenId
    text: str
    log_prob: LogProb
    special: bool


@dataclass(frozen=True, slots=True)
class Forked:
    """A path ended in two or more children, in tree order; each child's first token follows as an
    event.

    heir: the child that would have come without forking (it keeps the random stream), or -1 if it
    was pruned.
    """

    step: int
    path: int
    children: tuple[int, ...]
    weights: tuple[Weight, ...]
    heir: int


@dataclass(frozen=True, slots=True)
class LimitActed:
    """The path limit dropped children of this path at birth; `dropped` are their tokens."""

    step: int
    path: int
    dropped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pruned:
    """The path limit dropped a path; its private KV rows are free again."""

    step: int
    path: int


@dataclass(frozen=True, slots=True)
class Reweighted:
    """The weight of a path changed, because others were pruned (`fair`) or because the count
    changed (`original`).
    """

    step: int
    path: int
    weight: Weight


@dataclass(frozen=True, slots=True)
class PathFinished:
    """A path is complete: it drew a stop token, or reached max_new_tokens."""

    step: int
    path: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class RowsAllocated:
    """The KV tensors grew, or their rows were compacted."""

    step: int
    growth: Growth


@dataclass(frozen=True, slots=True)
class KvMeasured:
    """The KV cache right after the forward pass of a step, for the paths that took part in it."""

    step: int
    usage: KVUsage


@dataclass(frozen=True, slots=True)
class StepTimed(Pause):
    """Wall time of a forward pass with its decisions (seconds), and the tokens that went through
    the model in it.

    step: the first that it served; a pass with drafts may serve several steps or only a part of
    one. draft_seconds: the part that the drafter took. In a run that was re-read the tokens are
    those that the engine would send, and the times are zero.
    """

    step: int
    tokens: Count
    seconds: Seconds
    forward_seconds: Seconds
    draft_seconds: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event. `message` says what went wrong when the reason is `failed`; `unwatched`: the
    server of the page stopped it because no open tab watched it."""

    step: int
    reason: EndReason
    message: str = ""

    @property
    def stopped(self) -> bool:
        """Whether it was ended before its time, although nothing went wrong."""
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
