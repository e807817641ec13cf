"""Checks, when connecting, that a server can do what the engine needs."""

import string
from typing import Final

from transformers import PreTrainedTokenizerBase

from eab.errors import ModelError, ServerError
from eab.models.token_bytes import TokenTexts
from eab.remote.dialect import Continuation, Dialect, ServerModel

TOPS: Final = (100, 20)  # most likely tokens to request: from a server of your own; vLLM's default
PROBE: Final = "A cat, 12 dogs\nand the sea: it's  blue."
MAX_DIFFERENCE: Final = 0.1  # nats, between two answers to the same text; servers may round


def harmless_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """A token that is a single letter; ModelError if there is none."""
    texts = TokenTexts(tokenizer)
    for letter in string.ascii_letters:
        token = tokenizer.convert_tokens_to_ids(letter)
        if isinstance(token, int) and texts[token] == letter:
            return token
    raise ModelError("the tokenizer has no token for a single letter; choose another model")


def check_tokenizer(
    server: Dialect, served: ServerModel, tokenizer: PreTrainedTokenizerBase, vocab_size: int
) -> None:
    """Check that the server's token ids mean the same as here; else ModelError."""
    if served.vocab_size not in (None, vocab_size):
        raise ModelError(
            f"the server's model has {served.vocab_size} tokens, but the model named here has "
            f"{vocab_size}; name the model that the server runs"
        )
    if server.tokenize(PROBE) != list(tokenizer.encode(PROBE)):
        raise ModelError(
            "the server's tokenizer differs from the one of the model named here; name the model "
            "that the server runs"
        )


def granted_tops(server: Dialect, probe: list[int], vocab_size: int) -> int:
    """How many of the most likely tokens the server returns; ModelError if too few."""
    refusal = ServerError()
    for top in TOPS:
        top = min(top, vocab_size)
        try:
            _continue(server, [probe], top)
            return top
        except ServerError as error:
            refusal = error
    raise ModelError(
        f"the server does not return the {TOPS[-1]} most likely tokens for a prompt of token "
        f"ids, which exact runs require: {refusal}"
    )


def check_numbers(server: Dialect, probe: list[int], top: int, vocab_size: int) -> None:
    """Check that texts are answered in order, with the model's own ln p; else ModelError."""
    texts = [probe, probe[:-1]]
    both = _continue(server, texts, top)
    alone = [_continue(server, [text], top, temperature=0.5)[0] for text in texts]
    if any(max(continuation.tops[0]) >= vocab_size for continuation in both):
        raise ModelError(
            f"the server returns tokens beyond the {vocab_size} of the model named here"
        )
    for together, other in zip(both, alone, strict=True):
        if _difference(together, other) > MAX_DIFFERENCE:
            raise ModelError(
                "the server's log-probabilities depend on the temperature, or on the other texts "
                "of the request; start it with raw log-probabilities (vLLM: --logprobs-mode "
                "raw_logprobs)"
            )


def _continue(
    server: Dialect, texts: list[list[int]], top: int, temperature: float = 0.0
) -> list[Continuation]:
    return server.continue_texts(texts, top, 1, temperature)


def _difference(continuation: Continuation, other: Continuation) -> float:
    ours, theirs = continuation.tops[0], other.tops[0]
    likeliest = sorted(ours, key=lambda token: -ours[token])[:2]
    return max(abs(ours[token] - theirs.get(token, -1e9)) for token in likeliest)
