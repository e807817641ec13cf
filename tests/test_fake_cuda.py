"""Code that only runs on a GPU, on a fake one: devices are never mixed, and the results are those
of the CPU. What only a real GPU can show is in test_gpu.py.
"""

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import cycle, pairwise

import pytest
import torch
from equality import PROMPT, assert_leaves_match
from fake_cuda import DEVICE, FREE_BYTES, fake_cuda
from made_runs import run_of
from served_together import assert_served_as_alone, expected_of
from tiny_models import SHARED, shared, word_tokenizer

from eab.config import BranchingConfig
from eab.engine.branching.sampling import Predictions
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model, wrap_model
from eab.engine.models.quantized import formats
from eab.engine.request import Request
from eab.engine.scheduler import GPU_SHARE, KV_LIMIT_MIB, Scheduler
from eab.errors import ModelError
from eab.labs import measure_quantization as quantization
from eab.labs.measure_bmc import measure
from eab.labs.measurement import Report
from eab.labs.variants import CACHES
from eab.run.events import Pause
from eab.weight_formats import AS_LOADED

pytestmark = pytest.mark.skipif(
    torch.backends.cuda.is_built() or sys.platform != "linux",
    reason="PyTorch has a CUDA device guard of its own, or it is not where it is on Linux",
)
CONFIG = BranchingConfig(max_new_tokens=14, entropy_threshold=1.5, max_paths=6, r=3)
ON_GPU = str(DEVICE)


@pytest.fixture
def waits() -> Iterator[Counter[str]]:
    """A fake CUDA device; counts how often the host waits for it."""
    with fake_cuda() as counted:
        yield counted


class Twins:
    """A tiny random model twice: on the CPU, and driven by the engine on the fake device."""

    def __init__(self, family: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        self.plain = shared(family, seed)
        self.ours = wrap_model(
            deepcopy(self.plain).to(DEVICE, dtype), word_tokenizer(), f"{family} {seed}"
        )


def test_the_device_refuses_what_cuda_refuses(waits):
    there, here = torch.ones(2, 3, device=DEVICE), torch.ones(2, 3)
    for mixes in (
        lambda: there + here,
        lambda: there.index_copy_(1, torch.tensor([0]), there[:, :1]),
        lambda: here[torch.tensor([0], device=DEVICE)],
    ):
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            mixes()
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        there.numpy()


WAYS = {
    "sliced": {},
    "padded": {"attention": "padded"},
    "drafts": {"drafter": "sibling-lookup", "draft_length": 2},
    "independent": {"policy": "independent", "top_k": 20, "top_p": 0.9, "temperature": 1.3},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "way"),
    [*(("llama", way) for way in WAYS), *zip([*SHARED][1:], cycle(WAYS), strict=False)],
)
def test_every_leaf_equals_the_plain_model_on_the_cpu(waits, family, way):
    twins = Twins(family)
    run = run_of(twins.ours, PROMPT, CONFIG, **WAYS[way])
    assert len(run.leaves()) > 1
    assert_leaves_match(run, twins.plain, 1e-9)


def test_parallel_cumulative_sums_never_draw_an_impossible_token(waits, monkeypatch):
    """CUDA rounds sums differently at each place (github.com/pytorch/pytorch/issues/21780). Here
    they are a little too small, and an ulp larger where nothing is added.
    """
    cumsum = torch.Tensor.cumsum

    def rounded(masses, dim):
        sums = cumsum(masses, dim) * (1 - 1e-12)
        return torch.where(masses > 0, sums, sums.nextafter(torch.ones_like(sums)))

    monkeypatch.setattr(torch.Tensor, "cumsum", rounded)
    likely = torch.arange(300) % 3 == 1
    logits = torch.where(likely, 0.0, float("-inf")).to(DEVICE)[None]
    uniforms = [*(number / 400 for number in range(400)), 1 - 2.0**-53]
    draws = Predictions(logits, BranchingConfig()).draw([0] * len(uniforms), uniforms)
    assert all(likely[token] for token in draws)
    assert (draws[0], draws[-1]) == (1, 298)


