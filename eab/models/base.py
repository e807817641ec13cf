"""What the engine needs of a language model. A few lines implement it: the tests use a table of
probabilities.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.shape import KVShape
from eab.config import BranchingConfig
from eab.events import ModelCard


class LanguageModel(Protocol):
    """A decoder that reads a batch of passes. It is shared between runs and never changed by them.

    context: positions that it can tell apart. stop_ids: tokens that end a text.
    """

    card: ModelCard
    kv_shape: KVShape
    context: int
    stop_ids: frozenset[int]

    def forward(self, passes: Sequence[ForwardBatch]) -> Tensor:
        """One forward pass for the tokens of all passes -> logits of the kept ones, (sum of P,
        V).
        """
        ...

    def encode(self, prompt: str, config: BranchingConfig) -> tuple[int, ...]:
        """Token ids of the prompt, with the chat template if the config asks for it."""
        ...

    def text(self, token: int) -> str:
        """The token's exact text (see eab.token_text)."""
        ...

    def is_special(self, token: int) -> bool:
        """Whether the token is a control token, no part of the text."""
        ...
