"""Checkpoints that other libraries quantized: those that load run as they do without our cache."""

import pytest
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
from made_runs import run_of
from tiny_models import tiny
from torch import nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from eab.errors import ModelError
from eab.models.loading import load_model
from eab.models.weights import refuse_dependent_rows

NF4 = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
)
EIGHT_BITS = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
PER_CHANNEL = {
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": EIGHT_BITS}},
    "ignore": ["lm_head"],
    "quantization_status": "compressed",
    "format": "pack-quantized",
}


@pytest.fixture
def checkpoint(tmp_path, words):
    """The folder of a tiny model as loaded, from which the libraries make quantized ones."""
    folder = tmp_path / "plain"
    tiny("LlamaConfig", hidden_size=64, intermediate_size=128).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture
def by_bitsandbytes(checkpoint, tmp_path, words):
    """by_bitsandbytes(config) -> the folder of the tiny model as bitsandbytes stores it."""

    def make(config):
        folder = tmp_path / "quantized"
        AutoModelForCausalLM.from_pretrained(
            checkpoint, quantization_config=config, device_map="cpu"
        ).save_pretrained(folder)
        words.save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture
def by_compressed_tensors(checkpoint, tmp_path, words):
    """The folder of the tiny model with eight bits per weight, packed by compressed-tensors."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    apply_quantization_config(model, QuantizationConfig(**PER_CHANNEL))
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            module.weight_scale.data = module.weight.data.abs().amax(1, keepdim=True) / 127
    compressor = ModelCompressor.from_pretrained_model(model, quantization_format="pack-quantized")
    compressor.compress_model(model)
    model.save_pretrained(tmp_path)
    compressor.update_config(tmp_path)
    words.save_pretrained(tmp_path)
    return str(tmp_path)


def agrees_with(model, checkpoint) -> None:
    """Assert that the model is near its original, but not equal to it, and that a run finishes."""
    ids, plain = torch.arange(2, 30)[None], load_model(str(checkpoint), "cpu", "float32")
    with torch.inference_mode():
        ours, theirs = model._model(ids).logits, plain._model(ids).logits
    assert 0 < (ours - theirs).norm() / theirs.norm() < 0.2
    run = run_of(model, "the red ball", entropy_threshold=0.1, max_new_tokens=5, max_paths=4)
    assert len(run.samples) == 4


def test_four_bit_bitsandbytes_checkpoints_run_as_loaded(by_bitsandbytes, checkpoint):
    model = load_model(by_bitsandbytes(NF4), "cpu", "float32")
    agrees_with(model, checkpoint)
    plain = load_model(str(checkpoint), "cpu", "float32")
    assert model.weight_bytes["linear layers"] < 0.6 * plain.weight_bytes["linear layers"]
    assert "model.layers.0.mlp.up_proj" not in model.weight_matrices  # packed integers


def test_eight_bit_compressed_tensors_checkpoints_run_as_loaded(by_compressed_tensors, checkpoint):
    agrees_with(load_model(by_compressed_tensors, "cpu", "float32"), checkpoint)


def test_outlier_columns_of_bitsandbytes_are_refused_and_can_be_turned_off(by_bitsandbytes):
    with pytest.raises(ModelError, match=r"Linear8bitLt changes by .*llm_int8_threshold=0"):
        load_model(by_bitsandbytes(BitsAndBytesConfig(load_in_8bit=True)), "cpu", "float32")
    without = BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    assert load_model(by_bitsandbytes(without), "cpu", "float32").card.weights == "as-loaded"


@pytest.mark.parametrize("given", [{"weights": "int8-weight-only"}, {"layout": "prepacked"}])
def test_quantized_checkpoints_are_not_stored_in_another_format(by_bitsandbytes, given):
    with pytest.raises(ModelError, match=r"already quantized \(bitsandbytes\).*choose weights as-"):
        load_model(by_bitsandbytes(NF4), "cpu", "float32", **given)


class OneScaleForAll(nn.Linear):
    """Rounds its input as torch's dynamic quantization does, with one scale for all rows."""

    def forward(self, rows):
        step = rows.abs().amax() / 127
        return super().forward((rows / step).round() * step)


def test_a_layer_with_one_scale_for_all_rows_is_detected():
    model = tiny("LlamaConfig", num_hidden_layers=1)
    refuse_dependent_rows(model, "none")
    old = model.lm_head
    model.lm_head = OneScaleForAll(old.in_features, old.out_features, bias=False)
    with pytest.raises(ModelError, match=r"OneScaleForAll changes by .*Choose another method"):
        refuse_dependent_rows(model, "invented")
