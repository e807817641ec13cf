"""The README is true: its Python runs, its settings and defaults exist, its files are there."""

import re
from dataclasses import fields

import pytest
from places import ROOT

from eab.config import BranchingConfig
from eab.models.loading import EMBEDDED_FOLDER

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_in_the_readme_runs_and_prints_samples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not (EMBEDDED_FOLDER / "model.safetensors").is_file():
        pytest.skip("the embedded model is not in assets/model")
    [snippet] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(snippet.strip().splitlines()) == 5
    exec(snippet, {})
    assert len(capsys.readouterr().out.splitlines()) > 1


@pytest.mark.parametrize("field", fields(BranchingConfig), ids=lambda field: field.name)
def test_every_setting_is_named_with_its_default(field) -> None:
    shown = _in_words(field.default)
    assert re.search(rf"`{field.name}`\s+{re.escape(shown)}", README), (
        f"{field.name} {shown} is not in the README"
    )


def _in_words(default: object) -> str:
    if default is False:
        return "off"
    return (
        "empty" if default == "" else f"{default:g}" if isinstance(default, float) else str(default)
    )


@pytest.mark.parametrize(
    "path",
    sorted(
        set(
            re.findall(
                r"`((?:eab|app|pages|assets|benchmarks|notebooks|training)/[\w./-]*)`", README
            )
        )
    ),
)
def test_every_file_that_the_readme_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make (\w+)", README))))
def test_every_make_target_that_the_readme_names_exists(target: str) -> None:
    assert re.search(
        rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
    )


def test_the_quality_table_is_the_one_that_was_measured() -> None:
    [shown] = re.findall(r"<!-- quality -->\n(.*?)<!-- /quality -->", README, flags=re.DOTALL)
    assert shown == (EMBEDDED_FOLDER / "quality.md").read_text(encoding="utf-8")
