"""Fills in what pages and one module repeat from declarations: `make docs`, and with `--licences`
the licences of the locked packages: `make lock`.

Between the marks `<!-- NAME -->` and `<!-- /NAME -->` of a page, everything is written here, from
eab/config.py, app/server/rules.py, eab/lessons, the rows of tests/support/family_table.py, and
requirements.lock. In eab/api/settings.py, it is everything after the mark.
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from app.server.rules import PUBLIC, RULES
from eab import config
from eab.config import SETTINGS, BranchingConfig
from eab.engine.branching.presets import OF_PRESETS, PRESETS, START
from eab.lessons.measures import MEASURES, PARTS
from eab.lessons.pictures import CALCULATORS, PICTURES
from eab.settings import THRESHOLD_SCALES, Setting

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support"))
from family_table import FAMILIES, PLAIN, STATES, Family  # noqa: E402

DOCS: Final = ROOT / "docs"
LICENCES: Final = ROOT / "THIRD_PARTY.md"
TYPES: Final = ROOT / "eab" / "api" / "settings.py"
TYPES_MARK: Final = "    # The rest is written by scripts/write_docs.py from eab/config.py.\n"
LINUX: Final = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
LONGEST: Final = 60  # characters of a licence's name; some packages give the whole text instead
_FIRST: Final = ("entropy_threshold", "branch_factor", "max_paths")  # can be positional arguments
_ALL: Final = (
    '\n\nclass Settings(OtherSettings, total=False):\n    """All settings of a run by name."""\n\n'
)
# Types that a setting accepts in addition to the one that is stored
_ALSO_TAKEN: Final = {
    **dict.fromkeys(("stop", "label_words"), "str | Sequence[str] | None"),
    "chat_template_kwargs": "str | Mapping[str, Any]",
    "top_k": "int | None",
    **dict.fromkeys(("top_p", "min_p", "repetition_penalty"), "float | None"),
    "policy": "PolicyName | GivenPolicy",
    "early_stopping": "EarlyStopping | bool",
}
_WAYS: Final = {
    "tree": "a row of K and V is written once and shared by all paths below it",
    "tree and states": "rows as in the tree; each path has a copy of the states of the other layers",
    "own cache": "nothing is shared: each path has a copy of transformers' own cache",
    "refused": "an error at loading, with the reason",
}
_UNITS: Final = {"": "a number", "times": "a ratio", "share": "a share, 0 to 1"}
Lines = Iterator[str]


def table(*rows: list[str]) -> Lines:
    """The lines of a Markdown table, the head first."""
    head, *rest = rows
    for row in (head, ["---"] * len(head), *rest):
        yield f"| {' | '.join(row)} |"


def presets() -> Lines:
    yield from table(
        ["Preset", *(f"`{name}`" for name in OF_PRESETS), "Meaning"],
        *(
            [f"`{name}`", *(_default(one.settings[each]) for each in OF_PRESETS), one.help]
            for name, one in PRESETS.items()
        ),
    )


def _grouped(
    declared: Mapping[str, Setting], head: list[str], row: Callable[[str, Setting], list[str]]
) -> Lines:
    """A heading and a table for each group of settings or rules."""
    for group in dict.fromkeys(one.group for one in declared.values()):
        rows = [row(name, one) for name, one in declared.items() if one.group == group]
        yield from ("", f"## {group}", "", *table(head, *rows))


def settings() -> Lines:
    return _grouped(SETTINGS, ["Setting", "Option", "Default", "Allowed", "Meaning"], _setting)


def _setting(name: str, declared: Setting) -> list[str]:
    option = f"`--{(declared.option or name).replace('_', '-')}`"
    thresholds = "; ".join(f"{unit}: {scale.values}" for unit, scale in THRESHOLD_SCALES.items())
    allowed = thresholds if name == "entropy_threshold" else str(declared.values)
    return [f"`{name}`", option, _default(getattr(START, name)), allowed, _meaning(declared)]


def rules() -> Lines:
    return _grouped(RULES, ["Rule", "Default", "Public", "Allowed", "Meaning"], _rule)


def _rule(name: str, declared: Setting) -> list[str]:
    defaults = [_default(declared.default), _default(getattr(PUBLIC, name))]
    return [f"`{name}`", *defaults, str(declared.values), _meaning(declared)]


def _meaning(declared: Setting) -> str:
    return f"{declared.help} {declared.more}".strip()


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in ("", ()):
        return "empty"
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def families() -> Lines:
    """The families of models, grouped by how they run."""
    by_way = (
        [way, ", ".join(_family(one) for one in FAMILIES if one.way == way), shared]
        for way, shared in _WAYS.items()
    )
    return table(["way", "families", "what of the memory is shared"], *by_way)


def _family(family: Family) -> str:
    return family.name if family.what in (PLAIN, STATES) else f"{family.name} ({family.what})"


def measures() -> Lines:
    for kind in dict.fromkeys(measure.kind for measure in MEASURES.values()):
        parts = ", ".join(f"`{name}`" for name, (_, of) in PARTS.items() if of is kind)
        yield f"Of {parts}:\n"
        for name, measure in MEASURES.items():
            if measure.kind is kind:
                yield f"- `{name}`: {_UNITS.get(measure.unit, measure.unit)}"
        yield ""
    yield "Without `of`, a measure is that of `run`, the run on the board."


def pictures() -> Lines:
    return (f"- `{name}`" for name in PICTURES)


def calculators() -> Lines:
    for name, calculator in CALCULATORS.items():
        knobs, results = (
            ", ".join(f"`{each}`" for each in of) for of in (calculator.knobs, calculator.results)
        )
        yield f"- `{name}`: sliders {knobs}; gives {results}"


def packages() -> Lines:
    """The packages in requirements.lock that Linux needs, with the licences in their metadata."""
    names = sorted({one.name for one, _ in locked() if applies(one)})
    rows = ([name, licence(metadata(name))] for name in names)
    return table(["Package", "Licence"], *rows)


def applies(package: Requirement) -> bool:
    """Whether Linux needs the package."""
    return package.marker is None or package.marker.evaluate({**LINUX, "extra": ""})


def locked() -> Iterator[tuple[Requirement, list[str]]]:
    """The entries of requirements.lock, each with its hashes."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        if not entry.startswith("#"):
            requirement, *hashes = entry.replace("\\\n", "").split("--hash=")
            yield Requirement(requirement), [value.strip() for value in hashes]


