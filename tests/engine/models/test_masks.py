"""What a model lets a token read, derived from the functions that make its masks."""

import pytest
import torch
from tiny_models import tiny
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    chunked_causal_mask_function,
    sdpa_mask,
    sliding_window_causal_mask_function,
)

from eab.engine.caches.shape import EVERYTHING, Reach
from eab.engine.models.attention_calls import MaskRule, cache_mask, recording
from eab.engine.models.huggingface import HuggingFaceModel
from eab.errors import ModelError

NO_PADDING = torch.zeros(1, dtype=torch.int64)
FULL = causal_mask_function


def rule(sees, size=0):
    with recording() as record:
        cache_mask(batch_size=1, q_length=5, kv_length=5, mask_function=sees, local_size=size)
    (found,) = record.rules
    return found


@pytest.mark.parametrize(
    ("sees", "size", "reach"),
    [
        (FULL, 0, EVERYTHING),
        (FULL, 8, EVERYTHING),
        (sliding_window_causal_mask_function(8), 8, Reach(window=8)),
        (sliding_window_causal_mask_function(1), 1, Reach(window=1)),
        (chunked_causal_mask_function(8, NO_PADDING), 8, Reach(chunk=8)),
        (sliding_window_causal_mask_function(8), 9, None),
        (sliding_window_causal_mask_function(8), 0, None),
        (lambda _text, _head, at, row: row <= at + 1, 0, None),
        (lambda _text, _head, at, row: (row <= at) & (row != 3), 0, None),
        (and_masks(FULL, lambda _text, _head, _, row: torch.arange(5)[row] >= 0), 0, None),
    ],
)
def test_the_reach_of_a_mask_is_known_for_every_length(sees, size, reach):
    assert rule(sees, size).reach(200) == reach
    if reach == Reach(window=8):
        assert rule(sees, size).reach(8) == EVERYTHING, "a window as long as the context"


def test_masks_that_are_not_noted_are_those_of_transformers():
    sizes = {"batch_size": 1, "q_length": 5, "kv_length": 5}
    assert cache_mask(**sizes) is None
    window = sliding_window_causal_mask_function(3)
    ours = cache_mask(**sizes, mask_function=window, local_size=3)
    assert torch.equal(ours, sdpa_mask(**sizes, mask_function=window, local_size=3))
    assert isinstance(rule(FULL), MaskRule)


def test_a_mask_that_no_cache_supports_is_refused(words, monkeypatch):
    monkeypatch.setattr(
        "transformers.masking_utils.sliding_window_overlay",
        lambda window: lambda _text, _head, at, row: (row > at - window) | (row == 0),
    )
    with pytest.raises(ModelError, match=r"'mistral' lets a token .* earlier ones by an unkn"):
        HuggingFaceModel(tiny("MistralConfig", sliding_window=16), words, "it")
