"""The pages, without a browser, with models whose memory is more than shared rows of K and V:
sliding-window layers, states next to rows, and states alone.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from family_table import BY_NAME
from page_walk import Tab, opened
from tiny_models import with_large_weights
from transformers import PreTrainedTokenizerFast

from app.state.session import worker
from app.widgets import controls
from app.widgets.elements import plain
from eab.run import RunState

PROMPT = " ".join(f"w{2 + 5 * index % 60}" for index in range(12))
KINDS = {"windows": "Mistral", "states": "LFM2", "own": "Mamba"}
RUN = {"max_new_tokens": 5, "max_paths": 4, "entropy_threshold": 0.1}


@pytest.fixture
def folder(tmp_path: Path, words: PreTrainedTokenizerFast) -> Callable[[str], str]:
    """A function `folder(kind)` that saves a model of this kind and returns its path."""

    def saved(kind: str) -> str:
        family = BY_NAME[KINDS[kind]]
        with_large_weights(family.kind, torch.float32, **family.more).save_pretrained(tmp_path)
        words.save_pretrained(tmp_path)
        return str(tmp_path)

    return saved


def chosen(name: str, page: str = "explore") -> Tab:
    """A page whose link selects this model and the settings in RUN."""
    tab = opened(prompt=PROMPT, model=name, **RUN)
    return tab if page == "explore" else tab.go_to(page)


def explored(page: Tab) -> RunState:
    """Press Run on this page and return the finished run."""
    page.generate()
    assert not page.errors
    return worker().remembered[-1].state.run


@pytest.mark.parametrize("kind", KINDS)
def test_explore_describes_the_memory_of_the_model_during_and_after_a_run(
    kind, folder, monkeypatch
) -> None:
    page = chosen(folder(kind))
    card = explored(page).started.model
    assert card.memory_words
    assert card.memory_words in page.status
    shown: list[str] = []
    monkeypatch.setattr(controls.st, "progress", lambda share, words: shown.append(words))
    controls.draw_progress(worker().remembered[-1])
    assert shown[0].endswith(plain(card.memory_words))


def test_memory_says_what_sliding_windows_change(folder) -> None:
    page = chosen(folder("windows"), "memory").generate()
    assert not page.errors
    assert "All 6 runs have the same tokens." in page.said
    assert "All 2 attention layers read only the last 6 tokens, but all rows" in page.said
    assert "Separate caches that drop the rows behind a window would hold " in page.said
    assert "Rows that sliding-window layers no longer read are counted, too" in page.captions


def test_memory_counts_the_states_apart_from_the_rows(folder) -> None:
    page = chosen(folder("states"), "memory").generate()
    assert "Only rows are counted, not the states of the paths (768 B each)." in page.captions
    assert "behind a window" not in page.said


@pytest.mark.parametrize("kind", ["states", "own"])
def test_now_still_says_after_a_run_that_there_is_no_prefix_cache(kind, folder) -> None:
    name = folder(kind)
    explored(chosen(name))
    page = opened("batching", view="now")
    page.until(lambda: "The memory of this model cannot be reused for a longer text" in page.said)


def test_independent_texts_of_a_model_without_a_cache_share_none(folder) -> None:
    page = chosen(folder("own"))
    explored(page)
    page.go_to("compare").put(diff_a="explore").press("diff_run")
    page.run_to_its_end("diff_stop")
    assert "each text begins with a copy of its memory" in page.captions