def licence(stated: PackageMetadata) -> str:
    """The licence in a package's metadata: an SPDX expression, else classifiers, else free text."""
    classifiers = [
        each.rsplit(" :: ", 1)[-1]
        for each in stated.get_all("Classifier") or []
        if each.startswith("License :: ")
    ]
    free = (stated.get("License") or "").split("\n", 1)[0]
    name = stated.get("License-Expression") or ", ".join(classifiers) or free[:LONGEST]
    if not name:
        raise ValueError(f"{stated['Name']} states no licence; look at its source and add it here")
    return str(name)


def with_types(text: str) -> str:
    """eab/api/settings.py with up-to-date types of the settings."""
    typed = {name: _typed(name, declared) for name, declared in SETTINGS.items()}
    first = [typed.pop(name) for name in _FIRST]
    return "".join([text.partition(TYPES_MARK)[0], TYPES_MARK, *typed.values(), _ALL, *first])


def _typed(name: str, declared: Setting) -> str:
    unit = " In nats, unless threshold_unit says otherwise."
    allowed = unit if name == "entropy_threshold" else f" Allowed: {declared.values}."
    words = f"{declared.help}{allowed} Default: {_default(getattr(START, name))}."
    lines = textwrap.wrap(words.replace("\\", "\\\\"), 92)
    shown = lines[0] if len(lines) == 1 else "\n    ".join([*lines, ""])
    return f'    {name}: {_type_of(name)}\n    """{shown}"""\n'


def _type_of(name: str) -> str:
    kept: Any = BranchingConfig.__annotations__[name]
    named = next((each for each, value in vars(config).items() if value is kept), None)
    return _ALSO_TAKEN.get(name) or named or kept.__name__


PAGES: Final[Mapping[Path, tuple[Callable[[], Lines], ...]]] = {
    DOCS / "settings.md": (presets, settings),
    DOCS / "server-rules.md": (rules,),
    DOCS / "models.md": (families,),
    DOCS / "lessons.md": (measures, pictures, calculators),
    LICENCES: (packages,),
}


def written(page: Path) -> str:
    """The page with up-to-date parts."""
    text = page.read_text(encoding="utf-8")
    for part in PAGES[page]:
        name, new = part.__name__, "\n".join(part())
        marked = re.compile(f"(<!-- {name} -->\n).*(<!-- /{name} -->)", re.DOTALL)
        text = marked.sub(lambda marks, new=new: f"{marks[1]}{new}\n{marks[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    # The licences are read from the installed packages, so they need those that Linux needs.
    chosen = {LICENCES} if "--licences" in sys.argv else PAGES.keys() - {LICENCES}
    for each in chosen:
        each.write_text(written(each), encoding="utf-8")
    TYPES.write_text(with_types(TYPES.read_text(encoding="utf-8")), encoding="utf-8")
