"""The sentence about what attention layers store and read."""

import pytest
import torch

from eab.engine.caches.shape import KVShape, LayerAttention, Reach, RowShape
from eab.engine.models.transformers_model import reach_words, rows_words

PLAIN, WINDOW = LayerAttention(), LayerAttention(Reach(window=6))
CHUNK, BORROWS = LayerAttention(Reach(chunk=8)), LayerAttention(source=0)
READ, KEPT = "read only the last 6 tokens", "but all rows are kept."


def shape(*layers: LayerAttention) -> KVShape:
    return KVShape(len(layers), 2, 8, torch.float32, torch.device("cpu"), attention=layers)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((PLAIN, PLAIN), ""),
        ((LayerAttention(soft_cap=2.0, rows=RowShape(2, 8, 6)),), ""),
        ((WINDOW, PLAIN, WINDOW), f" 2 of 3 attention layers {READ}, {KEPT}"),
        ((WINDOW, WINDOW), f" All 2 attention layers {READ}, {KEPT}"),
        ((WINDOW,), f" The attention layer reads only the last 6 tokens, {KEPT}"),
        (
            (CHUNK, PLAIN),
            f" 1 of 2 attention layers reads only the latest chunk of 8 tokens, {KEPT}",
        ),
        ((PLAIN, BORROWS), " 1 of 2 attention layers reads the rows of another layer."),
    ],
)
def test_the_sentence_says_what_the_layers_read(layers, words):
    made = shape(*layers)
    begun = f"KV rows are shared between paths, {made.row_bytes} B for each token." if words else ""
    assert rows_words(made) == begun + words
    assert reach_words(made) == ("" if made.layer(made.layers - 1) == BORROWS else words)
