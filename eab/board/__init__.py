"""The live picture: what Python sends (`messages`, `still`), and the JavaScript and CSS that draw
it (`static/`), each as one text for a page of any host.

The files in `eab/board/static/` and `eab/share/live/static/` are ordinary modules, so that editors
and `tsc` understand them. A host (Streamlit, a notebook, a worker, or a page that must not load
anything) takes a single script instead. The modules are joined here, without a build step or a
dependency.

Each module becomes a function that returns its exports. Its other names stay private, so two
modules may use the same name, but not the same file name. Only the following forms are understood,
one per statement, from the start of a line; and a template literal is on one line:

    import { name, other } from "./module.js";
    export function name / export async function name / export class name / export const name
    export default ...   (in the module of a host only)
"""

import re
from functools import lru_cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final, Literal

STATIC: Final = Path(__file__).parent / "static"
Host = Literal["streamlit", "widget", "page", "worker"]

_STYLES: Final = ("board", "pictures", "controls", "details", "screens")  # in order
_COMMENT: Final = re.compile(r"^ *(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)\n", re.MULTILINE)
_IMPORT: Final = re.compile(r'^import \{([\w\s,]+)\} from "(\.{1,2}/[\w/.]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:(?:async )?function|class|const) (\w+))", re.MULTILINE)
_LEFT_OVER: Final = re.compile(  # another import or export, or a line in which a template goes on
    r"^(?:(?:import|export)\b(?! default).*|[^`\n]*`(?:[^`\n]*`[^`\n]*`)*[^`\n]*$)", re.MULTILINE
)


@lru_cache(maxsize=8)
def javascript(host: Host, folder: Path = STATIC) -> str:
    """A single module without imports: the module of this host with everything that it needs.

    Its default export, if any, is kept. Browser errors name the script `eab-board/<host>.js`.

    Raises:
        FileNotFoundError: A module is missing.
        ValueError: A module is part of an import cycle, or is written in a form that is not
            understood.
    """
    modules: dict[Path, _Module] = {}
    first = (folder / f"{host}.js").resolve()
    wanted = [first]
    while wanted:
        file = wanted.pop()
        if file not in modules:
            modules[file] = _Module(file)
            wanted += modules[file].imports
    graph = {file: module.imports for file, module in modules.items()}
    order = TopologicalSorter(graph).static_order()
    script = "".join(modules[file].as_text(is_host=file == first) for file in order)
    return f"{script}//# sourceURL=eab-board/{host}.js\n"


def stylesheet(*more: str) -> str:
    """The CSS of the board; every rule applies only inside `.eab`. `more` names further files."""
    names = (*_STYLES, *more)
    return "".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in names)


class _Module:
    """The source of a module, without comments on their own lines."""

    def __init__(self, file: Path) -> None:
        code = _COMMENT.sub("", file.read_text(encoding="utf-8"))
        self.name = file.stem
        self.imports = {
            (file.parent / path).resolve(): names for names, path in _IMPORT.findall(code)
        }
        self.exports = _EXPORT.findall(code)  # the names that other modules may import
        self._body = _EXPORT.sub("", _IMPORT.sub("", code))
        if left_over := _LEFT_OVER.search(self._body):
            raise ValueError(
                f"{file.name}: {left_over[0]!r} cannot be joined; eab/board/__init__.py says what "
                "can"
            )

    def as_text(self, is_host: bool) -> str:
        imports = "".join(
            f"const {{{names}}} = ${file.stem};\n" for file, names in self.imports.items()
        )
        if is_host:
            return imports + self._body
        exports = f"return {{ {', '.join(self.exports)} }};"
        return f"const ${self.name} = (() => {{\n{imports}{self._body}{exports}\n}})();\n"
