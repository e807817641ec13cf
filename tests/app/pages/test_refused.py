"""Every page that runs something explains what it cannot run, and stays as it was."""

import pytest
from page_walk import Tab, opened

START_AND_STOP = {
    "explore": ("run_button", "stop_button"),
    "memory": ("run_button", "stop_button"),
    "speculative": ("run_button", "stop_button"),
    "bmc": ("run_sizes", "bmc_stop"),
    "batching": ("batching_start", "batching_stop"),
    "tune": ("tune_start", "tune_stop"),
    "quantization": ("formats_run", "formats_stop"),
}


def shown(page: Tab) -> tuple[list[str], list[object]]:
    """The sentences on a page and the trees of its boards."""
    return page.words, [board["paths"] for board in page.boards]


def refused(page: Tab, name: str) -> str:
    """Press the Start button of this page and return its errors; the rest must not change."""
    start, stop = START_AND_STOP[name]
    before = shown(page)
    page.press(start).run_to_its_end(stop)
    assert shown(page) == before
    return " ".join(page.errors)


@pytest.mark.parametrize("name", ["explore", "memory", "speculative", "bmc", "batching", "tune"])
def test_a_model_that_cannot_be_loaded_is_explained(name: str) -> None:
    page = opened(name, **{"experiment": "sizes"} if name == "bmc" else {})
    page.put(set_model_kind="Other").put(set_model_other="./no_such_folder")
    assert "there is no such folder" in refused(page, name)


@pytest.mark.parametrize(
    ("name", "prompt", "why"),
    [
        ("explore", "   ", "the prompt is empty"),
        ("explore", "word " * 2000, "Shorten the prompt"),
        ("memory", "   ", "the prompt is empty"),
        ("speculative", "   ", "the prompt is empty"),
        ("quantization", " ", "the prompt is empty"),
    ],
)
def test_a_prompt_that_cannot_be_run_is_explained(name: str, prompt: str, why: str) -> None:
    key = "formats_prompt" if name == "quantization" else "prompt"
    assert why in refused(opened(name).put(**{key: prompt}), name)
