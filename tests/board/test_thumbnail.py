"""The small picture of a tree: well-formed, within its frame, one dot per text, no text."""

from xml.etree import ElementTree as Xml

import pytest

from eab.board.thumbnail import HEIGHT, WIDTH, thumbnail
from eab.lessons import bundled_runs
from eab.run import fold


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
