"""Settings and vocabularies of a stranger's GGUF file: refused with a message, or right."""

import math
from itertools import cycle
from typing import Any

import pytest
from hostile_gguf import check_words, refusal, tiny_file, tokenizer_refusal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_gguf import RawFile
from tiny_models import tiny
from write_gguf import write

from eab.config import BranchingConfig
from eab.engine.models.loading import load_model, load_tokenizer
from eab.errors import ModelError

TOKENS, KINDS = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
BOS = "tokenizer.ggml.bos_token_id"
NO_COUNTS: list[Any] = ["8", "", [8], [], True, -1, 0, 10**9, 2**63, math.nan, math.inf]
COUNTS = [
    *("block_count", "embedding_length", "attention.head_count", "attention.head_count_kv"),
    *("attention.key_length", "feed_forward_length"),
]
NO_NUMBERS: list[Any] = ["8", [8.0], True, -1.0, 0.0, math.nan, math.inf]
NUMBERS = ["rope.freq_base", "attention.layer_norm_rms_epsilon"]
NO_TOKENS: list[Any] = [72, -1, 2**32 - 1, 2**63, "1", [1], 1.0, True]
ROLES = ["eos", "bos", "eot", "eom", "unknown", "padding"]


def each_with_some(names: list[str], values: list[Any]) -> list[tuple[str, Any]]:
    """Pair the first name with every value, and each other name with the next three values."""
    first, *others = names
    some = cycle(values)
    return [(first, one) for one in values] + [
        (name, next(some)) for name in others for _ in range(3)
    ]


NO_HEAD = {"llama.attention.key_length": None}  # the size of a head follows from others
WORDS = tiny_file().fields[TOKENS]


def vocabulary(words: Any) -> dict[str, Any]:
    return {TOKENS: words, KINDS: [1] * len(words)}


