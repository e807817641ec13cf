"""Every page opens when every parameter that an address can have is set to a hostile value."""

import re

import pytest
from page_walk import opened
from places import ROOT

PAGES = sorted(path.stem for path in (ROOT / "pages").glob("*.py"))
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("app", "pages")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
PARAMETERS = [
    *("class", "lecture", "lesson", "stage", "a", "b", "view", "experiment"),
    *("saved", "example", "model", "prompt", "seed", "cursor", "policy", "threshold_unit"),
    *re.findall(r'Slot\(\s*"(\w+)"', CODE),
]
VALUES = ["../../etc/passwd", "9" * 5000, "<script>\x00'\"", "-0.0", "٣", "\ufffe\U0001f642"]


@pytest.mark.parametrize(("shift", "page"), [*enumerate(PAGES)])  # each page gets every value
def test_every_page_opens_at_any_address(shift: int, page: str) -> None:
    query = {name: VALUES[(number + shift) % len(VALUES)] for number, name in enumerate(PARAMETERS)}
    tab = opened(page, **query)
    assert all(len(message.value) < 2000 for message in tab.error)
