"""Names, devices and checkpoints that cannot be used: each is refused in words."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from eab.errors import ModelError
from eab.models.loading import load_model


@pytest.mark.parametrize(
    "name",
    [
        "a" * 300,
        "a/" * 3000,
        "~nobody-of-this-name/x",
        "x\x00y",
        "\ud800",
        "",
        "  ",
        "../../nothing here",
        "/proc/1/root/x",
        "http://example.org/x",
        "x" * 10**6,
    ],
    ids=lambda name: repr(name)[:24],
)
def test_a_name_that_is_no_model_is_refused_in_few_words(name):
    with pytest.raises(ModelError) as error:
        load_model(name, device="cpu")
    assert len(str(error.value).encode("utf-8")) < 1000


@pytest.mark.parametrize("device", ["hpu:0", "xpu", "cuda:99", "meta x", "", "x" * 10**6, "\ud800"])
def test_a_device_that_is_not_there_is_refused_in_few_words(device):
    with pytest.raises(ModelError, match="the device is") as error:
        load_model("embedded", device=device)
    assert len(str(error.value).encode("utf-8")) < 1000


@pytest.fixture
def folder(tmp_path, make_model, words):
    """A small Llama with its tokenizer, on the disk."""
    config = LlamaConfig(
        vocab_size=72,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=128,
    )
    make_model(config).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "damage",
    [
        {"num_attention_heads": 0},
        {"hidden_size": "wide"},
        {"vocab_size": 0},
        {"dtype": "evil"},
        {"rope_parameters": {"rope_type": "longrope"}},
        {"model_type": "nothing"},
    ],
    ids=str,
)
def test_a_damaged_configuration_is_a_model_error(damage, folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | damage))
    with pytest.raises(ModelError):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("part", ["", "layers.1.", "lm_head", "embed_tokens", "norm.weight"])
def test_a_checkpoint_without_some_of_its_weights_is_refused(folder, part):
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if part not in name}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"is incomplete: .* missing in its files"):
        load_model(str(folder), device="cpu")


def test_the_checkpoint_itself_loads(folder):
    assert load_model(str(folder), device="cpu").card.layers == 2


@pytest.mark.parametrize(
    "shard", ["evil.bin", "../outside.safetensors", "/etc/passwd", "a/b.safetensors", 3, None]
)
def test_an_index_that_names_another_file_is_refused(folder: Path, shard: object):
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"lm_head.weight": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json in"):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', "[" * 10_000])
def test_a_damaged_index_is_refused(folder: Path, text: str):
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError):
        load_model(str(folder), device="cpu")


def test_a_tokenizer_configuration_that_is_none_is_refused(folder: Path):
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ModelError):
        load_model(str(folder), device="cpu")