REQUIRED = [
    *("general.architecture", "llama.block_count", "llama.context_length", TOKENS),
    *("llama.embedding_length", "llama.attention.head_count"),
    "llama.attention.layer_norm_rms_epsilon",
]
WRONG: list[tuple[dict[str, Any], str]] = [
    # A number that is only too large may be refused for what it would need.
    *(
        ({f"llama.{key}": value}, "" if value in (10**9, 2**63) else key)
        for key, value in each_with_some(COUNTS, NO_COUNTS)
    ),
    *(
        ({f"llama.{key}": value}, f"llama.{key}")
        for key, value in each_with_some(NUMBERS, NO_NUMBERS)
    ),
    *(
        ({f"tokenizer.ggml.{role}_token_id": value}, f"its tokenizer.ggml.{role}_token_id is")
        for role, value in each_with_some(ROLES, NO_TOKENS)
    ),
    ({"llama.block_count": 2}, "is incomplete: 9 weights missing"),
    ({"llama.block_count": 60_000}, "far more than its files contain"),
    ({"llama.embedding_length": 64}, "72 tokens of 64 numbers, and its tensor token_embd"),
    ({**NO_HEAD, "llama.attention.head_count": 8}, "blk.0.attn_k.weight"),
    ({**NO_HEAD, "llama.attention.head_count": 3}, "not a multiple"),
    ({**NO_HEAD, "llama.attention.head_count_kv": 4}, "blk.0.attn_k.weight"),
    ({"llama.feed_forward_length": 47}, "blk.0.ffn"),
    ({"llama.attention.value_length": 16, "llama.attention.key_length": 16}, "shape of"),
    ({"llama.attention.causal": False}, "llama.attention.causal"),
    ({**NO_HEAD, "llama.rope.scaling.factor": math.nan}, "scales its rotary embedding"),
    (
        {**NO_HEAD, "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0},
        "scales its",
    ),
    ({**NO_HEAD, "llama.rope.dimension_count": 4}, "rotates 4 of the 8 numbers of a head"),
    ({**NO_HEAD, "llama.rope.dimension_count": [8]}, "rope.dimension_count"),
    ({"llama.never.heard.of": "x" * 10**6}, "llama.never.heard.of', which is not supported"),
    ({"llama.expert_count": 8}, "has the setting 'llama.expert_count', which is not supported"),
    ({"llama.attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
    ({"tokenizer.ggml.pre": "of-another-world"}, "pre-tokenizer 'of-another-world'"),
    ({"general.architecture": "mamba"}, "family 'mamba'; llama, qwen2, "),
    ({"general.architecture": ["llama"]}, "can be read"),
    ({"general.architecture": "x" * 10**6}, "can be read"),
    ({"split.count": 0}, "it says that it has 0 parts"),
    ({"split.count": 2**32}, "it says that it has 4294967296 parts"),
    ({"split.count": "2"}, "it says that it has '2' parts"),
    ({"split.count": 2}, "is one of 2 parts; give the first"),
    (vocabulary([]), "has no vocabulary"),
    (vocabulary([1] * 72), "has no vocabulary"),
    (vocabulary("w0"), "has no vocabulary"),
    (vocabulary(WORDS[:-1]), "it has 71 tokens of 32 numbers"),
    (vocabulary([*WORDS, "x"]), "it has 73 tokens of 32 numbers"),
    (vocabulary([*WORDS, *map(str, range(10**5))]), "it has 100,072 tokens"),
    (vocabulary([*WORDS[:-1], "w0"]), "cannot be used"),
    (vocabulary(["Ġ", " ", *WORDS[2:]]), "cannot be used"),
    (vocabulary([b"\xff", b"\xfe", *WORDS[2:]]), "cannot be used"),
    (vocabulary(["w" * 10**6, *WORDS[1:]]), "its tokens have up to 1,000,000 characters"),
    *(({key: None}, "") for key in REQUIRED),
    ({"tokenizer.ggml.merges": ["w unknown"]}, ""),
    ({"tokenizer.ggml.merges": ["w"]}, ""),
    ({"tokenizer.ggml.merges": [1]}, ""),
    ({"tokenizer.ggml.merges": "w 5"}, ""),
    ({"tokenizer.ggml.merges": 5}, ""),
    ({KINDS: [1]}, ""),
    ({KINDS: ["1"] * 72}, ""),
    ({KINDS: 3}, ""),
    ({"tokenizer.ggml.scores": [math.nan] * 72}, ""),
    ({"tokenizer.ggml.scores": [1.0] * 71}, ""),
    ({"tokenizer.ggml.model": "of-another-world"}, ""),
    ({"tokenizer.ggml.model": ["gpt2"]}, ""),
    ({"tokenizer.ggml.pre": 2}, ""),
    ({"tokenizer.chat_template": 5}, ""),
    ({"tokenizer.chat_template": ["{{ messages }}"]}, ""),
    ({"tokenizer.chat_template": "x" * (2**20 + 1)}, ""),
    ({"general.sampling.temp": math.nan}, ""),
    ({"general.sampling.temp": "hot"}, ""),
    ({"general.sampling.top_k": [4]}, ""),
]


@pytest.mark.parametrize(("change", "reason"), WRONG, ids=lambda value: str(value)[:60])
def test_wrong_metadata_is_refused(change, reason, raw, refused):
    """Settings that are invalid, of another model, or missing (None); vocabularies; tokenizers."""
    fields = raw.fields | change
    raw.fields = {key: value for key, value in fields.items() if value is not None}
    assert reason in refused()


def test_missing_settings_get_the_defaults_of_llama_cpp(raw, tmp_path):
    del raw.fields["llama.attention.key_length"], raw.fields["llama.rope.freq_base"]
    config = load_model(str(raw.write(tmp_path / "a.gguf")), "cpu")._model.config
    assert (config.head_dim, config.rope_parameters["rope_theta"]) == (8, 10_000)
    del raw.fields["llama.attention.head_count_kv"]
    _, config, _ = load_tokenizer(str(raw.write(tmp_path / "a.gguf")))
    assert config.num_key_value_heads == 4


def test_a_vocabulary_that_would_take_long_to_merge_is_refused(raw, refused, tmp_path):
    """If there are no merges, they are recovered by splitting every token in every way."""
    del raw.fields["tokenizer.ggml.merges"]
    raw.fields |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0] * 72}
    raw.fields[TOKENS] = ["x" * (500 - index) for index in range(72)]
    assert tokenizer_refusal(raw.write(tmp_path / "a.gguf")) == ""
    raw.fields[TOKENS] = ["x" * (900 - index) for index in range(72)]
    assert "its tokens are too long to find them" in refused()
    raw.fields[TOKENS] = ["x" * 1001, *WORDS[1:]]
    assert "at most 1,000 and 4,194,304 are allowed" in refused()


def test_a_broken_chat_template_is_reported_when_it_is_used(raw, tmp_path):
    raw.fields["tokenizer.chat_template"] = "{% for %}"
    model = load_model(str(raw.write(tmp_path / "a.gguf")), "cpu")
    with pytest.raises(ModelError, match=r"chat template of .* cannot be used") as caught:
        model.encode("w5", BranchingConfig(chat=True))
    check_words(str(caught.value))
    assert model.encode("w5", BranchingConfig(chat=False))


def test_tokens_with_characters_outside_the_byte_alphabet_stay_whole(raw, tmp_path):
    """Tokens such as DeepSeek's: they are ids of the embedding, not new ids after it."""
    raw.fields[TOKENS] = ["<｜begin▁of▁text｜>", "<end>", "<｜User｜>", "<think>", *WORDS[4:]]
    raw.fields[KINDS] = [3, 3, 4, 4, *[1] * 68]
    raw.fields[BOS] = 0
    tokenizer, config, _ = load_tokenizer(str(raw.write(tmp_path / "a.gguf")))
    assert (tokenizer.bos_token_id, config.bos_token_id, len(tokenizer)) == (0, 0, 72)
    text = "<｜begin▁of▁text｜><｜User｜>w5<think><end>"
    ids = tokenizer.encode(text)
    assert (ids[:2], ids[-2:]) == ([0, 2], [3, 1])
    assert tokenizer.decode(ids) == text
    assert tokenizer.all_special_ids == [0, 1]


def test_no_text_becomes_a_token_that_the_model_lacks(raw, tmp_path):
    tokenizer, _, _ = load_tokenizer(str(raw.write(tmp_path / "a.gguf")))
    for text in ("<|endoftext|>", "<unk>", "<s>w5</s>", "日本語", "\x00"):
        assert max(tokenizer.encode(text), default=0) < 72


def test_a_gpt2_with_an_output_layer_of_its_own_is_read(tmp_path):
    none = {"intermediate_size": None, "num_key_value_heads": None}
    plain = tiny("GPT2Config", seed=1, num_hidden_layers=1, tie_word_embeddings=False, **none)
    model = load_model(str(write(plain, tmp_path / "a.gguf", "gpt2")), "cpu", layout="plain")._model
    assert model.lm_head.weight.equal(plain.lm_head.weight)
    assert not model.lm_head.weight.equal(plain.transformer.wte.weight)


def test_parts_of_different_models_are_refused(raw, tmp_path):
    half, names = len(raw.tensors) // 2, ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]
    split = {"split.count": 2, "split.tensors.count": len(raw.tensors)}
    first = RawFile(raw.fields | split | {"split.no": 0}, raw.tensors[:half])
    path = first.write(tmp_path / names[0])
    second = RawFile(split | {"split.no": 1}, raw.tensors[half:])
    second.write(tmp_path / names[1])
    assert load_model(str(path), "cpu").card.layers == 1
    for change in ({"split.no": 0}, {"split.count": 3}, {"split.no": "1"}):
        RawFile(second.fields | change, second.tensors).write(tmp_path / names[1])
        assert "another part number than its name" in refusal(path)
    RawFile(second.fields, raw.tensors[half - 1 :]).write(tmp_path / names[1])
    assert "of another part" in refusal(path)
    RawFile(second.fields, second.tensors[1:]).write(tmp_path / names[1])
    assert "its 2 parts have" in refusal(path)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
def test_any_bytes_in_the_header_are_read_or_refused(data, tmp_path):
    path = tiny_file().write(tmp_path / "a.gguf")
    header = tiny_file().header()
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(header) - 1))
        new = data.draw(
            st.binary(min_size=1, max_size=8)
            | st.sampled_from([b"\xff" * 8, bytes(8), b"\xff" * 4, bytes(4)])
            | st.integers(0, 7).map(lambda bit, old=content[start]: bytes([old ^ 1 << bit]))
        )
        content[start : start + len(new)] = new
    path.write_bytes(content)
    for load in (lambda: load_model(str(path), "cpu"), lambda: load_tokenizer(str(path))):
        try:
            load()
        except ModelError as error:
            check_words(str(error))
