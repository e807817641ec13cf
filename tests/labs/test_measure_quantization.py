"""Every format is measured for real on the embedded model."""

import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.errors import ModelError
from eab.labs import measure_quantization as measure
from eab.labs.measure_quantization import log_probabilities, measure_formats
from eab.labs.measurement import Report
from eab.labs.quantization import step_timings
from eab.weight_formats import AS_LOADED, PREPACKED


def load(weights: str = AS_LOADED) -> HuggingFaceModel:
    return load_model("embedded", "cpu", "float32", weights)


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use less text, fewer rows and formats, and a smaller matrix, so that the tests are quick."""
    fables = measure.held_out_texts()[:2]
    monkeypatch.setattr(measure, "held_out_texts", lambda: fables)
    monkeypatch.setattr(measure, "ROWS", (1, 3))
    monkeypatch.setitem(measure.SIZES, "cpu", measure.Sizes(2**22, 256, 2))
    monkeypatch.setattr(measure, "WEIGHT_FORMATS", (AS_LOADED, "int8", "nf4"))


def measured(load=load, prompt: str = "A", repeats: int = 1) -> Report:
    return Report().collect(measure_formats(load, prompt, repeats))


def test_formats_are_compared_with_the_model_as_loaded():
    report = measured(prompt="Once upon a time", repeats=2)
    assert report.complete
    full, int8, nf4 = report.rows("formats")
    assert full["divergence"] == full["prompt_divergence"] == full["flipped"] == 0
    assert 0 < int8["divergence"] < nf4["divergence"] < 0.1
    assert nf4["prompt_divergence"] > 0
    assert nf4["total_bytes"] < int8["total_bytes"] < full["total_bytes"]
    assert nf4["kept"] == 1
    # The output layer shares the embedding, so a step reads that; prepacked or in int8, the layer is
    # a copy.
    assert full["read_bytes"] == pytest.approx(4 * full["parameters"], rel=0.01)
    assert full["total_bytes"] == full["read_bytes"] or load().card.layout == PREPACKED
    assert int8["read_bytes"] == pytest.approx(full["parameters"], rel=0.1)
    assert full["entropy_error"] < 0.2
    steps = step_timings(report, "int8")
    assert [(step.rows, len(step.ours.seconds)) for step in steps] == [(1, 2), (3, 2)]
    assert min(value for row in report.rows("machine") for value in row.values()) > 1e6


def test_log_probabilities_are_those_of_the_plain_model():
    model = load()
    [began, *_] = [one for one in measure_formats(lambda _: model, "A", 1) if one is not None]
    ids = [tuple(model._tokenizer.encode(text)) for text in measure.held_out_texts()]
    assert began.about["tokens"] == sum(map(len, ids))
    with torch.inference_mode():
        plain = model._model(torch.tensor([ids[0]]), use_cache=False).logits[0]
    ours = log_probabilities(model, ids[0])
    assert ours.numpy() == pytest.approx(plain.double().log_softmax(-1).numpy(), abs=1e-3)


def test_a_model_of_another_family_with_a_short_context_is_measured_too(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    sizes = {"vocab_size": len(tokenizer), "n_layer": 2, "n_head": 2, "n_embd": 64}
    config = GPT2Config(**sizes, n_positions=64, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    report = measured(lambda weights: load_model(str(tmp_path), "cpu", "float32", weights))
    assert report.complete
    full, int8, _ = report.rows("formats")
    assert full["entropy_error"] is None  # its training text is unknown
    assert 0 < int8["divergence"] < 0.1
    positions = 64 * 64 * 4  # only looked up, not read in full
    assert full["read_bytes"] == full["total_bytes"] - positions


def test_a_format_that_this_machine_lacks_is_named():
    def lacking(weights: str) -> HuggingFaceModel:
        if weights == "int8":
            raise ModelError("this machine cannot compute it")
        return load(weights=weights)

    report = measured(lacking)
    missing = {"weights": "int8", "reason": "this machine cannot compute it"}
    assert report.rows("missing") == [missing]
    assert [row["weights"] for row in report.rows("formats")] == [AS_LOADED, "nf4"]
