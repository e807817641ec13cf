"""The sdist, and the wheel that is built from it: their contents, and the wheel installed into an
environment of its own and used outside the checkout.
"""

import email
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import psutil
import pytest
from installation import Installation, build, check
from places import ROOT
from raw_session import RawSession

import eab
from eab.engine.models.sources import EMBEDDED_FOLDER
from scripts.servers import free_port, serving_explorer

pytestmark = [pytest.mark.packaging, pytest.mark.slow]
BUNDLED = ("app", "pages", "assets")
LEFT_OUT = {"assets/picture.webp"}  # the README's picture
RELEASE_FILES = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "THIRD_PARTY.md"}
RELEASE_FILES |= {"pyproject.toml", "hatch_build.py", "PKG-INFO", ".gitignore"}
MAX_BYTES = 20_000_000

LIBRARY = """
from importlib.util import find_spec
import eab

assert not any(map(find_spec, ("streamlit", "starlette", "plotly", "segno", "anywidget", "ray")))
made = eab.EntropyAdaptiveBranching("embedded").run("The cat", max_new_tokens=4)
made.save("a.eab")
run = eab.Run.load("a.eab")
assert "<html" in run.to_html()
assert "<graphml" in run.to_graphml() and "<img" in run._repr_html_()
assert len(run.to_pandas()) == len(made.to_pandas()) > 1
for call, extra in (
    (lambda: eab.show(run), "notebook"),
    (lambda: eab.show_lesson("forks"), "notebook"),
    (lambda: __import__("eab.figures.answers"), "app"),
):
    try:
        call()
    except eab.EabError as error:
        assert f'pip install "eab-explorer[{extra}]"' in str(error)
    else:
        raise AssertionError(extra)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[1]


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """The files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def lean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(wheel, tmp_path_factory.mktemp("lean"), lean=True)


def test_the_wheel_installs_only_the_package_and_its_own_metadata(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"eab"}


@pytest.mark.parametrize("folder", BUNDLED)
def test_the_wheel_contains_every_file_of_the_page(names: set[str], folder: str) -> None:
    files = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    carried = {name for name in names if name.startswith(f"eab/_bundle/{folder}/")}
    assert carried == {f"eab/_bundle/{file}" for file in files - LEFT_OUT}


def test_the_sdist_has_what_the_wheel_is_built_from(
    built: tuple[Path, Path], names: set[str]
) -> None:
    sdist, _ = built
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("eab", *BUNDLED):
        carried = {name.removeprefix("eab/_bundle/") for name in names}
        assert {name for name in carried if name.startswith(f"{folder}/")} <= files
    tops = {name.partition("/")[0] for name in files}
    assert tops <= {"eab", *BUNDLED, *RELEASE_FILES}
    assert sdist.stat().st_size < MAX_BYTES


def test_an_index_accepts_both_and_shows_links_to_the_repository(
    built: tuple[Path, Path], wheel: Path
) -> None:
    check([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)])
    [metadata] = [
        zipfile.Path(wheel) / name
        for name in zipfile.ZipFile(wheel).namelist()
        if name.endswith(".dist-info/METADATA")
    ]
    stated = email.message_from_string(metadata.read_text(encoding="utf-8"))
    assert stated["Version"] == eab.__version__
    links = re.findall(r"\]\(([^)]+)\)", stated.get_payload())
    assert len(links) > 20
    assert all(link.startswith("https://") for link in links)


def test_the_wheel_contains_the_licences_and_no_tests_and_is_small(
    wheel: Path, names: set[str]
) -> None:
    for file in ("LICENSE", "THIRD_PARTY.md"):
        assert any(name.endswith(f".dist-info/licenses/{file}") for name in names)
    assert "eab/_bundle/assets/model/ATTRIBUTION.md" in names
    assert not any("test" in name or "training" in name or "__pycache__" in name for name in names)
    assert not {f"eab/_bundle/{file}" for file in LEFT_OUT} & names
    assert wheel.stat().st_size < MAX_BYTES