@pytest.mark.parametrize(
    "filters",
    [
        {"top_k": 7, "top_p": 0.8},
        {"min_p": 0.1},
        {"top_k": 9, "top_p": 0.9, "min_p": 0.05},
    ],
    ids=str,
)
def test_filters_keep_the_same_tokens_as_on_the_cpu_and_never_wait_for_the_device(waits, filters):
    logits = 3 * torch.randn(4, 90, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    logits[:, 5] = float("-inf")
    config, there = BranchingConfig(**filters), logits.to(DEVICE)
    before = sum(waits.values())
    Predictions(there, BranchingConfig())
    plain = sum(waits.values()) - before
    found = Predictions(there, config)
    assert sum(waits.values()) - before == 2 * plain
    here = Predictions(logits, config)
    assert found.top_tokens == here.top_tokens
    for name in ("entropies", "top_probabilities"):
        values = zip(getattr(found, name), getattr(here, name), strict=True)
        assert all(ours == pytest.approx(wanted) for ours, wanted in values)


@pytest.mark.parametrize("cache", CACHES)
def test_every_cache_computes_on_the_device(waits, cache):
    twins = Twins("llama")
    run = run_of(twins.ours, PROMPT, CONFIG, cache=cache)
    assert_leaves_match(run, twins.plain, 1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_models_run_on_the_device(waits, dtype):
    run = run_of(Twins("qwen2", dtype=dtype).ours, PROMPT, CONFIG)
    assert run.ended.reason == "finished"


@pytest.mark.slow
def test_every_kind_of_run_has_the_same_events_alone_and_in_a_batch(waits):
    models = {seed: Twins("llama", seed) for seed in range(8)}

    def twins(family: str, seed: int = 0) -> Twins:
        return models[seed]

    scheduler = Scheduler(models[0].ours, token_budget=40)
    assert_served_as_alone(scheduler, twins, expected_of(twins, "llama"))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["growth", "rejection"])
def test_the_bmc_laboratory_measures_on_the_device(waits, experiment):
    report = Report().collect(measure(experiment, Twins("llama").ours, rows=8, repeats=2))
    assert report.complete
    assert report.began.machine.startswith("Fake GPU, ")


@pytest.mark.slow
def test_weight_formats_are_compared_on_the_device(waits, monkeypatch):
    fables = quantization.held_out_texts()[:1]
    monkeypatch.setattr(quantization, "held_out_texts", lambda: fables)
    monkeypatch.setattr(quantization, "ROWS", (1, 3))
    monkeypatch.setattr(quantization, "WEIGHT_FORMATS", (AS_LOADED, "int8", "nf4"))
    monkeypatch.setitem(quantization.SIZES, "cuda", quantization.Sizes(2**22, 256, 2))
    report = Report()

    def load(weights: str) -> HuggingFaceModel:
        return load_model("embedded", ON_GPU, weights=weights)

    for event in quantization.measure_formats(load, "Once upon a time", repeats=1):
        report.apply(event)
    assert report.complete
    assert [row["weights"] for row in report.rows("formats")] == [AS_LOADED, "nf4"]
    [missing] = report.rows("missing")
    assert "runs on the CPU only" in missing["reason"]


def test_a_model_is_loaded_in_bfloat16_and_its_layers_are_quantized_one_by_one(waits, monkeypatch):
    as_loaded, most, make = [], [], formats._as_linear

    def noted(module, device=None):
        linear = make(module, device)
        if device is not None:
            as_loaded.append(weakref.ref(linear.weight))
        most.append(sum(weight() is not None for weight in as_loaded))
        return linear

    monkeypatch.setattr(formats, "_as_linear", noted)
    model = load_model("embedded", ON_GPU, weights="nf4")
    assert (len(as_loaded), max(most)) == (28, 1)
    assert (model.card.dtype, model.card.device) == ("bfloat16", ON_GPU)
    tensors = [*model._model.parameters(), *model._model.buffers()]
    assert {tensor.device for tensor in tensors} == {DEVICE}


def test_a_gpu_without_bfloat16_gets_float16(waits, monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation
    )
    assert load_model("embedded", ON_GPU).card.dtype == "float16"


@pytest.mark.parametrize(
    "place",
    [
        "eab.engine.models.loading._placed",
        "eab.engine.models.quantized.formats._replace",
        "transformers.models.llama.modeling_llama.LlamaModel.forward",
    ],
)
def test_a_model_too_large_for_the_device_is_refused_with_a_message(waits, monkeypatch, place):
    models = []

    def full(model, *args, **kwargs):
        models.append(weakref.ref(model))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(place, full)
    with pytest.raises(
        ModelError, match=r"'embedded' does not fit .*: 6.0 GiB of 8.0 GiB are"
    ) as caught:
        load_model("embedded", ON_GPU, weights="nf4")
    assert "fewer bits (weights nf4), or device cpu" in str(caught.value)
    gc.collect()
    assert models[0]() is None, "whoever keeps the error does not keep the model"


def test_all_runs_together_stay_within_the_free_memory_of_the_device(waits):
    scheduler = Scheduler(Twins("llama").ours)
    assert scheduler._kv_limit == int(GPU_SHARE * FREE_BYTES) < KV_LIMIT_MIB * 2**20


@pytest.mark.parametrize(
    "family",
    [
        "llama",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen2", "gpt2", "gpt_neox")),
    ],
)
def test_a_captured_pass_never_waits_for_the_device(waits, monkeypatch, family):
    """A CUDA graph cannot contain a copy from host memory, or a number that the host reads."""
    captures = []

    def capture(forward):
        before = sum(waits.values())
        logits = forward()
        captures.append(sum(waits.values()) - before)
        return lambda: logits.copy_(forward())

    monkeypatch.setattr("eab.engine.models.huggingface.new_graph_capture", lambda device: capture)
    twins = Twins(family)
    run = run_of(twins.ours, PROMPT, CONFIG, max_new_tokens=40, r=13, attention="padded")
    assert len(captures) > 3
    assert not any(captures)
    assert twins.ours._graph_runner._failures == 0
    assert_leaves_match(run, twins.plain, 1e-9)


def test_a_decode_step_waits_for_the_device_once(waits, monkeypatch):
    """A waiting host cannot launch kernels; the bound keeps new waits from creeping in."""
    captures = []

    def capture(forward):
        logits = forward()
        captures.append(logits)
        return lambda: logits.copy_(forward())

    monkeypatch.setattr("eab.engine.models.huggingface.new_graph_capture", lambda device: capture)
    model = Twins("llama").ours
    counts = []
    for event in event_stream(model, Request(PROMPT, replace(CONFIG, r=64, max_new_tokens=40))):
        if isinstance(event, Pause):
            counts.append(sum(waits.values()))
    per_step = [after - before for before, after in pairwise(counts)]
    # For the distributions, from which the host draws; a new capture is also checked
    assert {*sorted(per_step)[: -len(captures)]} == {1}
