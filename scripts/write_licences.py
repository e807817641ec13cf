"""Fills the table of packages in THIRD_PARTY.md: `python scripts/write_licences.py`.

It lists the packages in requirements.lock that Linux needs, with the licences stated in their
installed metadata. `make lock` calls it.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parent.parent
LOCK, PAGE = ROOT / "requirements.lock", ROOT / "THIRD_PARTY.md"
BEGIN, END = "<!-- packages -->\n", "<!-- /packages -->"
LINUX: Final = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
LONGEST: Final = 60  # characters of a licence's name; some packages give the whole text instead


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(before + table() + after, encoding="utf-8")


def locked() -> Iterator[tuple[Requirement, list[str]]]:
    """The entries of requirements.lock, each with its hashes."""
    for entry in re.split(r"\n(?=\S)", LOCK.read_text(encoding="utf-8").strip()):
        if not entry.startswith("#"):
            requirement, *hashes = entry.replace("\\\n", "").split("--hash=")
            yield Requirement(requirement), [value.strip() for value in hashes]


def table() -> str:
    needed = [
        package
        for package, _ in locked()
        if package.marker is None or package.marker.evaluate(LINUX)
    ]
    names = sorted({package.name for package in needed})
    rows = [f"| {name} | {licence(metadata(name))} |" for name in names]
    return "\n".join(["| Package | Licence |", "| --- | --- |", *rows, ""])


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


if __name__ == "__main__":
    main()
