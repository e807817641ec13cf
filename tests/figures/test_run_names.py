"""What names a run in files and pictures."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from made_runs import bundled_run
from msgspec import structs

from eab.figures.captions import file_stem, origin_words

STARTED = bundled_run("coin").started


@given(prompt=st.text(max_size=80))
def test_a_file_name_has_only_letters_digits_and_hyphens(prompt: str) -> None:
    stem = file_stem(structs.replace(STARTED, prompt=prompt))
    assert re.fullmatch(r"([^\W_]+-)+[0-9a-f]{6}", stem)
    assert len(stem) <= 60


def test_the_name_begins_with_the_prompt_and_ends_with_what_is_special_about_the_run() -> None:
    cats = structs.replace(STARTED, prompt="Why do cats purr?")
    assert file_stem(cats).startswith("why-do-cats-purr-")
    assert file_stem(cats) == file_stem(structs.replace(cats))
    other = structs.replace(cats, config=replace(cats.config, seed=cats.config.seed + 1))
    assert file_stem(cats) != file_stem(other)


def test_a_picture_says_prompt_model_and_settings() -> None:
    words = origin_words(STARTED)
    for part in (f"“{STARTED.prompt}”", "embedded", "threshold 0.", "branch factor 2", "seed 0"):
        assert part in words, words
