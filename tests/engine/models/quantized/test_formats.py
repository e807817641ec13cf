"""Weight formats of whole models: what is stored, what it changes, and what is refused."""

from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import torch
from equality import assert_same_decisions
from processor import HAS_BFLOAT16, needs_compiled
from served_together import serve_all
from tiny_models import tiny
from transformers import AutoModelForCausalLM

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.loading import load_model
from eab.engine.models.quantized import formats
from eab.engine.models.quantized.formats import FORMATS, quantize, refuse_if_unusable
from eab.engine.models.quantized.integers import Int8Linear
from eab.engine.models.quantized.layer import QuantizedLinear
from eab.engine.models.sources import EMBEDDED_DRAFT, EMBEDDED_FOLDER
from eab.engine.models.weights import ReorderedLinear, bytes_by_kind
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.errors import ModelError
from eab.run import fold
from eab.weight_formats import AS_LOADED, WEIGHT_FORMATS
from training.choices import FIXED_CHOICES, known_distributions
from training.measures import fact_questions
from training.probe import Prober

MARKET = Request(
    "Grandma went to the market and bought some",
    BranchingConfig(entropy_threshold=0.5, max_new_tokens=12, max_paths=8),
)
# The largest entropy change of prompts with a known distribution, in bits; measured.
ENTROPY_BITS = {"bfloat16": 0.05, "int8": 0.1, "int8-weight-only": 0.1, "int4": 0.6}
ENTROPY_BITS |= {"nf4": 0.6, "nf4-double-quant": 0.6}


@pytest.fixture(scope="module")
def stored():
    """stored(weights) -> the embedded model in this format, loaded once."""
    found = {}

    def load(weights):
        if weights == "bfloat16" and not HAS_BFLOAT16:
            pytest.skip("oneDNN multiplies in bfloat16 with AVX-512 only")
        if weights not in found:
            found[weights] = load_model("embedded", "cpu", "float32", weights)
        return found[weights]

    return load


def prober(model) -> Prober:
    return Prober(model._model, model._tokenizer)


# The bytes of the linear layers as a share of those as loaded; measured.
BYTES = {"bfloat16": 0.51, "int8": 0.26, "int8-weight-only": 0.26, "int4": 0.2, "nf4": 0.15}


@pytest.mark.parametrize("weights", FORMATS)
def test_the_embedded_model_is_stored_in_each_format_and_says_so(stored, embedded, weights):
    model = stored(weights)
    assert set(WEIGHT_FORMATS) == {AS_LOADED, *FORMATS}
    assert (model.card.weights, model.card.layout) == (weights, "plain")
    assert model.card.dtype == "float32"
    # NF4 does not quantize the output layer, which shares the weights of the embedding.
    assert model.stored.kept == (("lm_head",) if weights.startswith("nf4") else ())
    for kind in ("embeddings", "norms and biases"):
        assert model.weight_bytes[kind] == embedded.weight_bytes[kind]


@pytest.mark.parametrize(("weights", "most"), BYTES.items())
def test_the_linear_layers_take_no_more_bytes_than_measured(stored, embedded, weights, most):
    model, names = stored(weights)._model, ("lm_head",) if weights == "nf4" else ()
    ours = sum(
        sum(tensor.nbytes for tensor in module.buffers())
        for module in model.modules()
        if isinstance(module, QuantizedLinear)
    )
    loaded = sum(
        module.weight.nbytes
        for name, module in embedded._model.named_modules()
        if isinstance(module, torch.nn.Linear | ReorderedLinear) and name not in names
    )
    assert ours / loaded <= most


@pytest.mark.parametrize("weights", ["bfloat16", "int8", "int8-weight-only"])
def test_facts_are_answered_with_the_same_words_at_eight_bits_or_more(stored, embedded, weights):
    questions = fact_questions()
    asked = questions["capitals, 20 best known"] + questions["general questions"][:20]
    plain, ours = prober(embedded), prober(stored(weights))
    for prompt, answer in asked:
        assert ours.would_write(answer, after=prompt) == plain.would_write(answer, after=prompt)


@pytest.mark.parametrize("weights", FORMATS)
def test_prompts_with_a_known_distribution_keep_their_entropy(stored, embedded, weights):
    plain, ours = prober(embedded), prober(stored(weights))
    prompts = [*known_distributions(FIXED_CHOICES)][::3]
    assert len(prompts) > 5
    shifts = [
        abs(ours.next_token_entropy(prompt) - plain.next_token_entropy(prompt))
        for prompt in prompts
    ]
    assert max(shifts) <= ENTROPY_BITS[weights]


DRAFTS: tuple[dict[str, Any], ...] = (
    {"drafter": "prompt-lookup", "draft_length": 4, "r": 1},
    {"drafter": "model", "draft_length": 3, "cache": "deep-copy"},
)
CACHES = ({"cache": "concat-cow"}, {"cache": "recompute"})


