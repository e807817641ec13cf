"""Checkpoints that other libraries quantized are refused, before their weights are read."""

import json

import pytest
from tiny_models import tiny

from eab import EntropyAdaptiveBranching
from eab.engine.models.loading import load_model
from eab.errors import ModelError

BY_OTHERS = {"quant_method": "bitsandbytes", "load_in_8bit": True}
REASON = r"already quantized \(bitsandbytes\); load the original model with weights such as int8"


def test_a_folder_with_quantized_weights_is_refused(tmp_path, words):
    tiny("LlamaConfig").save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    assert load_model(str(tmp_path), "cpu").card.weights == "as-loaded"
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"quantization_config": BY_OTHERS})
    )
    with pytest.raises(ModelError, match=REASON):
        load_model(str(tmp_path), "cpu")


@pytest.mark.parametrize("kind", ["LlamaConfig", "MambaConfig"])
def test_a_given_model_with_quantized_weights_is_refused(kind, words):
    model = tiny(kind)
    model.config.quantization_config = BY_OTHERS
    with pytest.raises(ModelError, match=REASON):
        EntropyAdaptiveBranching((model, words))
