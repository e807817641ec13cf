"""Draws which wing imports which, from the imports themselves: `python scripts/draw_imports.py`.

Writes a Mermaid graph between the markers in `docs/architecture.md`. Arrows implied by others are
left out: if A imports B and B imports C, the arrow from A to C is not drawn.
"""

import ast
from collections.abc import Iterable
from pathlib import Path

import grimp
import networkx

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- imports -->\n", "<!-- /imports -->"
VOCABULARY = "vocabulary"  # the modules of eab that belong to no wing
LIBRARY = ("eab", "app")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_with_graph(text), encoding="utf-8")


def is_current() -> bool:
    text = PAGE.read_text(encoding="utf-8")
    return _with_graph(text) == text


def _with_graph(text: str) -> str:
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + _mermaid(_wings()) + END + after


def _wings() -> "networkx.DiGraph[str]":
    """Wings as nodes, with an edge to each wing that they import."""
    modules = grimp.build_graph(*LIBRARY, cache_dir=None, exclude_type_checking_imports=True)
    wings: networkx.DiGraph[str] = networkx.DiGraph()
    for module in modules.modules:
        if module in LIBRARY:
            continue
        wings.add_node(_wing(module))
        for imported in modules.find_modules_directly_imported_by(module):
            _connect(wings, _wing(module), imported)
    for page in sorted((ROOT / "pages").glob("*.py")):
        for imported in _imported_by(page):
            _connect(wings, "pages", imported)
    return wings


def _connect(wings: "networkx.DiGraph[str]", wing: str, imported: str) -> None:
    if imported not in LIBRARY and _wing(imported) != wing:
        wings.add_edge(wing, _wing(imported))


def _wing(module: str) -> str:
    """`eab.caches.tree` belongs to `eab/caches`, and `eab.config` to the vocabulary."""
    package, name, *rest = module.split(".")
    if package == "eab" and name in ("events", "record", "run"):
        return VOCABULARY  # shared by all wings: events, runs, and their files
    if package == "app" or rest or (ROOT / package / name).is_dir():
        return f"{package}/{name}"
    return {"api": "eab/api", "__main__": "eab/cli"}.get(name, VOCABULARY)


def _imported_by(file: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module in LIBRARY:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif node.module.split(".")[0] in LIBRARY:
                yield node.module


def _mermaid(wings: "networkx.DiGraph[str]") -> str:
    reduced = networkx.transitive_reduction(wings)
    ids = {wing: wing.replace("/", "_") for wing in wings}
    nodes = [f'  {ids[wing]}["{wing}"]' for wing in sorted(wings)]
    edges = [f"  {ids[wing]} --> {ids[imported]}" for wing, imported in sorted(reduced.edges)]
    return "\n".join(["```mermaid", "graph TD", *nodes, *edges, "```", ""])


if __name__ == "__main__":
    main()
