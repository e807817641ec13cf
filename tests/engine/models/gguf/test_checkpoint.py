"""A GGUF model computes what the model that it was written from computes."""

import hashlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from made_runs import run_of
from tiny_models import tiny
from transformers import PreTrainedModel
from write_gguf import named_tensors, write

from eab.config import BranchingConfig
from eab.engine.models.gguf import checkpoint
from eab.engine.models.loading import load_model, load_tokenizer
from eab.errors import ModelError

SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "pad_token_id": 1}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama with biases": ("LlamaConfig", {"num_key_value_heads": 4, "attention_bias": True}),
    "llama tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama with wide heads": ("LlamaConfig", {"head_dim": 32}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "phi3": ("Phi3Config", {}),
    "gpt2": ("GPT2Config", {"intermediate_size": None, "num_key_value_heads": None}),
    "starcoder2": ("Starcoder2Config", {"use_bias": True, "sliding_window": None}),
}
TOKENS = [5, 9, 33, 2, 64, 7, 7, 50]


def model_of(family: str, seed: int, **more: Any) -> PreTrainedModel:
    kind, own = FAMILIES[family]
    return tiny(kind, seed=seed, spread=0.3, **SIZES | own | more)


@pytest.fixture
def plain() -> PreTrainedModel:
    """A Llama to write as GGUF."""
    return model_of("llama", 1)


@torch.inference_mode()
def assert_computes(plain: PreTrainedModel, name: Path) -> None:
    """Assert that the model of this name has the logits of the plain one."""
    ours, ids = load_model(str(name), "cpu", "float32")._model, torch.tensor([TOKENS])
    found = ours(ids, use_cache=False).logits
    torch.testing.assert_close(found, plain(ids).logits, rtol=1e-4, atol=1e-4)


def test_control_tokens_of_a_file_need_no_role(plain, tmp_path):
    kinds = {"<end>": 3, "w7": 3, "w8": 4, "w9": 3}
    model = load_model(str(write(plain, tmp_path / "a.gguf", kinds=kinds)), "cpu")
    assert [token for token in range(72) if model.is_special(token)] == [1, 7, 9]
    assert model.encode("w7", BranchingConfig(), True) == (7,)
    assert 7 not in model.encode("w7", BranchingConfig())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gguf_model_computes_what_its_original_computes(family, tmp_path):
    plain = model_of(family, 3)
    file = write(plain, tmp_path / "a.gguf", family.split()[0])
    assert_computes(plain, file)


@pytest.mark.parametrize(
    "kind", [Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0]
)
def test_quantized_blocks_become_the_numbers_that_they_stand_for(kind, plain, tmp_path):
    file = write(plain, tmp_path / "a.gguf", kind=kind)
    held = named_tensors(plain, "llama")["blk.0.ffn_up.weight"]
    model = load_model(str(file), "cpu", "float32", layout="plain")._model
    meant = gguf.dequantize(gguf.quantize(held, kind), kind)
    ours = model.model.layers[0].mlp.up_proj.weight.detach().numpy()
    np.testing.assert_array_equal(ours, meant)
    assert 0 < np.abs(ours - held).max() < 0.3


def test_a_split_model_is_opened_by_its_first_part(plain, tmp_path):
    write(plain, tmp_path / "a.gguf", split_max_tensors=6)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert len(parts) > 2
    assert_computes(plain, parts[0])
    assert_computes(plain, tmp_path)
    with pytest.raises(ModelError, match=r"one of \d parts; give the first"):
        load_model(str(parts[1]))
    parts[-1].unlink()
    with pytest.raises(ModelError, match=r"incomplete: its part .* is missing"):
        load_model(str(parts[0]))


def test_the_rotary_factors_of_llama_3_are_recognised(tmp_path):
    scaled = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0}
    scaled |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    plain = model_of("llama", 4, rope_parameters={"rope_theta": 5e5, **scaled})
    width = torch.arange(0, 16, 2) / 16
    factors = (1 / 5e5**width / plain.model.rotary_emb.inv_freq).float().numpy()
    assert factors.max() == pytest.approx(32)
    file = write(plain, tmp_path / "a.gguf", tensors={"rope_freqs.weight": factors})
    assert_computes(plain, file)
    factors[0] = 7.0
    other = write(plain, tmp_path / "b.gguf", tensors={"rope_freqs.weight": factors})
    with pytest.raises(ModelError, match="other than those of Llama 3"):
        load_model(str(other))


def test_a_file_without_an_extension_and_a_folder_with_one_file_are_opened(plain, tmp_path):
    file = write(plain, tmp_path / "a.gguf")
    (tmp_path / "blobs").mkdir()
    blob = file.rename(tmp_path / "blobs" / "sha256-0")
    assert load_model(str(blob), "cpu").card.family == "llama"
    with pytest.raises(ModelError, match=r"neither a config.json nor a GGUF file"):
        load_model(str(tmp_path / "blobs"))
    blob.rename(tmp_path / "blobs" / "b.gguf")
    assert load_model(str(tmp_path / "blobs"), "cpu").card.family == "llama"
    write(plain, tmp_path / "blobs" / "c.gguf")
    with pytest.raises(ModelError, match=r"contains 2 GGUF models; give one .* such as 'b.gguf'"):
        load_model(str(tmp_path / "blobs"))


def test_stop_tokens_template_and_recommended_settings_come_from_the_file(plain, tmp_path):
    more = {
        "tokenizer.ggml.eot_token_id": 9,
        "tokenizer.chat_template": "{{ messages[0].content }} w5",
        "general.sampling.temp": 0.25,
        "general.sampling.top_k": 7,
    }
    name = str(write(plain, tmp_path / "a.gguf", more=more))
    tokenizer, config, generation = load_tokenizer(name)
    assert tokenizer.chat_template == more["tokenizer.chat_template"]
    assert config.vocab_size == 72
    assert generation.eos_token_id == [1, 9]
    assert (generation.temperature, generation.top_k) == (0.25, 7)
    assert load_model(name, "cpu").stop_ids == {1, 9}


def test_a_run_identifies_the_weights_by_their_hash(plain, tmp_path):
    file = write(plain, tmp_path / "a.gguf")
    run = run_of(load_model(str(file), "cpu"), "w5w6", max_new_tokens=2)
    assert run.started.model.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_file_that_changes_while_it_is_read_is_refused(plain, tmp_path, monkeypatch):
    file = write(plain, tmp_path / "a.gguf")
    read = checkpoint.read_tensor

    def meddling(opened, tensor):
        found = read(opened, tensor)
        file.touch()
        return found

    monkeypatch.setattr(checkpoint, "read_tensor", meddling)
    with pytest.raises(ModelError, match="changed while it was read"):
        load_model(str(file))
