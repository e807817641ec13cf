"""Every setting is declared once and completely, and the generated pages are up to date."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.config import SETTINGS, BranchingConfig, PolicyName
from eab.settings import (
    THRESHOLD_SCALES,
    Buttons,
    Choice,
    Lines,
    Menu,
    NumberBox,
    Setting,
    Slider,
    Steps,
    ThresholdUnit,
)
from scripts.write_docs import LICENCES, PAGES, TYPES, with_types, written

EVERY = pytest.mark.parametrize(("name", "declared"), SETTINGS.items(), ids=list(SETTINGS))
KINDS = {field.name: field.type for field in fields(BranchingConfig)}


def _on_offer(declared: Setting) -> tuple[Any, ...]:
    """The values that the widget offers; of a range, its two ends."""
    match declared.widget:
        case Slider(low, high) | NumberBox(low, high):
            return (low, high)
        case Steps(values):
            return values
        case Menu(names):
            return names
        case Buttons(labels):
            return tuple(labels)
    return ()


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {LICENCES}), ids=lambda page: page.name)
def test_the_generated_parts_of_a_page_are_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == written(page), "run `make docs`"


def test_the_generated_types_are_up_to_date() -> None:
    text = TYPES.read_text(encoding="utf-8")
    assert text == with_types(text), "run `make docs`"


@EVERY
def test_a_setting_describes_itself(name: str, declared: Setting) -> None:
    assert declared.default == getattr(BranchingConfig(), name)
    assert declared.label
    assert declared.group
    for sentences in (declared.help, declared.more or "."):
        assert sentences.endswith(".")


@EVERY
def test_every_value_that_a_widget_offers_is_allowed(name: str, declared: Setting) -> None:
    for value in _on_offer(declared):
        declared.values.check(name, value)
        assert declared.widget.nearest(value) == value


@EVERY
def test_a_choice_has_the_names_of_its_type_and_explains_each(name: str, declared: Setting) -> None:
    if isinstance(declared.values, Choice):
        kind = PolicyName if declared.values.own else KINDS[name]
        assert get_origin(kind) is Literal
        assert declared.values.names == get_args(kind)
        for choice in declared.values.names:
            assert f"{choice}: " in declared.help


def test_every_unit_of_the_threshold_has_a_scale() -> None:
    assert tuple(THRESHOLD_SCALES) == get_args(ThresholdUnit)
    for scale in THRESHOLD_SCALES.values():
        for value in (scale.widget.low, scale.widget.high):
            scale.values.check("entropy_threshold", value)


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [
        ("max_paths", 256, 64),
        ("temperature", 0.01, 0.1),
        ("temperature", 1, 1.0),
        ("seed", 2**40, 2**31 - 1),
        ("r", "auto", "auto"),
        ("r", 100, 128),
        ("r", 4096, 256),
        ("min_fork_weight", 0.9, 0.5),
        ("policy", "greedy", "fair"),
        ("policy", "original", "original"),
    ],
)
def test_a_widget_finds_the_nearest_value_that_it_offers(
    name: str, value: object, nearest: object
) -> None:
    widget = SETTINGS[name].widget
    assert widget.nearest(value) == nearest
    assert type(widget.nearest(value)) is type(nearest)


@given(st.lists(st.text(min_size=1)).map(tuple))
def test_a_box_of_lines_returns_the_texts_that_it_shows(texts: tuple[str, ...]) -> None:
    held = Lines().nearest(texts)
    assert Lines().read(held) == texts
    assert len(held.split("\n")) == max(1, len(texts))


@pytest.mark.parametrize(
    ("held", "texts"),
    [("", ()), ("\n", ()), (r"\n\n", ("\n\n",)), (" a\n\nb", (" a", "b")), (r"\x\\n", (r"\x\n",))],
)
def test_a_box_of_lines_is_read_as_typed(held: str, texts: tuple[str, ...]) -> None:
    assert Lines().read(held) == texts
