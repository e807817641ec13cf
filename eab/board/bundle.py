"""The board's JavaScript and CSS, each as one text, for a page of any host.

The files in `eab/board/static/` are ordinary modules, so that editors and `tsc` understand them. A
host (Streamlit, a notebook, or a page that must not load anything) takes a single script instead.
The modules are joined here, without a build step or a dependency.

Each module becomes a function that returns its exports. Its other names stay private, so two
modules may use the same name. Only the following forms are understood, one per statement, from the
start of a line:

    import { name, other } from "./module.js";
    export function name / export class name / export const name
    export default ...   (in the module of a host only)
"""

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, Literal

FOLDER: Final = Path(__file__).parent / "static"
Host = Literal["streamlit", "widget", "page"]

_STYLES: Final = (  # in order
    *(
        "board",
        "tree",
        "charts",
        "diff",
        "controls",
        "details",
        "presenting",
        "outline",
        "tour",
        "narrow",
    ),
)
# In code: a comment on its own lines, or a token in which no comment or template can start.
_CODE: Final = re.compile(
    r"""(?P<comment>^\ *(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)\n)
    | //.*
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | (?<=[(,=:\[!&|?{};])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/  # a pattern
    | [`{}]""",
    re.MULTILINE | re.VERBOSE,
)
_TEMPLATE: Final = re.compile(r"\\[\s\S]|`|\$\{")
_IMPORT: Final = re.compile(r'^import \{([\w\s,]+)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT_OVER: Final = re.compile(r"^(?:import|export)\b(?! default).*", re.MULTILINE)


def javascript(host: Host, folder: Path = FOLDER) -> str:
    """A single module without imports: the module of this host with everything that it needs.

    Its default export, if any, is kept. Browser errors name the script `eab-board/<host>.js`.

    Raises:
        ValueError: A module is missing, lacks an export that another module imports, is part of an
            import cycle, or is written in a form that is not understood.
    """
    modules = _with_imports(host, folder)
    for module in modules.values():
        module.check_imports(modules)
    graph = {name: module.imports.keys() for name, module in modules.items()}
    try:
        order = TopologicalSorter(graph).static_order()
        script = "".join(modules[name].as_text(is_host=name == host) for name in order)
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise ValueError(f"modules of the board import each other in a circle: {circle}") from None
    return f"{script}//# sourceURL=eab-board/{host}.js\n"


def stylesheet() -> str:
    """The CSS of the board; every rule applies only inside `.eab`."""
    return "".join((FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in _STYLES)


class _Module:
    """The source of a module, without comments."""

    def __init__(self, name: str, source: str) -> None:
        code = _without_comments(source)
        self.name = name
        imports = _IMPORT.findall(code)
        self.imports = {module: re.findall(r"\w+", names) for names, module in imports}
        self.exports = _EXPORT.findall(code)  # the names that other modules may import
        self._body = _EXPORT.sub("", _IMPORT.sub("", code))
        if left_over := _LEFT_OVER.search(self._body):
            raise ValueError(
                f"{name}.js: {left_over[0]!r} cannot be joined; eab/board/bundle.py says what can"
            )

    def check_imports(self, modules: dict[str, "_Module"]) -> None:
        for module, names in self.imports.items():
            if missing := set(names) - set(modules[module].exports):
                exports = ", ".join(modules[module].exports) or "nothing"
                raise ValueError(
                    f"{self.name}.js imports {', '.join(sorted(missing))} from {module}.js, "
                    f"which exports {exports}"
                )

    def as_text(self, is_host: bool) -> str:
        imports = ""
        for module, names in self.imports.items():
            imports += f"const {{ {', '.join(names)} }} = ${module};\n"
        if is_host:
            return imports + self._body
        exports = f"return {{ {', '.join(self.exports)} }};"
        return f"const ${self.name} = (() => {{\n{imports}{self._body}{exports}\n}})();\n"


def _without_comments(source: str) -> str:
    """The source without comments on their own lines; template literals stay as they are."""
    kept: list[str] = []
    opened: list[str] = []  # braces and backticks that are still open
    at = 0
    while match := (_TEMPLATE if opened[-1:] == ["`"] else _CODE).search(source, at):
        is_comment = match.groupdict().get("comment") is not None
        kept.append(source[at : match.start() if is_comment else match.end()])
        at = match.end()
        token = match[0]
        if token == "}" or (token == "`" and opened[-1:] == ["`"]):
            opened.pop()
        elif token in ("`", "{", "${"):
            opened.append(token)
    return "".join(kept) + source[at:]


def _with_imports(host: str, folder: Path) -> dict[str, _Module]:
    """The host's module and all modules that it imports, directly or indirectly."""
    modules: dict[str, _Module] = {}
    wanted = {host: "the host"}
    while wanted:
        name, importer = wanted.popitem()
        file = folder / f"{name}.js"
        if not file.is_file():
            raise ValueError(f"{file} is missing; it is imported by {importer}")
        modules[name] = _Module(name, file.read_text(encoding="utf-8"))
        new = [module for module in modules[name].imports if module not in modules]
        wanted |= dict.fromkeys(new, f"{name}.js")
    return modules
