"""The interface that the engine needs from a language model. Tests use a table of probabilities."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from torch import Tensor

from eab import token_text
from eab.config import BranchingConfig
from eab.engine.branching.presets import START
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.kv_pool import KVPool
from eab.engine.caches.shape import KVShape
from eab.errors import ModelError
from eab.run.events import ModelCard
from eab.run.events.chat import Prompt


def refuse_own_memory(model: "LanguageModel") -> None:
    """Refuse a model that keeps anything but KV rows, where only KV rows are measured."""
    own = model.kv_shape.own
    if own is not None:
        kept = "its memory in its own way, without the KV rows that are measured here"
        if own.shared_layers:
            kept = "states in addition to KV rows, and only rows are measured here"
        raise ModelError(
            f"{model.card.name} keeps {kept}; choose a model with attention in all layers, such as "
            "the embedded one"
        )


class LanguageModel(Protocol):
    """A decoder-only model, shared read-only between runs."""

    card: ModelCard
    kv_shape: KVShape
    context: int  # number of positions that it can tell apart
    stop_ids: frozenset[int]  # tokens that end a text
    kv_pool: KVPool | None = None  # of tensors that runs borrow, on a GPU

    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        """Run one forward pass over the tokens of all batches. Return the logits, (sum of K, V), of
        the tokens that `logits_indices` selects, batch after batch.

        Raises:
            Stopped: Nobody waits for the result (see `eab.engine.models.stopping`).
        """
        ...

    def encode(
        self, prompt: Prompt, config: BranchingConfig = START, parse_special: bool = False
    ) -> tuple[int, ...]:
        """Token ids of a prompt or of chat messages. Messages need a chat template; a prompt uses
        it if the config asks for it. The text of a control token, such as `<|im_end|>`, becomes one
        only with `parse_special`.
        """
        ...

    def encode_following(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that follows others, such as an answer, without control tokens."""
        raise ModelError(f"{self.card.name} scores no texts; load the model on this machine")

    def decode(self, tokens: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids, with the texts of control tokens unless they are skipped."""
        kept = (each for each in tokens if not (skip_special_tokens and self.is_special(each)))
        return token_text.join(map(self.text, kept))

    def text(self, token: int) -> str:
        """The token's exact text (see eab.token_text)."""
        ...

    def is_special(self, token: int) -> bool:
        """Whether the token is a control token, which is not part of the text."""
        ...
