"""What events are made of: frozen, plain values."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from eab.events import fields
from eab.weight_formats import AS_LOADED, PLAIN, full_name


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat (see `eab.events.chat.read_messages`): `Message("user", "Hello")`.

    Attributes:
        role: Who says it, such as `system`, `user` or `assistant`.
    """

    role: fields.Role
    content: fields.PromptText


class Candidate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One of the most likely tokens of a prediction.

    Most of the objects of a run are candidates: the garbage collector need not visit them.
    """

    token: fields.TokenId
    text: fields.TokenText  # its text (see eab.token_text)
    probability: fields.Probability  # in the processed distribution, rounded to six decimals


class EntropyBounds(NamedTuple):
    """The least and the largest value, in nats, that an entropy can have."""

    low: fields.Nats
    high: fields.Nats


class PathPrediction(NamedTuple):
    """What a decision saw of one path's next-token distribution."""

    path: fields.PathId
    entropy: fields.Nats  # of the processed distribution, in nats
    # Its most likely tokens, most likely first
    candidates: Annotated[tuple[Candidate, ...], fields.PER_PREDICTION]
    # Bounds of the entropy of the model's own distribution, before temperature and filters,
    # where a server names only its most likely tokens; else None
    whole: EntropyBounds | None = None


class NewToken(NamedTuple):
    """The token by which a path grew."""

    path: fields.PathId
    token: fields.TokenId
    # Its exact bytes as UTF-8 with `surrogateescape`, so that half a character stays exact (see
    # eab.token_text)
    text: fields.TokenText
    log_prob: fields.LogProb  # in the processed distribution, in nats
    special: bool  # whether it is a control token, which is not part of the text


class DroppedTokens(NamedTuple):
    """The first tokens of a path's children that the path limit pruned at birth."""

    path: fields.PathId
    tokens: Annotated[tuple[fields.Whole, ...], fields.PER_STEP]


class NewWeight(NamedTuple):
    """The weight of a path from now on."""

    path: fields.PathId
    weight: fields.Weight


class PathRows(NamedTuple):
    """The KV rows that one live path reads."""

    path: fields.PathId
    shared: fields.Whole  # rows that another live path reads, too
    private: fields.Whole  # rows that only this path reads


@dataclass(frozen=True, slots=True)
class Growth:
    """One reallocation of a cache's tensors, or a move of its rows to other places in them."""

    rows: fields.Count  # rows that the tensors hold after it
    rows_copied: fields.Count  # rows that had to be copied
    bytes_copied: fields.Count  # bytes of these rows
    # The most bytes that old and new tensors have held together so far (measured)
    peak_bytes: fields.Count
    # For how many decode steps the tensors grew; 0 for the prompt and for moved rows
    r: fields.Count = 0


@dataclass(frozen=True, slots=True)
class KVUsage:
    """The contents of a KV cache: distinct rows by use, their bytes, and totals since the run
    began.

    Shared, private and spare rows add up to all rows held.
    """

    # Bytes of the tensors (measured; computed in a what-if run, and where a server holds them)
    bytes_held: fields.Count
    rows_shared: fields.Count  # rows of tokens of two or more live paths
    rows_private: fields.Count  # rows of tokens of one live path
    rows_spare: fields.Count  # reserved rows: allocated, but without a token
    # Tokens of all these paths, which is what separate caches would use (computed); see
    # eab.analysis.separate_caches for what they would hold
    rows_independent: fields.Count
    paths: Annotated[tuple[PathRows, ...], fields.PER_STEP]  # the share of each live path
    bytes_copied: fields.Count = 0  # bytes that were stored before and moved again
    allocations: fields.Count = 0  # tensors made
    peak_bytes: fields.Count = 0  # the most bytes alive at once, temporary tensors included
    block_size: fields.Count = 0  # rows of a block, where a server holds the rows in blocks; else 0
    tokens_sent: fields.Count = 0  # tokens of all texts that were sent to the server
    # How many of them it did not have to compute (measured by the server; 0 where it does not say)
    tokens_cached: fields.Count = 0
    # Bytes of each live path beside rows, where the model keeps states, or all of its memory, in
    # its own way: all of them are private
    own_bytes: Annotated[tuple[fields.Count, ...], fields.PER_STEP] = ()
    # Tokens of the prompt whose rows the run found in the prefix cache
    tokens_reused: fields.Count = 0
    rows_reused: fields.Count = 0  # the rows, shared or private, that it reads where they are there
    other_runs: fields.Count = 0  # that read some of these rows now

    def bytes_alone(self, row_bytes: int) -> int:
        """Bytes held without those in the prefix cache, which many runs may read."""
        return self.bytes_held - self.rows_reused * row_bytes

    def bytes_by_use(self, row_bytes: int) -> tuple[int, int, int]:
        """Shared, private and spare bytes, with this many in a row."""
        if self.own_bytes:
            shared = self.rows_shared * row_bytes
            private = self.rows_private * row_bytes + sum(self.own_bytes)
            return shared, private, max(0, self.bytes_held - shared - private)
        rows = self.rows_shared, self.rows_private, self.rows_spare
        return rows[0] * row_bytes, rows[1] * row_bytes, rows[2] * row_bytes

    def bytes_by_path(self, row_bytes: int) -> list[tuple[int, int, int]]:
        """Each live path with its shared and private bytes."""
        own = self.own_bytes or (0,) * len(self.paths)
        return [
            (path, shared * row_bytes, private * row_bytes + more)
            for (path, shared, private), more in zip(self.paths, own, strict=False)
        ]


class LayerRow(NamedTuple):
    """What one layer stores of a token."""

    kv_heads: fields.Size
    key_dim: fields.Size
    value_dim: fields.Size


class WindowRows(NamedTuple):
    """Layers that read only the last tokens of a text."""

    tokens: fields.Size  # how many
    row_bytes: fields.Count  # what these layers store of a token, all together


@dataclass(frozen=True, slots=True)
class ModelCard:
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
    layout: fields.Word = PLAIN  # of weights that are as loaded
    # Of the files of its weights, one after the other; empty if they are on a server, were loaded
    # by the caller, or are very large
    sha256: fields.Word = ""
    # Of the layers that have K and V of their own, where these are not all as said above
    layer_rows: Annotated[tuple[LayerRow, ...], fields.PER_MODEL] = ()
    # What its paths share and what not, in a sentence, and the bytes that each takes whatever its
    # length; empty and 0 if all memory is KV rows, which are shared
    own_memory: fields.Message = ""
    state_bytes: fields.Count = 0
    shares_rows: bool = True  # whether paths share KV rows at all
    # What its attention keeps and reads, in a sentence; empty if that is the usual
    attention: fields.Message = ""
    # The part of a row that is in layers with a window. Caches of one text need only the last rows
    # there; those of this program keep all.
    window_rows: Annotated[tuple[WindowRows, ...], fields.PER_MODEL] = ()

    @property
    def memory_words(self) -> str:
        """What its memory is made of; empty if it is the usual."""
        return self.own_memory or self.attention

    @property
    def full_name(self) -> str:
        """Its name and its weight format, such as `embedded@int8`."""
        return full_name(self.name, self.weights)
