"""The pages of this folder as a site with a search and a reference: `make docs-site`.

The pages stay plain Markdown that a repository shows as it is. README.md is both the first page and
the order of all others.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import eab  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]

project, author, release = "EAB Explorer", PROJECT["authors"][0]["name"], eab.__version__
html_title, html_theme, html_favicon = f"{project} {release}", "furo", "../assets/icon.svg"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
myst_heading_anchors = 4  # a link such as library.md#samples-of-others
default_role = "code"  # the docstrings mark code as Markdown does
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 90
html_show_copyright = html_copy_source = False
html_theme_options = {
    "source_view_link": f"{REPOSITORY}/blob/main/docs/{{filename}}",
    "top_of_page_buttons": ["view"],
}


def _prepare(_app: Sphinx, name: str, source: list[str]) -> None:
    """Make links out of this folder links to the repository, and the list of pages the menu."""
    source[0] = re.sub(r"\]\(\.\./([^)]+)\)", rf"]({REPOSITORY}/blob/main/\1)", source[0])
    if name == root_doc:
        source[0] += "".join(map(_menu, re.split(r"\n(?=[A-Z]\w+\n\n)", source[0])[1:]))


def _menu(part: str) -> str:
    """The menu of a part of README.md: its title, and the pages that it links to."""
    pages = re.findall(r"\]\(([\w-]+)\.md\)", part)
    lines = ["```{toctree}", ":hidden:", f":caption: {part.split()[0]}", *pages, "```"]
    return "\n\n" + "\n".join(lines)


def _mark_code(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Make indented blocks of a docstring Python code, as in Markdown."""
    text = re.sub(r"(\n\n)((?: {4}.*\n+)+)", r"\1.. code-block:: python\n\n\2\n", "\n".join(lines))
    lines[:] = text.split("\n")


def _index(app: Sphinx, error: Exception | None) -> None:
    """Give the first page the name that servers look for, too."""
    if error is None:
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _prepare)
    app.connect("autodoc-process-docstring", _mark_code, priority=400)  # before napoleon's
    app.connect("build-finished", _index)
