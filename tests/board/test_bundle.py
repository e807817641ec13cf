"""The modules of the board joined into one script: imports come first, and modules that cannot be
joined are explained.
"""

from pathlib import Path

import pytest

from eab.board import STATIC, Host, javascript, stylesheet

HOSTS: tuple[Host, ...] = ("streamlit", "widget", "page")


def joined(folder: Path, **modules: str) -> str:
    """The script that joins these modules; the module `page` is the host."""
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source, encoding="utf-8")
    return javascript("page", folder)


@pytest.mark.parametrize(("host", "exports"), [("streamlit", 1), ("widget", 1), ("page", 0)])
def test_the_joined_javascript_has_no_imports_and_at_most_one_export(
    host: Host, exports: int
) -> None:
    source = javascript(host)
    assert "import " not in source
    assert source.count("export ") == source.count("export default") == exports
    assert "</script" not in source.lower()  # it would end a script element
    assert source.endswith(f"\n//# sourceURL=eab-board/{host}.js\n")  # the name in error messages


def test_every_module_and_style_is_used() -> None:
    scripts = "".join(javascript(host) for host in HOSTS)
    for file in STATIC.glob("*.js"):
        assert file.stem in HOSTS or f"const ${file.stem} = " in scripts, file.name
    styles = stylesheet()
    for file in STATIC.glob("*.css"):
        assert file.stem == "page" or file.read_text(encoding="utf-8") in styles, file.name


def test_the_worker_has_every_module_of_the_live_model() -> None:
    folder = STATIC.parents[1] / "share" / "live" / "static"
    script = javascript("worker", folder)
    assert "import " not in script
    for file in folder.glob("*.js"):
        assert file.stem == "worker" or f"const ${file.stem} = " in script, file.name


def test_imported_modules_come_first(tmp_path: Path) -> None:
    script = joined(
        tmp_path,
        page='import { a } from "./one.js";\na();\n',
        one='import { b } from "./two.js";\nexport function a() {\n  b();\n}\n',
        two="// A comment.\nexport const b = () => {};\n",
    )
    places = [script.index(name) for name in ("const $two", "const $one", "const { a } = $one")]
    assert places == sorted(places)
    assert "comment" not in script


def test_two_modules_can_use_the_same_name(tmp_path: Path) -> None:
    script = joined(
        tmp_path,
        page='import { a } from "./one.js";\nimport { b } from "./two.js";\na + b;\n',
        one="const SIZE = 1;\nexport const a = SIZE;\n",
        two="const SIZE = 2;\nexport const b = SIZE;\n",
    )
    assert script.count("(() => {") == 2  # each module in its own function


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        (
            {
                "page": 'import { a } from "./one.js";\n',
                "one": 'import { b } from "./two.js";\nexport const a = b;\n',
                "two": 'import { a } from "./one.js";\nexport const b = a;\n',
            },
            "cycle.*(one.*two.*one|two.*one.*two)",
        ),
        ({"page": 'import * as all from "./one.js";\n'}, "page.js: 'import .* cannot be joined"),
        ({"page": "const a = 1;\nexport { a };\n"}, "page.js: 'export .* cannot be joined"),
        ({"page": "const a = `one\n// two`;\n"}, "page.js: 'const a = .* cannot be joined"),
    ],
)
def test_modules_that_cannot_be_joined_are_explained(
    tmp_path: Path, modules: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        joined(tmp_path, **modules)
