"""The layout of the boxes: no overlap, children to the right, parents centred, and quick for large
trees; and the thumbnail of a tree.
"""

from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import invented_run

from eab.board.still import (
    BOX_HEIGHT,
    GAP,
    HEIGHT,
    LONGEST,
    ROW,
    STUB_HEIGHT,
    WIDTH,
    pieces,
    shorten,
    text_width,
    thumbnail,
    tidy,
)
from eab.lessons import bundled_runs
from eab.run import Path, RunState, Token, fold
from eab.token_text import from_bytes


def token(text: str, step: int = 0) -> Token:
    return Token(step, 1, text, False, -0.5, 0.4, ())


def tree(shape: list[tuple[int, int]]) -> RunState:
    """A run with a path for each (parent, number of tokens); the parent of path i must be < i."""
    run = fold(invented_run(1, 1, 1)[:1])
    run.paths.clear()
    for index, (parent, length) in enumerate(shape):
        run.paths.append(
            Path(index, parent, [(0, 1.0)], True, touched=0, tokens=[token(" word")] * length)
        )
        if parent >= 0:
            run.paths[parent].children += (index,)
            run.paths[parent].status = "forked"
    return run


@st.composite
def trees(draw: st.DrawFn) -> RunState:
    size = draw(st.integers(1, 40))
    lengths = draw(st.lists(st.integers(0, 60), min_size=size, max_size=size))
    parents = [-1, *(draw(st.integers(0, index - 1)) for index in range(1, size))]
    return tree(list(zip(parents, lengths, strict=True)))


INVENTED = st.builds(invented_run, st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 40))


@given(st.one_of(trees(), INVENTED.map(fold)))
def test_no_two_boxes_overlap_including_stubs_and_the_prompt(run: RunState) -> None:
    layout = tidy(run)
    boxes = [(0.0, layout.prompt_width, layout.y[0], BOX_HEIGHT)]
    for path, x, width, y in zip(run.paths, layout.x, layout.box_widths, layout.y, strict=True):
        boxes.append((x, x + width, y, STUB_HEIGHT if path.status == "pruned" else BOX_HEIGHT))
    for index, (left, right, y, height) in enumerate(boxes):
        for other_left, other_right, other_y, other_height in boxes[:index]:
            beside = left >= other_right or right <= other_left
            assert beside or abs(y - other_y) >= (height + other_height) / 2


def test_a_pruned_leaf_takes_less_height() -> None:
    run = tree([(-1, 2), (0, 3), (0, 3)])
    before = tidy(run).height
    run.paths[2].status = "pruned"
    assert tidy(run).height < before


@given(trees())
def test_children_are_to_the_right_and_parents_are_centred(run: RunState) -> None:
    layout = tidy(run)
    for path in run.paths:
        for child in path.children:
            right = layout.x[path.id] + layout.box_widths[path.id]
            assert layout.x[child] == pytest.approx(right + GAP)
        if path.children:
            ends = [layout.y[child] for child in path.children]
            assert layout.y[path.id] == pytest.approx((ends[0] + ends[-1]) / 2)
            assert ends == sorted(ends)


@given(trees())
def test_everything_lies_inside_and_every_leaf_has_its_own_row(run: RunState) -> None:
    layout = tidy(run)
    leaves = [layout.y[path.id] for path in run.paths if not path.children]
    assert sorted(leaves) == [(row + 0.5) * ROW for row in range(len(leaves))]
    assert layout.height == len(leaves) * ROW
    boxes = zip(layout.x, layout.box_widths, strict=True)
    assert max(x + width for x, width in boxes) <= layout.width


def test_a_very_deep_tree_does_not_exhaust_the_stack() -> None:
    shape = [(-1, 1)]
    for _ in range(3000):
        shape += [(max(0, len(shape) - 2), 1)] * 2
    assert tidy(tree(shape)).height > ROW


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([b" caf", b"\xc3", b"\xa9"], [" caf", "", "é"]),
        ([b"\xe2", b"\x82", b"\xac", b"!"], ["", "", "€", "!"]),
        ([b"\xf0\x9f", b"\x98\x80"], ["", "😀"]),
        ([b"a", b"\xe2\x82"], ["a", "⟨E2⟩⟨82⟩"]),
        ([b"\xff", b"b"], ["⟨FF⟩", "b"]),
        ([b"line\n", b"\t"], ["line↵", "⇥"]),
    ],
)
def test_a_character_split_over_tokens_belongs_to_the_last_of_them(
    raw: list[bytes], expected: list[str]
) -> None:
    path = Path(0, -1, [(0, 1.0)], True, 0, tokens=[token(from_bytes(part)) for part in raw])
    assert pieces(path) == expected


def test_control_tokens_are_not_part_of_the_text() -> None:
    end = Token(1, 0, "<|endoftext|>", True, -0.5, 0.4, ())
    assert pieces(Path(0, -1, [(0, 1.0)], True, 0, tokens=[token(" word"), end])) == [" word", ""]
    alone = Path(0, -1, [(0, 1.0)], True, 0, tokens=[end])
    assert pieces(alone) == [""]
    alone.status = "finished"
    assert pieces(alone) == ["(ends)"]


@given(st.text(max_size=200))
def test_a_shortened_text_keeps_both_ends(text: str) -> None:
    short = shorten(text, LONGEST)
    assert len(short) <= LONGEST
    assert short == text or (short.startswith(text[:10]) and short.endswith(text[-10:]))


def test_wide_letters_are_wider_than_narrow_ones() -> None:
    assert text_width("illi") < text_width("aeou") < text_width("MWMW") < text_width("漢字漢字")


@pytest.mark.parametrize(
    "recording", bundled_runs.recordings(), ids=lambda recording: recording.file
)
def test_a_thumbnail_has_a_dot_for_every_text_and_stays_in_its_frame(
    recording: bundled_runs.Recording,
) -> None:
    run = fold(bundled_runs.events_of(recording))
    svg = Xml.fromstring(thumbnail(run))
    dots = [child for child in svg if child.tag.endswith("circle")]
    assert len(dots) == len(list(run.leaves()))
    assert not [child for child in svg.iter() if child.text]
    for dot in dots:
        assert 0 <= float(dot.attrib["cx"]) <= WIDTH
        assert 0 <= float(dot.attrib["cy"]) <= HEIGHT