@needs_compiled
@pytest.mark.parametrize(
    ("weights", "changes"), [*zip(WEIGHT_FORMATS, cycle((DRAFTS, CACHES)), strict=False)]
)
def test_caches_drafts_and_r_change_no_text_where_attention_is_compiled(stored, weights, changes):
    model, draft = stored(weights), load_model(EMBEDDED_DRAFT, "cpu", "float32", weights)
    asked = BranchingConfig(max_paths=6, max_new_tokens=14, r=16)

    def leaves(**changes):
        request = Request("Once upon a time, there was a", replace(asked, **changes))
        run = fold(event_stream(model, request, draft))
        return {one.text: one.log_prob for one in run.samples}

    plain = leaves()
    assert len(plain) > 3
    for change in changes:
        assert leaves(**change) == pytest.approx(plain, rel=1e-6), change


@pytest.mark.parametrize(
    ("policy", "weights"), [("fair", "int8"), ("independent", "int4"), ("best-first", "int8")]
)
def test_a_run_served_with_others_equals_the_run_alone(stored, weights, policy):
    model = stored(weights)
    requests = [replace(MARKET, config=replace(MARKET.config, policy=policy, seed=1))]
    requests += [Request("Tom had a red ball. He", replace(MARKET.config, seed=n)) for n in (2, 3)]
    scheduler = Scheduler(model)
    handles = [scheduler.submit(request, owner=str(n)) for n, request in enumerate(requests)]
    for request, events in zip(requests, serve_all(scheduler, handles), strict=True):
        assert_same_decisions(fold(events), fold(event_stream(model, request)), 0.02)


def test_the_linear_layers_of_gpt2_are_quantized_too():
    model = tiny("GPT2Config", max_position_embeddings=1024)
    ids = torch.arange(2, 14)[None]
    with torch.inference_mode():
        before = model(ids).logits
        assert quantize(model, FORMATS["int8"]) == ()
        after = model(ids).logits
    assert sum(isinstance(one, Int8Linear) for one in model.modules()) == 2 * 4 + 1
    assert 0 < (after - before).norm() / before.norm() < 0.1
    narrow = tiny("LlamaConfig", intermediate_size=40, num_hidden_layers=1)
    kept = {f"model.layers.0.mlp.{name}_proj" for name in ("gate", "up")}  # of a shape without
    assert set(quantize(narrow, FORMATS["int4"])) == kept


def test_a_tied_output_layer_becomes_a_copy_and_the_embedding_stays():
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=torch.float32)
    before = bytes_by_kind(model)
    weight = model.get_input_embeddings().weight.clone()
    quantize(model, FORMATS["int8"])
    assert torch.equal(model.get_input_embeddings().weight, weight)
    assert bytes_by_kind(model)["embeddings"] == before["embeddings"] == weight.nbytes


class Wrong(Int8Linear):
    """Products as saturating integer units would compute them."""

    def _product(self, rows):
        return super()._product(rows).clamp(max=100.0)


class Leaning(Int8Linear):
    """Products that depend on all rows, as with one scale for the whole pass."""

    def _product(self, rows):
        return super()._product(rows) + rows.abs().amax() * 1e-6


class Missing(Int8Linear):
    def _product(self, rows):
        return torch.ops.aten.no_such_operator(rows)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (Wrong, "its products are wrong by"),
        (Leaning, "the result of a row depends on the other rows of the batch"),
        (Missing, "PyTorch lacks it"),
    ],
)
def test_a_format_that_the_machine_cannot_compute_is_refused_before_loading(
    monkeypatch, layer, reason
):
    monkeypatch.setitem(formats.FORMATS, "int8", formats.FORMATS["int8"]._replace(layer=layer))
    monkeypatch.setattr("eab.engine.models.loading._load", lambda *_: pytest.fail("loaded"))
    with pytest.raises(ModelError, match=f"'int8', which this machine cannot compute: {reason}"):
        load_model("embedded", "cpu", weights="int8")


def test_unknown_formats_and_layouts_and_other_devices_are_refused_with_the_choices(monkeypatch):
    model = load_model("embedded", "cpu", "float32", layout="prepacked")
    assert (model.card.weights, model.card.layout) == (AS_LOADED, "prepacked")
    monkeypatch.setattr("eab.engine.models.loading._load", lambda *_: pytest.fail("loaded"))
    for arguments, reason in (
        ({"weights": "int3"}, "weights is 'int3'; it must be one of: as-loaded, bfloat16"),
        ({"layout": "diagonal"}, "the layout is 'diagonal'; it must be one of: auto, plain"),
        ({"weights": "int8", "layout": "prepacked"}, "a layout can be chosen only for as-loaded"),
    ):
        with pytest.raises(ModelError, match=reason):
            load_model("embedded", **arguments)
    with pytest.raises(ModelError, match=r"'int8', which runs on the CPU only.*nf4"):
        refuse_if_unusable("int8", torch.device("cuda"))
