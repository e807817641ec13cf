"""Names, devices and checkpoints that cannot be used: each is refused with an explanation."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

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


def test_a_folder_loads_and_is_named_as_it_was_given(llama_folder):
    model = load_model(str(llama_folder), device="cpu", dtype="float64")
    assert model.card.name == str(llama_folder)
    assert (model.card.dtype, model.card.device, model.card.kv_heads) == ("float64", "cpu", 2)
    assert model.card.row_bytes == 2 * 2 * 2 * 8 * 8


def test_a_folder_with_pickled_weights_only_is_refused(llama_folder):
    torch.save({"evil": torch.zeros(1)}, llama_folder / "pytorch_model.bin")
    (llama_folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot be loaded: .*safetensors"):
        load_model(str(llama_folder))


def test_a_folder_with_broken_weights_is_refused(llama_folder):
    (llama_folder / "model.safetensors").write_bytes(b"\x08" + bytes(40))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(llama_folder))


def test_a_folder_that_asks_for_its_own_code_is_refused(llama_folder):
    config = llama_folder / "config.json"
    text = config.read_text().replace('"model_type": "llama"', '"model_type": "homemade"')
    config.write_text(
        text.replace(
            "{", '{"auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"},', 1
        )
    )
    (llama_folder / "code.py").write_text("raise SystemExit('the code of a stranger ran')")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(llama_folder))


@pytest.mark.parametrize(
    "name", ["./no/such/folder", "/no/such/folder", "~/no/such/folder", "a/b/c", "a\\b", "a b"]
)
def test_a_name_that_can_only_be_a_folder_is_said_to_be_missing(name):
    with pytest.raises(ModelError, match="there is no such folder"):
        load_model(name)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_answered_with_what_can_be_named(name):
    with pytest.raises(ModelError, match="no model is named; give 'embedded', 'smollm2', a folder"):
        load_model(name)


def test_a_folder_without_a_config_holds_no_model(tmp_path):
    with pytest.raises(ModelError, match=r"contains no model: neither a config\.json nor"):
        load_model(str(tmp_path))


def test_an_unknown_id_is_explained_soon():
    start = time.monotonic()
    with pytest.raises(ModelError, match=r"no-such-owner/no-such-model.*Hub"):
        load_model("no-such-owner/no-such-model")
    assert time.monotonic() - start < 15


def test_an_unknown_id_is_explained_while_the_hub_is_switched_off(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ModelError,
        match=r"no-such-owner/no-such-model' cannot be loaded from the Hub: .*offline mode",
    ):
        load_model("no-such-owner/no-such-model")


def test_a_hub_that_cannot_be_reached_is_said_in_words(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError) as caught:
        load_model("no-such-owner/no-such-model")
    assert "the Hugging Face Hub cannot be reached. Check the network, or choose" in str(
        caught.value
    )
    assert "Errno" not in str(caught.value)


def test_a_device_or_dtype_that_does_not_exist_is_named(llama_folder):
    with pytest.raises(ModelError, match="device is 'abacus'; this machine cannot use it"):
        load_model(str(llama_folder), device="abacus")
    with pytest.raises(
        ModelError, match="dtype is 'int4'; it must be one of: auto, float64, float32"
    ):
        load_model(str(llama_folder), dtype="int4")


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
def test_a_damaged_configuration_is_a_model_error(damage, llama_folder):
    config = json.loads((llama_folder / "config.json").read_text())
    (llama_folder / "config.json").write_text(json.dumps(config | damage))
    with pytest.raises(ModelError):
        load_model(str(llama_folder), device="cpu")


@pytest.mark.parametrize("part", ["", "layers.1.", "lm_head", "embed_tokens", "norm.weight"])
def test_a_checkpoint_without_some_of_its_weights_is_refused(llama_folder, part):
    weights = load_file(llama_folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if part not in name}
    assert len(kept) < len(weights)
    save_file(kept, llama_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"is incomplete: .* missing in its files"):
        load_model(str(llama_folder), device="cpu")


def test_the_checkpoint_itself_loads(llama_folder):
    assert load_model(str(llama_folder), device="cpu").card.layers == 2


@pytest.mark.parametrize(
    "shard", ["evil.bin", "../outside.safetensors", "/etc/passwd", "a/b.safetensors", 3, None]
)
def test_an_index_that_names_another_file_is_refused(llama_folder: Path, shard: object):
    (llama_folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"lm_head.weight": shard}}
    (llama_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json in"):
        load_model(str(llama_folder), device="cpu")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', "[" * 10_000])
def test_a_damaged_index_is_refused(llama_folder: Path, text: str):
    (llama_folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError):
        load_model(str(llama_folder), device="cpu")


def test_a_tokenizer_configuration_that_is_none_is_refused(llama_folder: Path):
    (llama_folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ModelError):
        load_model(str(llama_folder), device="cpu")


def test_models_that_load_at_the_same_time_have_all_their_weights() -> None:
    with ThreadPoolExecutor(4) as pool:
        for loading in [pool.submit(load_model) for _ in range(8)]:
            loading.result()  # raises where a weight is missing
