"""What can happen in a run: frozen, plain values, one class per thing, a closed union.

Ids of paths are small integers in order of birth. A path is a stretch without a fork: at a fork it ends and its
children begin. Decisions carry no clock, so two runs compare exactly; timing is an event of its own.
Step s chooses the s-th new token; step 0 follows the prefill of the prompt.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from eab import token_text
from eab.config import BranchingConfig

FinishReason = Literal["stop", "length"]
EndReason = Literal["finished", "stopped", "unwatched", "failed"]
Reread = Literal["", "exact", "not exact"]


class Candidate(NamedTuple):
    """One token that the model considered. Probability: processed, rounded to six decimals."""

    token: int
    text: str
    probability: float


class PathRows(NamedTuple):
    """KV rows that one live path sees: shared with another live path, or seen by this path alone."""

    path: int
    shared: int
    private: int


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a reader of the run needs to know about the model. row_bytes: K and V of one token, all layers."""

    name: str
    family: str
    vocab_size: int
    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    device: str
    row_bytes: int


class Pause:
    """An event that ends a piece of work: here a run or a measurement can be stopped, or make way for another."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Probed(Pause):
    """Only before RunStarted, for a quantile threshold: the entropy (nats) at a step of the greedy probe."""

    step: int
    entropy: float


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first event after the probe. `prompt_texts` are the prompt's tokens.

    threshold_nats: what the config's threshold came to; the entropy can reach ln(model.vocab_size). draft: the model
    that guesses, if the drafter is one.
    reread: empty for a run that a model made; else it was worked out from the events of such a run (eab.rereading), is
    what the engine would do or may differ from it, and has no measured times.
    continued: how many of the last prompt_tokens were taken from another run; `prompt` is the text before them.
    """

    prompt: str
    prompt_tokens: tuple[int, ...]
    prompt_texts: tuple[str, ...]
    model: ModelCard
    config: BranchingConfig
    threshold_nats: float
    draft: ModelCard | None = None
    reread: Reread = ""
    continued: int = 0

    @property
    def beginning(self) -> str:
        """The text that the run goes on from: the prompt, and what was taken from another run."""
        return self.prompt + token_text.join(self.prompt_texts[len(self.prompt_texts) - self.continued :])


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a decision saw: entropy (nats) of the processed distribution and its most likely tokens."""

    step: int
    path: int
    entropy: float
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Speculated:
    """One forward pass tried guessed tokens of a path, the first of them for step `step`; `accepted` were right.

    judged: accepted, and one more if the next was wrong; those after it were in vain, and where the path may fork
    nothing can be said of a guess. The pass may reach steps that are decided later, when all paths have come so far.
    """

    step: int
    path: int
    drafted: tuple[int, ...]
    texts: tuple[str, ...]
    accepted: int
    judged: int


@dataclass(frozen=True, slots=True)
class TokenAppended:
    """A path grew by one token.

    text: the token's exact bytes, as UTF-8 with `surrogateescape` (half a character stays exact; see token_text).
    log_prob: under the processed distribution (nats). special: a control token that is not part of the text.
    """

    step: int
    path: int
    token: int
    text: str
    log_prob: float
    special: bool


@dataclass(frozen=True, slots=True)
class Forked:
    """A path ended in two or more children, in tree order; each child's first token follows as an event.

    heir: the child that would have come without forking (it keeps the random stream), or -1 if it was pruned.
    """

    step: int
    path: int
    children: tuple[int, ...]
    weights: tuple[float, ...]
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
    """The weight of a path changed, because others were pruned (`fair`) or because the count changed (`original`)."""

    step: int
    path: int
    weight: float


@dataclass(frozen=True, slots=True)
class PathFinished:
    """A path is complete: it drew a stop token, or reached max_new_tokens."""

    step: int
    path: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class RowsAllocated:
    """The KV tensors grew: rows they hold now, and the rows and bytes that had to be copied.

    peak_bytes: the most bytes that old and new tensors held together so far (measured). r: for how many decode steps
    they grew ahead; 0 for the prompt, for rows that moved up, and in files from before r could be chosen by the run.
    """

    step: int
    rows: int
    rows_copied: int
    bytes_copied: int
    peak_bytes: int
    r: int = 0


@dataclass(frozen=True, slots=True)
class KvMeasured:
    """KV cache right after the forward pass of a step, for the paths that took part in it.

    bytes_held: measured from the tensors (computed if the run was re-read). Rows, counted: shared + private are the
    distinct ones in use, spare the rest.
    rows_independent: computed; what the same paths would hold, each with a cache of its own.
    bytes_copied, allocations, peak_bytes: measured since the run began; what was stored before and had to be copied,
    the tensors made, and the most bytes that lived at once, temporary tensors included. A run file that was made before
    they were measured has zeros.
    """

    step: int
    bytes_held: int
    rows_shared: int
    rows_private: int
    rows_spare: int
    rows_independent: int
    paths: tuple[PathRows, ...]
    bytes_copied: int = 0
    allocations: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StepTimed(Pause):
    """Wall time of a forward pass with its decisions (seconds), and the tokens that went through the model in it.

    step: the first that it served; a pass with drafts may serve several steps or only a part of one. draft_seconds:
    the part that the drafter took. In a run that was re-read the tokens are those that the engine would send, and the
    times are zero.
    """

    step: int
    tokens: int
    seconds: float
    forward_seconds: float
    draft_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event. `message` says what went wrong when the reason is `failed`; `unwatched`: the server of the page
    stopped it because no open tab watched it."""

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
