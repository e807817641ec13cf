"""The frozen, plain values that events consist of."""

from typing import Annotated, Literal, NamedTuple

import msgspec

from eab.run.events import fields
from eab.weight_formats import AS_LOADED, PLAIN, full_name


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A value without cycles, which garbage collection need not visit; JSON omits its defaults."""


class Message(Value, frozen=True):
    """One message of a chat (see `eab.run.events.chat.read_messages`): `Message("user", "Hello")`.

    Attributes:
        role: The speaker, such as `system`, `user` or `assistant`.
    """

    role: fields.Role
    content: fields.PromptText


class Candidate(Value, frozen=True, array_like=True):
    """One of the most likely tokens of a prediction; most objects of a run are candidates."""

    token: fields.TokenId
    text: fields.TokenText  # its text (see eab.token_text)
    probability: fields.Probability  # in the processed distribution, rounded to six decimals


class EntropyBounds(NamedTuple):
    """The smallest and the largest value, in nats, that an entropy can have."""

    low: fields.Nats
    high: fields.Nats


class PathPrediction(NamedTuple):
    """One path's next-token distribution as a decision saw it: entropy and top candidates."""

    path: fields.PathId
    # Of the processed distribution, in nats; None if an imported run does not say enough for it
    entropy: fields.Nats | None
    # Its most likely tokens, most likely first
    candidates: Annotated[tuple[Candidate, ...], fields.PER_PREDICTION]
    # Bounds of the entropy of the model's own distribution, before temperature and filters, if a
    # server reports only its most likely tokens; of the entropy itself, if an imported run has only
    # these; otherwise None
    whole: EntropyBounds | None = None


class NewToken(NamedTuple):
    """The token appended to a path."""

    path: fields.PathId
    token: fields.TokenId
    # Its exact bytes, decoded as UTF-8 with `surrogateescape` so that a partial character stays
    # exact (see eab.token_text)
    text: fields.TokenText
    # In the processed distribution, in nats; None if an imported run does not say it
    log_prob: fields.LogProb | None
    special: bool  # whether it is a control token, which is not part of the text


class DroppedTokens(NamedTuple):
    """The first tokens of a path's children that the path limit pruned at birth."""

    path: fields.PathId
    tokens: Annotated[tuple[fields.Whole, ...], fields.PER_STEP]


class NewWeight(NamedTuple):
    """The weight of a path from now on."""

    path: fields.PathId
    weight: fields.Weight


class LabelRule(NamedTuple):
    """Which texts have a label: `mark`, those that begin with the tokens of the path up to this
    one; `contains`, those that contain the text, ignoring case; `pattern`, those in which this
    regular expression is found; `json`, those that are valid JSON. See `eab.analysis.labels`.
    """

    label: fields.LabelName
    kind: Literal["mark", "contains", "pattern", "json"]
    text: fields.RuleText = ""
    path: fields.Whole = 0
    token: fields.Count = 0  # its index in the path


class PathRows(NamedTuple):
    """The KV rows that one live path reads."""

    path: fields.PathId
    shared: fields.Whole  # rows that another live path reads, too
    private: fields.Whole  # rows that only this path reads


class Growth(Value, frozen=True):
    """One reallocation of a cache's tensors."""

    rows: fields.Count  # rows that the tensors hold afterwards
    rows_copied: fields.Count  # rows that had to be copied
    bytes_copied: fields.Count  # bytes of these rows
    # Peak bytes of old and new tensors together so far (measured)
    peak_bytes: fields.Count
    # The number of decode steps that the added rows serve; 0 for the prompt and if they shrink
    r: fields.Count = 0


