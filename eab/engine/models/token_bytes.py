"""The exact text of single tokens, for byte-level and for SentencePiece-like vocabularies."""

import json
import re

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from eab import token_text

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenTexts(dict[int, str]):
    """`texts[token]` is the token's text (see `eab.token_text`), also beyond the vocabulary."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(control_tokens(tokenizer))
        by_byte = bytes_to_unicode() if "ByteLevel" in _decoder_kinds(tokenizer) else {}
        self._byte_of = {character: byte for byte, character in by_byte.items()}

    def __missing__(self, token: int) -> str:
        return self.setdefault(token, self._text(token))

    def is_special(self, token: int) -> bool:
        return token in self._special

    def _text(self, token: int) -> str:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if not isinstance(piece, str):
            return f"<unused {token}>"  # a model's vocabulary may be larger than the tokenizer's
        if self.is_special(token):
            return piece
        if self._byte_of:
            if all(character in self._byte_of for character in piece):
                return token_text.from_bytes(bytes(map(self._byte_of.__getitem__, piece)))
            return piece
        byte = _BYTE_TOKEN.fullmatch(piece)
        return token_text.from_bytes(bytes([int(byte[1], 16)])) if byte else piece.replace("▁", " ")


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """The ids and texts of the tokens that `skip_special_tokens` of transformers leaves out: also
    those without a named role, such as the turns of a chat template.
    """
    added = tokenizer.added_tokens_decoder.items()
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    return dict(named) | {id: token.content for id, token in added if token.special}


def _decoder_kinds(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """The types of the decoding steps of a fast tokenizer."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = json.loads(backend.to_str()).get("decoder") if backend is not None else None
    if not decoder:
        return set()
    return {step["type"] for step in decoder.get("decoders", [decoder])}
