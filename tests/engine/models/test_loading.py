"""Names, devices and checkpoints that cannot be used are refused with an explanation."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from model_folders import with_config
from safetensors.torch import load_file, save_file
from tiny_models import tiny

from eab.engine.models.loading import load_model
from eab.errors import ModelError

ANY_NAME = "no model is named; give 'embedded', 'smollm2', a folder"
FOLDER = "there is no such folder"
NAMES = {
    **dict.fromkeys(["", "  "], ANY_NAME),
    **dict.fromkeys(
        ["./no/such", "/no/such", "~/no/such", "a/b/c", "a\\b", "a b", "a" * 300], FOLDER
    ),
    **dict.fromkeys(["a/" * 3000, "x" * 10**6, "x\x00y", "\ud800", "~nobody-of-this-name/x"], ""),
    **dict.fromkeys(["../../nothing here", "/proc/1/root/x", "http://example.org/x"], ""),
}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:24])
def test_a_name_that_is_not_a_model_is_refused_with_a_short_message(name):
    with pytest.raises(ModelError) as error:
        load_model(name, device="cpu")
    assert NAMES[name] in str(error.value)
    assert len(str(error.value).encode("utf-8")) < 1000


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        *(
            ("device", one, "the device is")
            for one in ("abacus", "cuda:99", "", "x" * 10**6, "\ud800")
        ),
        ("dtype", "int4", "dtype is 'int4'; it must be one of: auto, float64"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_an_unknown_device_or_dtype_is_refused_with_a_short_message(argument, value, said):
    with pytest.raises(ModelError, match=said) as error:
        load_model("embedded", **{argument: value})
    assert len(str(error.value).encode("utf-8")) < 1000


def test_a_folder_with_pickled_or_broken_weights_is_refused(llama_folder):
    (llama_folder / "model.safetensors").write_bytes(b"\x08" + bytes(40))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(llama_folder))
    torch.save({"evil": torch.zeros(1)}, llama_folder / "pytorch_model.bin")
    (llama_folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot be loaded: .*safetensors"):
        load_model(str(llama_folder))


def test_a_folder_that_asks_for_its_own_code_is_refused(llama_folder):
    own = {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}
    with_config(llama_folder, {"model_type": "homemade", "auto_map": own})
    (llama_folder / "code.py").write_text("raise SystemExit('the code of a stranger ran')")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(llama_folder))


def test_an_unknown_id_is_refused_quickly():
    start = time.monotonic()
    with pytest.raises(ModelError, match=r"no-such-owner/no-such-model.*Hub"):
        load_model("no-such-owner/no-such-model")
    assert time.monotonic() - start < 120


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("HF_HUB_OFFLINE", True, "' cannot be loaded from the Hub: .*offline mode"),
        ("ENDPOINT", "http://127.0.0.1:9", "the Hugging Face Hub cannot be reached. Check the net"),
    ],
)
def test_an_offline_or_unreachable_hub_is_reported(monkeypatch, name, value, reason):
    monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    with pytest.raises(ModelError, match=reason) as caught:
        load_model("no-such-owner/no-such-model")
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize("part", ["", "layers.1.", "lm_head", "embed_tokens", "norm.weight"])
def test_a_checkpoint_without_some_of_its_weights_is_refused(llama_folder, part):
    weights = load_file(llama_folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if part not in name}
    assert len(kept) < len(weights)
    save_file(kept, llama_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"is incomplete: .* missing in its files"):
        load_model(str(llama_folder), device="cpu")


@pytest.mark.parametrize(
    ("saved", "changed"),
    [
        ({}, {"num_hidden_layers": 1}),
        ({"attention_bias": True}, {"attention_bias": False}),
        ({"kind": "Qwen3Config"}, {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}),
        ({"kind": "MambaConfig", "state_size": 4}, {"num_hidden_layers": 1}),
    ],
    ids=str,
)
def test_a_configuration_without_layers_for_some_weights_is_refused(
    saved, changed, words, tmp_path
):
    tiny(**{"kind": "LlamaConfig"} | saved).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    load_model(str(tmp_path), device="cpu")
    with pytest.raises(ModelError, match=r"its weights: \d+ weights in its files have no place"):
        load_model(with_config(tmp_path, changed), device="cpu")


def test_weights_beside_the_model_and_tables_of_older_versions_are_ignored(llama_folder):
    with_config(llama_folder, {"num_nextn_predict_layers": 1})
    weights = load_file(llama_folder / "model.safetensors")
    beside = ("vision.layers.0.q_proj.weight", "mtp.layers.0.q_proj.weight", "score.weight")
    tables = ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.1.attn.masked_bias")
    for name in (*beside, *tables, "model.layers.2.eh_proj.weight"):
        weights[name] = torch.zeros(3)
    save_file(weights, llama_folder / "model.safetensors", metadata={"format": "pt"})
    model = load_model(str(llama_folder), device="cpu", dtype="float64")
    assert model.card.name == str(llama_folder)
    assert (model.card.dtype, model.card.device, model.card.kv_heads) == ("float64", "cpu", 2)
    assert model.card.row_bytes == 2 * 2 * 2 * 8 * 8


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"dtype": "evil"}, ""),
        ({"rope_parameters": {"rope_type": "longrope"}}, ""),
        ({"model_type": "nothing"}, ""),
        ({"model_type": "llama", "intermediate_size": 96}, "its weights: model"),
        ({"model_type": "llama", "num_key_value_heads": 1}, "in the file and"),
        ({"layer_types": ["full_attention"]}, "num_hidden_layers is 2, but layer_types names 1"),
        ({"no_rope_layers": [1]}, "num_hidden_layers is 2, but no_rope_layers names 1 layer"),
        ({"layer_types": 3}, "layer_types cannot be 3"),
        ({"hidden_size": "wide"}, "hidden_size cannot be 'wide'"),
        ({"layer_types": ["slide"] * 2}, "must be in those that transformers knows, but got"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_explained_in_plain_words(damage, said, llama_folder, caplog):
    with pytest.raises(ModelError) as caught:
        load_model(with_config(llama_folder, {"model_type": "smollm3"} | damage), device="cpu")
    assert said in str(caught.value)
    assert not said or not {"Error", "class"} & {*str(caught.value).split()}
    assert "LOAD REPORT" not in caplog.text, "transformers' table says the same in other words"


@pytest.mark.parametrize(
    "shard", ["evil.bin", "../outside.safetensors", "/etc/passwd", "a/b.safetensors", 3, None]
)
def test_an_index_that_names_another_file_is_refused(llama_folder: Path, shard: object):
    (llama_folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"lm_head.weight": shard}}
    (llama_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json in"):
        load_model(str(llama_folder), device="cpu")
    for file, text in (
        *(("model.safetensors.index.json", one) for one in ("", "[]", "{}", "[" * 10_000)),
        ("model.safetensors.index.json", '{"weight_map": 3}'),
        ("tokenizer_config.json", "[]"),
    ):
        (llama_folder / file).write_text(text)
        with pytest.raises(ModelError):
            load_model(str(llama_folder), device="cpu")


def test_models_that_load_at_the_same_time_get_all_their_weights() -> None:
    with ThreadPoolExecutor(4) as pool:
        for loading in [pool.submit(load_model) for _ in range(8)]:
            loading.result()  # raises if a weight is missing
