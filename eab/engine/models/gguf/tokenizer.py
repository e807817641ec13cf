"""The tokenizer in a GGUF file, with its chat template and the tokens that end a text."""

import json
from itertools import zip_longest
from math import isfinite
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    GGUF_TOKENIZER_MAPPING,
    convert_gguf_tokenizer,
)
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from eab.engine.models.gguf.header import Header
from eab.errors import ModelError
from eab.formatting import quoted, reason_of

# Pre-tokenizers missing from transformers' table, by llama.cpp's names (llama_vocab,
# tokenizer_pre): those that split like GPT-2, and those that also split off single digits.
_AS_GPT2: Final = ("gpt-2", "phi-2", "mpt", "olmo")
_SINGLE_DIGITS: Final = ("smollm", "starcoder", "refact", "command-r", "codeshell")
# Tokens that end an answer even if the file does not say so; llama.cpp knows them by their text.
_ENDS: Final = {"<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"}
_CONTROL, _USER_DEFINED = 3, 4  # token types in GGUF; both are matched as a whole
_MAX_TOKEN: Final = 1_000  # characters
_MAX_CHARACTERS: Final = 2**22  # in all tokens together
# Without merges, every split of every token is tried: time and memory quadratic in its length.
_MAX_CUTS: Final = 2**25
_SAMPLING: Final = {"temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}
_MARKS: Final = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}


def tokenizer_of(name: str, header: Header) -> PreTrainedTokenizerBase:
    """The tokenizer of a GGUF file, with its chat template.

    Raises:
        ModelError: There is none, it cannot be read, or it splits text in an unknown way.
    """
    described: dict[str, Any] = {
        ours: header.metadata[f"tokenizer.{key}"]
        for key, ours in GGUF_TOKENIZER_MAPPING["tokenizer"].items()
        if f"tokenizer.{key}" in header.metadata
    }
    cut = _checked_cut(name, described)
    _check_vocabulary(header)
    marked = _marked_tokens(header)
    template = header.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str | None):
        raise header.refusal(f"its chat template is {quoted(template)}, which is not text")
    try:
        backend, _ = convert_gguf_tokenizer(header.architecture, described)
        backend = _as_in_the_file(backend, header)
        if cut in _SINGLE_DIGITS:
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
        tokenizer = TokenizersBackend(
            tokenizer_object=backend,
            add_bos_token=_adds_bos(header),
            chat_template=template,
            clean_up_tokenization_spaces=False,
            **marked,
        )
    except Exception as error:  # transformers raises anything for a hostile vocabulary
        raise ModelError(
            f"the tokenizer of the GGUF file {quoted(name)} cannot be used ({reason_of(error)})"
        ) from error
    if len(tokenizer) != len(header.tokens):
        raise header.refusal("some of its tokens have the same text")
    return tokenizer


def _checked_cut(name: str, described: dict[str, Any]) -> str:
    """The name of the pre-tokenizer; ModelError if it is unknown."""
    cut = described.get("pre_tokenizer_type", "")
    known = (*GGUF_PRE_TOKENIZER_SPLITS, *_AS_GPT2, *_SINGLE_DIGITS)
    if described.get("tokenizer_type") == "gpt2" and cut not in known:
        raise ModelError(
            f"the GGUF file {quoted(name)} has the pre-tokenizer {quoted(cut)}, which is not "
            f"among the supported ones: {', '.join(known)}"
        )
    return str(cut)


def _check_vocabulary(header: Header) -> None:
    """Raise ModelError if building the tokenizer would take very long or a list is damaged."""
    lengths = [len(token) for token in header.tokens]
    if max(lengths) > _MAX_TOKEN or sum(lengths) > _MAX_CHARACTERS:
        raise header.refusal(
            f"its tokens have up to {max(lengths):,} characters, {sum(lengths):,} in all; at most "
            f"{_MAX_TOKEN:,} and {_MAX_CHARACTERS:,} are allowed"
        )
    without_merges = "tokenizer.ggml.merges" not in header.metadata
    if without_merges and sum(length**2 for length in lengths) > _MAX_CUTS:
        raise header.refusal("it has no merges, and its tokens are too long to find them")
    for key, kinds in (("scores", (int, float)), ("token_type", (int,))):
        values = header.metadata.get(f"tokenizer.ggml.{key}")
        if values is not None and not (
            isinstance(values, list)
            and len(values) == len(lengths)
            and all(type(value) in kinds and isfinite(value) for value in values)
        ):
            raise header.refusal(f"its list tokenizer.ggml.{key} does not fit its vocabulary")


def _as_in_the_file(backend: Any, header: Header) -> Any:
    """The tokenizer with exactly the tokens of the file.

    transformers adds special tokens of other vocabularies, such as <|endoftext|>, for which the
    model has no embedding. It also spells tokens that should be matched as a whole, such as
    <｜User｜> of DeepSeek, as bytes, so they would be split. Before 5.23, it leaves out control
    tokens without a named role.
    """
    state = json.loads(backend.to_str())
    count, added = len(header.tokens), []
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < count]
    kinds = header.metadata.get("tokenizer.ggml.token_type") or []
    for text, kind in zip(header.tokens, kinds, strict=False):
        if kind == _CONTROL:
            added.append(AddedToken(text, normalized=False, special=True))
    if header.metadata.get("tokenizer.ggml.model") == "gpt2":
        spelling = bytes_to_unicode()
        alphabet = set(spelling.values())
        vocabulary = state["model"]["vocab"] = {}
        for id, (text, kind) in enumerate(zip_longest(header.tokens, kinds)):
            if set(text) <= alphabet or kind == _CONTROL:
                vocabulary[text] = id
            elif kind == _USER_DEFINED:
                vocabulary[text] = id
                added.append(AddedToken(text, normalized=False))
            else:
                vocabulary["".join(spelling[byte] for byte in text.encode())] = id
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_tokens(added)
    return tokenizer


def _adds_bos(header: Header) -> bool:
    """Whether a BOS token precedes the text; by default, only with SentencePiece vocabularies."""
    is_llama = header.metadata.get("tokenizer.ggml.model") == "llama"
    return bool(header.metadata.get("tokenizer.ggml.add_bos_token", is_llama))


def _marked_tokens(header: Header) -> dict[str, str]:
    """The texts of the tokens that have a role, such as EOS."""
    ids = {role: header.token_id(key) for role, key in _MARKS.items()}
    return {role: header.tokens[id] for role, id in ids.items() if id is not None}


def generation_of(header: Header) -> GenerationConfig:
    """The tokens that end a text, and the sampling settings that the file recommends."""
    metadata = header.metadata
    ends = {header.token_id(end) for end in ("eos", "eot", "eom")}
    kinds = metadata.get("tokenizer.ggml.token_type") or []
    ends |= {
        token
        for token, (text, kind) in enumerate(zip(header.tokens, kinds, strict=False))
        if kind == _CONTROL and text in _ENDS
    }
    sampling = {name: metadata.get(f"general.sampling.{key}") for name, key in _SAMPLING.items()}
    given = {name: value for name, value in sampling.items() if value is not None}
    for name, value in given.items():
        if type(value) not in (int, float) or not isfinite(value):
            raise header.refusal(
                f"its recommended {name} is {quoted(value)}, which is not a number"
            )
    return GenerationConfig(eos_token_id=sorted(ends - {None}), **given)