class KVUsage(Value, frozen=True):
    """The contents of a KV cache: distinct rows by use, their bytes, and totals since the run
    started.

    Shared, private and spare rows add up to all rows held.
    """

    # Bytes of the tensors (measured; computed in a what-if run or if a server holds them)
    bytes_held: fields.Count
    rows_shared: fields.Count  # rows of tokens of two or more live paths
    rows_private: fields.Count  # rows of tokens of one live path
    rows_spare: fields.Count  # reserved rows: allocated, but without a token
    # Tokens of all these paths: the rows that separate caches would use (computed); see
    # eab.figures.kv_memory for the rows that they would hold
    rows_independent: fields.Count
    paths: Annotated[tuple[PathRows, ...], fields.PER_STEP]  # the rows of each live path
    bytes_copied: fields.Count = 0  # bytes copied after they were first stored
    allocations: fields.Count = 0  # tensors allocated
    peak_bytes: fields.Count = 0  # peak bytes, temporary tensors included
    block_size: fields.Count = 0  # rows per block, if a server holds the rows in blocks; else 0
    tokens_sent: fields.Count = 0  # tokens of all texts sent to the server
    # How many of them the server did not compute (measured there; 0 if it does not report it)
    tokens_cached: fields.Count = 0
    # Bytes of each live path other than KV rows, if the model keeps states, or all of its memory,
    # in a form of its own. All of these bytes are private.
    own_bytes: Annotated[tuple[fields.Count, ...], fields.PER_STEP] = ()
    # Tokens of the prompt whose rows the run found in the prefix cache
    tokens_reused: fields.Count = 0
    rows_reused: fields.Count = 0  # the rows, shared or private, that it reads in that cache
    other_runs: fields.Count = 0  # other runs that read some of these rows now

    def bytes_alone(self, row_bytes: int) -> int:
        """Bytes held, excluding those in the prefix cache, which many runs may read."""
        return self.bytes_held - self.rows_reused * row_bytes

    def bytes_by_use(self, row_bytes: int) -> tuple[int, int, int]:
        """Shared, private and spare bytes, given the bytes per row."""
        if self.own_bytes:
            shared = self.rows_shared * row_bytes
            private = self.rows_private * row_bytes + sum(self.own_bytes)
            return shared, private, max(0, self.bytes_held - shared - private)
        rows = self.rows_shared, self.rows_private, self.rows_spare
        return rows[0] * row_bytes, rows[1] * row_bytes, rows[2] * row_bytes

    def bytes_by_path(self, row_bytes: int) -> list[tuple[int, int, int]]:
        """The id, shared bytes and private bytes of each live path."""
        own = self.own_bytes or (0,) * len(self.paths)
        return [
            (path, shared * row_bytes, private * row_bytes + more)
            for (path, shared, private), more in zip(self.paths, own, strict=False)
        ]


class LayerRow(NamedTuple):
    """What one layer stores for a token."""

    kv_heads: fields.Size
    key_dim: fields.Size
    value_dim: fields.Size


class WindowRows(NamedTuple):
    """Layers that read only the last tokens of a text."""

    tokens: fields.Size  # the size of the window
    row_bytes: fields.Count  # bytes that these layers together store for a token


class ModelCard(Value, frozen=True):
    """What a reader of the run needs to know about the model."""

    name: fields.ModelName  # as given to `eab.load_model`
    family: fields.Word  # the model type of transformers, such as `llama`
    vocab_size: fields.Size
    layers: fields.Whole
    kv_heads: fields.Whole
    head_dim: fields.Whole
    dtype: fields.Word  # of K and V, and of weights that are as loaded
    device: fields.Word
    row_bytes: fields.Count  # K and V of one token in all layers; 0 if only states are kept
    weights: fields.Word = AS_LOADED  # their format (see eab.weight_formats)
    layout: fields.Word = PLAIN  # layout of weights that are as loaded
    # Hash of the weight files, one after the other; empty if the weights are on a server, were
    # loaded by the caller, or are very large
    sha256: fields.Word = ""
    # Sizes in each layer with K and V of its own, if they differ from those above
    layer_rows: Annotated[tuple[LayerRow, ...], fields.PER_MODEL] = ()
    # A sentence on what paths share and do not share, and the bytes that each path takes regardless
    # of its length; empty and 0 if all memory is KV rows, which paths share
    own_memory: fields.Message = ""
    state_bytes: fields.Count = 0
    shares_rows: bool = True  # whether paths share KV rows at all
    # A sentence on what its attention keeps and reads; empty for ordinary attention
    attention: fields.Message = ""
    # The part of a row that is in sliding-window layers. A cache of one text needs only the last
    # rows there; the caches of this program keep all.
    window_rows: Annotated[tuple[WindowRows, ...], fields.PER_MODEL] = ()
    # The markers of thoughts that its chat template names, such as <think>
    thinking: Annotated[tuple[fields.Word, ...], fields.PER_MODEL] = ()
    # Whether the forward pass is that of this program (models/decoder.py), or transformers' own
    own_decoder: bool = False

    @property
    def memory_words(self) -> str:
        """Describes the model's memory; empty if it is the usual."""
        return self.own_memory or self.attention

    @property
    def full_name(self) -> str:
        """Its name and its weight format, such as `embedded@int8`."""
        return full_name(self.name, self.weights)
