"""The README and the pages in docs/ are correct: their Python runs, and what they name exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
from places import ROOT

import eab
from eab.cli.commands import app
from eab.engine.models.sources import EMBEDDED_FOLDER

README = ROOT / "README.md"
# docs/gpu-report.md is written by scripts/gpu_report.py, not by hand.
DOCS = sorted({*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "gpu-report.md"})
CARDS = [ROOT / name / "README.md" for name in ("training", "assets/model", "assets/draft")]
PAGES = [README, *DOCS, *CARDS]
NOT_COMMITTED = "training/cache"
FOLDERS = "eab|app|pages|assets|benchmarks|notebooks|training|scripts|tests|docs"
MAX_LINES, MAX_WORDS, MAX_PICTURE = 120, 1000, 3_000_000  # README limits; the picture in bytes


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), flags=re.DOTALL | re.MULTILINE)


def code_spans(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", prose)


def shell_lines(page: Path) -> list[str]:
    """Commands in sh blocks and in code spans, without comments."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [re.sub(r"\s#.*", "", line).strip() for line in [*lines, *code_spans(page)]]


def each(pages: list[Path]) -> Any:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


# ---- Python


@each([page for page in PAGES if blocks(page, "python")])
@pytest.mark.usefixtures("embedded")
def test_the_python_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for snippet in blocks(page, "python"):
        exec(compile(snippet, page.name, "exec"), namespace)


@pytest.mark.usefixtures("embedded")
def test_the_readme_shows_the_output_of_its_six_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [snippet], [shown] = blocks(README, "python"), blocks(README, "text")
    assert len(snippet.splitlines()) == 6
    exec(snippet, {})
    printed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    claimed = [line.split(maxsplit=1) for line in shown.splitlines()]
    assert [text for _, text in printed] == [text for _, text in claimed]
    weights = [[float(weight.rstrip("%")) for weight, _ in lines] for lines in (printed, claimed)]
    assert weights[0] == pytest.approx(weights[1], abs=0.15), "percent; machines round differently"


# ---- names, files, commands, links


@each(PAGES)
def test_every_name_file_and_make_target_on_a_page_exists(page: Path) -> None:
    names = {name for span in code_spans(page) for name in re.findall(r"\beab\.(\w+)\(", span)}
    assert names <= {*eab.__all__, *dir(eab.EntropyAdaptiveBranching)}
    spans = " ".join([*code_spans(page), *blocks(page, "sh")])
    for path in re.findall(rf"(?<![\w/.])((?:{FOLDERS})/[\w./-]+\w)", spans):
        assert (ROOT / path).exists() or path.startswith(NOT_COMMITTED), path
    makefile = text_of(ROOT / "Makefile")
    for line in shell_lines(page):
        for target in re.findall(r"^make (\w+)", line):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@each(PAGES)
def test_every_command_and_option_that_a_page_names_exists(page: Path) -> None:
    commands = {
        name: {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for name, command in typer.main.get_command(app).commands.items()
    }
    scripts = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "training").glob("*.py")]
    elsewhere = "".join(map(text_of, [ROOT / "pyproject.toml", *scripts]))
    for line in shell_lines(page):
        given = set(re.findall(r"(?<!\S)--[a-z][\w-]*", line))
        if match := re.match(r"eab ([a-z-]+)", line):
            assert match[1] in commands, line
            assert given <= commands[match[1]] | {"--help"}, line
        elif line.startswith("--"):
            known = set().union(*commands.values(), {"--help"})
            assert all(option in known or option in elsewhere for option in given), line


@each(PAGES)
def test_relative_links_point_to_existing_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text_of(page)):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:  # derived from a heading, as GitHub does
            titles = re.findall(r"^#+ (.+)$", text_of(file).lower(), flags=re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles]
            assert anchor in anchors, target


# ---- promises of individual pages


def test_the_readme_and_its_picture_are_small() -> None:
    assert len(text_of(README).splitlines()) <= MAX_LINES
    assert len(text_of(README).split()) < MAX_WORDS
    [picture] = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text_of(README))
    assert (ROOT / picture).stat().st_size < MAX_PICTURE


@each([page for page in DOCS if page.name != "README.md"])
def test_the_index_lists_every_page(page: Path) -> None:
    assert f"]({page.name})" in text_of(ROOT / "docs" / "README.md")
    assert re.search(r"^# ", text_of(page), flags=re.MULTILINE)


def test_the_core_has_about_as_many_lines_as_the_readme_says() -> None:
    core = text_of(README).split("The core is", 1)[1].split("\n\n", 2)
    claimed = int(re.findall(r"[\d,]+", core[0])[0].replace(",", ""))
    files = re.findall(r"`(eab/[\w/]+\.py)`", core[1])
    assert len(files) >= 8
    lines = sum(len(text_of(ROOT / file).splitlines()) for file in files)
    assert lines == pytest.approx(claimed, rel=0.05)


def test_the_quality_table_is_the_measured_one() -> None:
    page = text_of(ROOT / "docs" / "model.md")
    [shown] = re.findall(r"<!-- quality -->\n(.*?)<!-- /quality -->", page, flags=re.DOTALL)
    assert shown == text_of(EMBEDDED_FOLDER / "quality.md")


def test_the_readme_benchmark_table_only_has_figures_of_the_full_table() -> None:
    measured, _, _ = text_of(ROOT / "docs" / "benchmarks.md").partition("## A real chat model")
    small, large = rows(text_of(ROOT / "README.md")), rows(measured)
    chosen = {name: figures for name, figures in small.items() if name in large}
    assert len(chosen) == 5
    for name, figures in chosen.items():
        assert set(figures) <= set(large[name]), name


def rows(page: str) -> dict[str, list[str]]:
    found = re.findall(r"^\| ([^|]+?) \| (.+) \|$", page, flags=re.MULTILINE)
    return {name: figures.split(" | ") for name, figures in found}
