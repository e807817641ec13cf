"""The wheel, installed into an environment of its own and used outside the checkout.

The environment borrows the dependencies of the one that runs the tests, but sees neither the
checkout nor its editable install. A hook records every Python file access below the checkout. A
second environment has only the packages that the wheel requires without an extra.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, distributions
from pathlib import Path

import psutil
import pytest
from packaging.requirements import Requirement
from places import ROOT
from raw_session import RawSession

from eab.models.sources import EMBEDDED_FOLDER
from scripts.servers import free_port, serving_explorer

pytestmark = [pytest.mark.packaging, pytest.mark.slow]
BUNDLED = ("app", "pages", "assets")
LEFT_OUT = {"assets/picture.webp"}  # the README's picture
MAX_BYTES = 16 * 2**20
SITE_PACKAGES = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
WATCH = """
import os, sys

def _watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if path.startswith({checkout!r}) and not path.startswith({borrowed!r}):
            os.write(_LOG, (path + "\\n").encode())

_LOG = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
sys.addaudithook(_watch)
"""

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


class Installation:
    """A fresh environment with the wheel, and a working folder outside the checkout.

    Args:
        lean: Only the packages that the wheel requires without an extra.
    """

    def __init__(self, wheel: Path, folder: Path, lean: bool = False) -> None:
        self.home = folder / "environment"
        self.work = folder / "work"
        self.work.mkdir()
        self._log = folder / "checkout.log"
        scripts = self.home / ("Scripts" if sys.platform == "win32" else "bin")
        self.python, self.eab = scripts / "python", scripts / "eab"
        _check([sys.executable, "-m", "venv", "--without-pip", str(self.home)])
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install"]
        _check([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)])
        packages = Path(self.output("-c", "import site; print(site.getsitepackages()[0])").strip())
        if lean:
            for place in _required(packages):
                (packages / place.name).symlink_to(place)
        else:
            # The borrowed folders' own .pth files, like the editable install's, have no effect.
            (packages / "borrowed.pth").write_text("\n".join(SITE_PACKAGES), encoding="utf-8")
        watch = WATCH.format(
            checkout=str(ROOT) + os.sep, borrowed=tuple(SITE_PACKAGES), log=str(self._log)
        )
        (packages / "sitecustomize.py").write_text(watch, encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of this process that do not point Python to other modules."""
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        return {name: value for name, value in os.environ.items() if name not in hidden}

    def output(self, *arguments: str) -> str:
        """Return what the environment's Python prints."""
        return _check([str(self.python), *arguments], cwd=self.work, env=self.environment)

    def run(self, *arguments: str) -> str:
        """Return what `eab` prints with these arguments."""
        return _check([str(self.eab), *arguments], cwd=self.work, env=self.environment)

    def assert_checkout_untouched(self) -> None:
        """Assert that nothing below the checkout was opened or listed."""
        assert self._log.read_text(encoding="utf-8") == ""


def _required(packages: Path) -> set[Path]:
    """Files and folders of all packages that the wheel in `packages` requires without an extra."""
    [own] = distributions(path=[str(packages)])
    places, todo, done = set[Path](), [(own, "")], set[tuple[str, str]]()
    while todo:
        package, extra = todo.pop()
        if (package.name, extra) in done:
            continue
        done.add((package.name, extra))
        for needed in map(Requirement, package.requires or []):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                todo += [(distribution(needed.name), each) for each in ("", *needed.extras)]
        if package is not own:
            tops = {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}
            places |= {Path(str(package.locate_file(top))) for top in tops}
    return places


def _check(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from what the Dockerfile copies, and nothing else."""
    folder, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    for name in container_sources():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)
        else:
            shutil.copy(ROOT / name, source)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(folder)]
    _check([sys.executable, "-m", "pip", "wheel", *options, str(source)])
    [built] = folder.glob("*.whl")
    return built


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
        "import eab, sys; from eab import record; from eab.assets import ASSETS;"
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


def container_sources() -> list[str]:
    """The files and folders of the checkout that the Dockerfile copies."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return [
        name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.M) for name in line.split()
    ]


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
        places = {"/opt/eab/bin": str(installed.python.parent), ":8501": f":{port}"}
        for there, place in places.items():
            command = [word.replace(there, place) for word in command]
        return command

    written = {"EAB_STORE": "runs.sqlite", "HF_HOME": "hub"}
    environment = installed.environment | {
        name: str(tmp_path / file) for name, file in written.items()
    }
    command = here([*container_lines("ENTRYPOINT"), *container_lines("CMD")])
    with serving_explorer(
        [*command, f"--port={port}"], port, cwd=installed.work, env=environment
    ) as (
        address,
        process,
    ):
        _check(here(container_lines("HEALTHCHECK")), env=installed.environment)
        session = RawSession(address)
        session.press("run_button")
        session.until(lambda: session.run_id != "")
        server = psutil.Process(process)
        server.terminate()
        server.wait(timeout=120)
    installed.assert_checkout_untouched()
