"""docs/lessons.md: its lesson is one, and its lists are those of the code."""

import re

from places import ROOT

from eab.lessons.reading import loads
from scripts.write_lessons import is_current

PAGE = (ROOT / "docs" / "lessons.md").read_text(encoding="utf-8")


def test_the_lesson_on_the_page_breaks_no_rule() -> None:
    (example,) = re.findall(r"^`{5}markdown\n(.*?)^`{5}", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert loads(example.encode(), "example").title == "A coin"


def test_the_lists_on_the_page_are_current() -> None:
    assert is_current(), "run python scripts/write_lessons.py"
