"""Writes the lists in docs/lessons.md from their declarations: `python scripts/write_lessons.py`.

The lists are those of measures, charts and calculators.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from eab.lessons.calculators import CALCULATORS
from eab.lessons.measures import MEASURES
from eab.lessons.pictures import PICTURES
from eab.lessons.sources import PARTS

FILE: Final = Path(__file__).resolve().parents[1] / "docs" / "lessons.md"
UNITS: Final = {"": "a number", "times": "a ratio", "share": "a share, 0 to 1"}


def written(text: str) -> str:
    """The page with up-to-date lists."""
    text = _filled(text, "measures", _measures())
    text = _filled(text, "pictures", (f"- `{name}`" for name in PICTURES))
    return _filled(text, "calculators", _calculators())


def is_current() -> bool:
    text = FILE.read_text(encoding="utf-8")
    return text == written(text)


def _filled(text: str, name: str, lines: Iterable[str]) -> str:
    marked = re.compile(f"(<!-- {name} -->\n).*(<!-- /{name} -->)", re.DOTALL)
    new = "\n".join(lines)
    return marked.sub(lambda marks: f"{marks[1]}{new}\n{marks[2]}", text)


def _measures() -> Iterator[str]:
    for kind in dict.fromkeys(measure.kind for measure in MEASURES.values()):
        parts = ", ".join(f"`{name}`" for name, (_, of) in PARTS.items() if of is kind)
        yield f"Of {parts}:\n"
        for name, measure in MEASURES.items():
            if measure.kind is kind:
                yield f"- `{name}`: {UNITS.get(measure.unit, measure.unit)}"
        yield ""
    yield "Without `of`, a measure is that of `run`, the run on the board."


def _calculators() -> Iterator[str]:
    for name, calculator in CALCULATORS.items():
        knobs, results = (
            ", ".join(f"`{each}`" for each in of) for of in (calculator.knobs, calculator.results)
        )
        yield f"- `{name}`: sliders {knobs}; gives {results}"


if __name__ == "__main__":
    FILE.write_text(written(FILE.read_text(encoding="utf-8")), encoding="utf-8")
