"""What a release has around the code: its address, how to cite it, the docs as a site."""

import re
import shutil
import subprocess
import sys
import tomllib
from inspect import isfunction
from pathlib import Path

import pytest
import yaml
from places import ROOT

import eab
from eab.engine.branching.policy import Policy
from eab.engine.models.base import LanguageModel
from scripts.set_url import FILES, set_url

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
NEW = ("https://git.example.com/group/eab", "https://eab.example.net:8443/x")


def texts(root: Path) -> list[str]:
    return [(root / name).read_text(encoding="utf-8") for name in FILES]


def test_one_command_sets_the_address_everywhere(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    before = texts(ROOT)
    assert all(REPOSITORY in text for text in before)
    for url in NEW:  # the second time, it replaces another address than the first
        set_url(f"{url}/", tmp_path)
        assert texts(tmp_path) == [text.replace(REPOSITORY, url) for text in before]
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.*"), *ROOT.glob("eab/**/*.py")]:
        assert REPOSITORY not in file.read_text(encoding="utf-8"), file


@pytest.mark.parametrize(
    "url", ["", "git.example.com/eab", "http://a.example/eab", "https://a.example", "https://a/ b"]
)
def test_a_wrong_address_changes_nothing(url: str) -> None:
    with pytest.raises(ValueError, match="must be an address such as https://"):
        set_url(url)


def test_the_citation_has_the_required_fields_and_no_version_of_its_own() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "type", "abstract", "keywords"} <= set(cited)
    assert cited["authors"] == PROJECT["authors"]
    assert (cited["license"], cited["repository-code"]) == (PROJECT["license"], REPOSITORY)
    assert "version" not in cited  # eab/__init__.py has it


def test_the_changelog_begins_with_this_version_and_is_short() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    versions = [line for line in lines if line.startswith("## ")]
    assert versions[0].startswith(f"## [{eab.__version__}]")
    assert versions[-1].startswith("## [1.0.0]")
    assert len(lines) - lines.index(versions[-1]) <= 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as `make docs-site` builds it."""
    folder: Path = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(folder)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.slow
def test_the_docs_build_without_a_warning_and_load_nothing_from_elsewhere(site: Path) -> None:
    sources = {f"{file.stem}.html" for file in (ROOT / "docs").glob("*.md")}
    assert sources | {"index.html", "search.html"} <= {file.name for file in site.glob("*.html")}
    for file in site.glob("*.html"):
        html = file.read_text(encoding="utf-8")
        assert not re.findall(
            r"<(?:script|img|iframe|link)\b[^>]* (?:src|href)=\"[^\"]*//", html
        ), file
        for path in re.findall(rf'href="{REPOSITORY}/blob/main/([^"#]+)', html):
            assert (ROOT / path).exists(), path
        assert 'href="../' not in html, file
    for file in site.rglob("*.css"):
        style = file.read_text(encoding="utf-8")
        assert "@import" not in style, file
        assert "url(http" not in style.replace('"', ""), file


@pytest.mark.slow
def test_the_reference_has_every_public_name_and_the_search_finds_it(site: Path) -> None:
    html = (site / "reference.html").read_text(encoding="utf-8")
    methods = [
        f"{part.__module__}.{part.__name__}.{name}"
        for part in (Policy, LanguageModel)
        for name, value in vars(part).items()
        if isfunction(value) and not name.startswith("_")
    ]
    assert len(methods) > 8
    for name in [*(f"eab.{name}" for name in eab.__all__ if name != "Event"), *methods]:
        assert f'id="{name}"' in html, name
    assert "EntropyAdaptiveBranching" in (site / "searchindex.js").read_text(encoding="utf-8")
