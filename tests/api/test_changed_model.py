"""A model that was given loaded may change between two runs: nothing of before is used."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import tiny, word_tokenizer
from torch import nn

from eab import EntropyAdaptiveBranching
from eab.api.run import Run

PROMPT = "w3 w9 w4 w22 w8 w31"
Change = Callable[[Any], object]


def nudged(model: Any) -> None:
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight[3] += 0.5


def trained(model: Any) -> None:
    model(input_ids=torch.tensor([[3, 9, 4]])).logits.square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.05).step()


def replaced(model: Any) -> None:
    weight = model.model.layers[1].mlp.down_proj.weight
    model.model.layers[1].mlp.down_proj.weight = nn.Parameter(weight * 1.5)


def data_replaced(model: Any) -> None:
    weight = model.model.layers[1].mlp.down_proj.weight
    weight.data = weight.data * 1.5


def steered(model: Any) -> None:
    model.model.layers[0].register_forward_hook(lambda _, __, out: out * 1.5)


def patched(model: Any) -> None:
    mlp = model.model.layers[0].mlp
    plain = mlp.forward
    mlp.forward = lambda rows: 2 * plain(rows)


def in_data(model: Any) -> None:
    """The one kind of change that cannot be noticed without reading all weights."""
    model.model.layers[1].mlp.down_proj.weight.data.mul_(1.5)


CHANGES: list[Change] = [nudged, trained, replaced, data_replaced, steered, patched]


@pytest.fixture
def loaded() -> Any:
    return tiny("LlamaConfig", torch.float64, spread=0.3)


def explorer(model: Any, **more: Any) -> EntropyAdaptiveBranching:
    rank = {"entropy_threshold": 2, "threshold_unit": "rank"}
    sizes = {"max_paths": 3, "max_new_tokens": 6, "seed": 1}
    return EntropyAdaptiveBranching((model, word_tokenizer()), **rank | sizes | more)


def assert_same(found: Run, fresh: Run) -> None:
    assert found.started.threshold_nats == pytest.approx(fresh.started.threshold_nats, abs=1e-4)
    texts = [[sample.token_ids for sample in run.samples] for run in (found, fresh)]
    assert texts[0] == texts[1]
    log_probs = [[sample.log_prob for sample in run.samples] for run in (found, fresh)]
    assert log_probs[0] == pytest.approx(log_probs[1], abs=1e-4)


@pytest.mark.parametrize("kept", [{}, {"prefix_cache_mib": 8}])
@pytest.mark.parametrize("change", CHANGES)
def test_a_run_after_a_change_is_that_of_a_new_object(loaded, change: Change, kept) -> None:
    used = explorer(loaded, **kept)
    before = used.run(PROMPT)
    change(loaded)
    after = used.run(PROMPT)
    assert_same(after, explorer(loaded).run(PROMPT))
    assert after.started.threshold_nats != pytest.approx(before.started.threshold_nats, abs=1e-3)


@pytest.mark.filterwarnings("ignore:::peft", "ignore::FutureWarning", "ignore::UserWarning")
def test_adapters_are_noticed(loaded) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(loaded, lora)
    used = explorer(adapted, prefix_cache_mib=8)
    seen = [used.run(PROMPT)]
    with adapted.disable_adapter():
        seen.append(used.run(PROMPT))
        assert_same(seen[-1], explorer(adapted).run(PROMPT))
    adapted.base_model.merge_adapter()
    seen.append(used.run(PROMPT))
    assert_same(seen[0], seen[2])
    assert seen[0].started.threshold_nats != pytest.approx(seen[1].started.threshold_nats, abs=1e-4)


def test_what_cannot_be_noticed_can_be_forgotten(loaded) -> None:
    used = explorer(loaded, prefix_cache_mib=8)
    used.run(PROMPT)
    in_data(loaded)
    used.forget()
    assert_same(used.run(PROMPT), explorer(loaded).run(PROMPT))
    explorer(loaded).forget()  # nothing is kept


def test_what_has_not_changed_is_found_again(loaded) -> None:
    used = explorer(loaded, prefix_cache_mib=8)
    first, again = used.run(PROMPT), used.run(PROMPT)
    assert again.tokens_reused >= 5
    assert_same(again, first)
