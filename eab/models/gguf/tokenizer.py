"""The tokenizer in a GGUF file, its chat template, and the tokens that end a text."""

from typing import Any, Final

from tokenizers import pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    GGUF_TOKENIZER_MAPPING,
    convert_gguf_tokenizer,
)
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from eab.errors import ModelError
from eab.formatting import quoted, reason_of
from eab.models.gguf.header import Header

# How text is cut before the merges, where transformers' table lacks it: names of llama.cpp
# (llama_vocab, tokenizer_pre) for the pieces of GPT-2, and for those with single digits.
_AS_GPT2: Final = ("gpt-2", "phi-2", "mpt", "olmo")
_SINGLE_DIGITS: Final = ("smollm", "starcoder", "refact", "command-r", "codeshell")
# Tokens that end an answer although a file may not say so, as llama.cpp knows them by their text.
_ENDS: Final = {"<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"}
_CONTROL: Final = 3  # a kind of token in GGUF
_MARKS: Final = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}


def tokenizer_of(name: str, header: Header) -> PreTrainedTokenizerBase:
    """The tokenizer of a GGUF file, with its chat template.

    Raises:
        ModelError: It has none, one that cannot be read, or one that cuts text in an unknown way.
    """
    metadata = header.metadata
    described: dict[str, Any] = {
        ours: metadata[f"tokenizer.{key}"]
        for key, ours in GGUF_TOKENIZER_MAPPING["tokenizer"].items()
        if f"tokenizer.{key}" in metadata
    }
    cut = _checked_cut(name, described)
    try:
        backend, _ = convert_gguf_tokenizer(header.architecture, described)
        if cut in _SINGLE_DIGITS:
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
        return TokenizersBackend(
            tokenizer_object=backend,
            add_bos_token=_adds_bos(header),
            chat_template=metadata.get("tokenizer.chat_template"),
            clean_up_tokenization_spaces=False,
            **_marked_tokens(header),
        )
    except Exception as error:  # transformers raises anything for a hostile vocabulary
        raise ModelError(
            f"the tokenizer of the GGUF file {quoted(name)} cannot be used ({reason_of(error)})"
        ) from error


def _checked_cut(name: str, described: dict[str, Any]) -> str:
    """How text is cut into words; ModelError if that is unknown, or there is no vocabulary."""
    if not described.get("tokens") or not isinstance(described["tokens"], list):
        raise ModelError(f"the GGUF file {quoted(name)} has no vocabulary; choose another file")
    cut = described.get("pre_tokenizer_type", "")
    known = (*GGUF_PRE_TOKENIZER_SPLITS, *_AS_GPT2, *_SINGLE_DIGITS)
    if described.get("tokenizer_type") == "gpt2" and cut not in known:
        raise ModelError(
            f"the GGUF file {quoted(name)} cuts text in the way {quoted(cut)}, which is not known "
            f"here; known: {', '.join(known)}"
        )
    return str(cut)


def _adds_bos(header: Header) -> bool:
    """Whether a text begins with a token of its own; SentencePiece's vocabularies by default."""
    is_llama = header.metadata.get("tokenizer.ggml.model") == "llama"
    return bool(header.metadata.get("tokenizer.ggml.add_bos_token", is_llama))


def _marked_tokens(header: Header) -> dict[str, str]:
    """The texts of the tokens with a role of their own."""
    tokens = header.metadata["tokenizer.ggml.tokens"]
    ids = {
        role: header.metadata.get(f"tokenizer.ggml.{key}_token_id") for role, key in _MARKS.items()
    }
    return {role: tokens[id] for role, id in ids.items() if id is not None}


def generation_of(header: Header) -> GenerationConfig:
    """The tokens that end a text, and the settings of sampling that the file recommends."""
    metadata = header.metadata
    ends = {metadata.get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot", "eom")}
    kinds = metadata.get("tokenizer.ggml.token_type") or []
    ends |= {
        token
        for token, (text, kind) in enumerate(
            zip(metadata["tokenizer.ggml.tokens"], kinds, strict=False)
        )
        if kind == _CONTROL and text in _ENDS
    }
    sampling = {
        "temperature": metadata.get("general.sampling.temp"),
        "top_p": metadata.get("general.sampling.top_p"),
        "top_k": metadata.get("general.sampling.top_k"),
        "min_p": metadata.get("general.sampling.min_p"),
    }
    given = {name: value for name, value in sampling.items() if value is not None}
    return GenerationConfig(eos_token_id=sorted(ends - {None}), **given)