def test_the_commands_work_outside_the_checkout(installed: Installation) -> None:
    if not (EMBEDDED_FOLDER / "model.safetensors").is_file():
        pytest.skip("the embedded model is not in assets/model")
    short = ("The cat", "--max-new-tokens", "4", "--drafter", "model", "--record", "a.eab")
    value = json.loads(installed.run("run", *short, "--json", "-"))
    assert sum(sample["weight"] for sample in value["samples"]) == pytest.approx(1)
    assert "The cat" in installed.run("replay", "a.eab")
    installed.run("export", "a.eab", "--html", "a.html")
    assert (installed.work / "a.html").stat().st_size > 20_000
    installed.assert_checkout_untouched()


def test_the_library_works_without_the_extras(lean: Installation) -> None:
    if not (EMBEDDED_FOLDER / "model.safetensors").is_file():
        pytest.skip("the embedded model is not in assets/model")
    lean.output("-c", LIBRARY)
    assert "The cat" in lean.run("replay", "a.eab")
    lean.run("compare-caches", "The cat", "--max-new-tokens", "2", "--repeats", "1")
    refused = subprocess.run(
        [str(lean.eab), "app"], capture_output=True, text=True, cwd=lean.work, env=lean.environment
    )
    assert refused.returncode == 1
    assert 'pip install "eab-explorer[app]"' in refused.stderr
    assert "Traceback" not in refused.stderr
    lean.assert_checkout_untouched()


def test_the_installed_notebook_widget_finds_its_code(installed: Installation) -> None:
    pytest.importorskip("anywidget")
    recorded = installed.output(
        "-c",
        "import eab, sys; from eab.run import record; from eab.assets import ASSETS;"
        "widget = eab.show(record.load(ASSETS / 'runs' / 'coin.eab'));"
        "assert len(widget.code._esm) > 20_000 and len(widget._css) > 5_000;"
        "print(eab.__file__, ASSETS, sep='\\n')",
    )
    for path in recorded.splitlines():
        assert Path(path).is_relative_to(installed.home)
    installed.assert_checkout_untouched()


def test_the_page_opens_with_its_own_settings_from_any_folder(installed: Installation) -> None:
    port = free_port()
    (installed.work / "app").mkdir()  # another project's, not to be imported
    (installed.work / "app" / "__init__.py").write_text("raise ImportError", encoding="utf-8")
    with serving_explorer(
        [str(installed.eab), "app", "--port", str(port)],
        port,
        cwd=installed.work,
        env=installed.environment,
    ) as (address, process):
        assert Path(psutil.Process(process).cwd()) == installed.work.resolve()
        session = RawSession(address)
        assert session.board["paths"], "no bundled run is on the board"
        assert session.config.gather_usage_stats is False  # from .streamlit/config.toml
        if (EMBEDDED_FOLDER / "model.safetensors").is_file():
            session.press("run_button")
            session.until(
                lambda: (
                    session.board["run"] == f"live-{session.run_id}"
                    and bool(session.board["ended"])
                )
            )
        session.close()
    installed.assert_checkout_untouched()


def container_lines(word: str) -> list[str]:
    """The arguments of a Dockerfile instruction in JSON form."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    [line] = [line for line in text.splitlines() if re.match(rf"{word}.*\[", line)]
    return list(json.loads(line[line.index("[") :]))


def test_the_container_command_serves_is_healthy_and_ends_on_sigterm(
    installed: Installation, tmp_path: Path
) -> None:
    port = free_port()

    def here(command: list[str]) -> list[str]:
        return [word.replace("/opt/eab/bin", str(installed.python.parent)) for word in command]

    written = {"EAB_STORE": "runs.sqlite", "HF_HOME": "hub"}
    files = {name: str(tmp_path / file) for name, file in written.items()}
    environment = installed.environment | files | {"EAB_PORT": str(port)}
    command = here([*container_lines("ENTRYPOINT"), *container_lines("CMD")])
    with serving_explorer(command, port, cwd=installed.work, env=environment) as (address, process):
        check(here(container_lines("HEALTHCHECK")), env=environment)
        session = RawSession(address)
        session.press("run_button")
        session.until(lambda: session.run_id != "")
        server = psutil.Process(process)
        server.terminate()
        server.wait(timeout=120)
    installed.assert_checkout_untouched()
