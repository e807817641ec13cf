"""A config.json that asks for too much is refused with an explanation before a model is built."""

from itertools import cycle
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_folders import with_config
from tiny_models import tiny

from eab import EntropyAdaptiveBranching
from eab.engine.models import pretrained
from eab.engine.models.loading import load_model, load_tokenizer
from eab.errors import ModelError
from eab.formatting import human_bytes

HUGE = [10**6, 10**9, 10**30]
COUNTS = ["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "num_labels"]
WIDTHS = ["hidden_size", "vocab_size", "intermediate_size", "head_dim"]
OTHERS = ["max_position_embeddings", "pad_token_id", "eos_token_id", "rope_theta", "rms_norm_eps"]


def refusal(folder: str) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(folder, device="cpu")
    message = str(caught.value)
    assert len(message.encode()) < 1000
    assert "site-packages" not in message
    return message


@pytest.fixture
def never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a model is built."""
    monkeypatch.setattr(
        "eab.engine.models.pretrained.AutoModelForCausalLM.from_pretrained",
        lambda *_, **__: pytest.fail("it was built"),
    )


@pytest.mark.parametrize(
    ("name", "value"), [*zip(COUNTS, cycle(HUGE)), *((COUNTS[0], one) for one in HUGE[1:])], ids=str
)
def test_too_many_layers_heads_or_labels_are_refused(name, value, llama_folder, never_built):
    message = refusal(with_config(llama_folder, {name: value}))
    assert f"its configuration says that '{name}' is 1" in message
    assert "at most 65,536 are allowed" in message


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name in WIDTHS for value in (10**9, 10**30, -1)),
        {"num_hidden_layers": 1000},
        {"num_hidden_layers": 60_000},
        {"model_type": "gpt2", "num_hidden_layers": 60_000},
        {"model_type": "gpt2", "hidden_size": 10**8},
        {"model_type": "mixtral", "num_local_experts": 60_000},
        {"num_attention_heads": 0},
        {"num_hidden_layers": "2"},
        {"num_hidden_layers": 1e9},
        {"layer_types": ["full_attention"] * 1000},
        {"pad_token_id": 10**9},
    ],
    ids=str,
)
def test_a_model_that_its_files_cannot_hold_is_refused(change, llama_folder, never_built):
    message = refusal(with_config(llama_folder, change))
    assert "cannot be loaded: " in message
    assert "its config" in message


BY_OTHERS = {"quant_method": "bitsandbytes", "load_in_8bit": True}


@pytest.mark.parametrize("kind", ["LlamaConfig", "MambaConfig"])
def test_a_checkpoint_that_another_library_quantized_is_refused(kind, llama_folder, words):
    why = r"already quantized \(bitsandbytes\); load the original model with weights such as int8"
    with pytest.raises(ModelError, match=why):
        load_model(with_config(llama_folder, {"quantization_config": BY_OTHERS}), "cpu")
    model = tiny(kind)
    model.config.quantization_config = BY_OTHERS
    with pytest.raises(ModelError, match=why):
        EntropyAdaptiveBranching((model, words))


@pytest.mark.parametrize("layers", [0, -1, 3])
def test_a_number_of_layers_that_the_files_do_not_have_is_refused(layers, llama_folder):
    refusal(with_config(llama_folder, {"num_hidden_layers": layers}))


def test_without_files_only_the_number_of_tensors_is_limited() -> None:
    config, limit = tiny("LlamaConfig").config, pretrained.SizeLimit(tensors=2_000)
    pretrained.refuse_absurd_size("x/y", config, limit, torch.float32)
    config.num_hidden_layers = 230  # of nine tensors each
    with pytest.raises(ModelError, match="more than 2,000 tensors"):
        pretrained.refuse_absurd_size("x/y", config, limit, torch.float32)


def test_a_model_that_does_not_fit_in_memory_is_refused_with_the_figures(
    llama_folder: Path, never_built: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = sum(weight.numel() for weight in tiny("LlamaConfig").parameters())
    monkeypatch.setattr(pretrained, "total_memory", lambda place: 4 * weights - 1)
    assert f"take {human_bytes(4 * weights)}, and this machine has" in refusal(str(llama_folder))


def test_a_model_that_does_not_fit_on_the_device_is_refused_with_alternatives(monkeypatch):
    small = torch.device("cuda", 1)
    monkeypatch.setattr(
        pretrained, "total_memory", lambda place: 1000 if place == small else 10**12
    )
    config = tiny("LlamaConfig").config
    with pytest.raises(ModelError, match="the device cuda:1 has 1000 B of memory") as caught:
        pretrained.refuse_absurd_size("x/y", config, pretrained.SizeLimit(), torch.float32, small)
    assert "Choose a smaller model, weights nf4, or device cpu" in str(caught.value)
    pretrained.refuse_absurd_size("x/y", config, pretrained.SizeLimit(), torch.float32)


@pytest.mark.parametrize("name", ["num_hidden_layers", "num_labels"])
def test_a_tokenizer_for_a_server_has_the_same_limits(name: str, llama_folder: Path) -> None:
    with pytest.raises(ModelError, match="at most 65,536 are allowed"):
        load_tokenizer(with_config(llama_folder, {name: 10**9}))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    change=st.dictionaries(
        st.sampled_from(COUNTS + WIDTHS + OTHERS),
        st.integers(-(2**40), 2**80)
        | st.integers(-4, 80)
        | st.floats()
        | st.sampled_from([None, True, "8", [], {}, [8]]),
        min_size=1,
        max_size=3,
    )
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
def test_any_configuration_is_loaded_or_refused_with_a_short_message(change, llama_folder):
    before = (llama_folder / "config.json").read_text()
    try:
        message = words_of(with_config(llama_folder, change))
    finally:
        (llama_folder / "config.json").write_text(before)
    assert len(message.encode()) < 1000


def words_of(folder: str) -> str:
    """Return why the model is refused, or an empty string if it loads."""
    try:
        load_model(folder, device="cpu")
    except ModelError as error:
        return str(error)
    return ""
