"""The release, built as it is released and installed into an environment of its own.

The environment borrows the dependencies of the one that runs the tests, but sees neither the
checkout nor its editable install. A hook records every Python file access below the checkout. It
can also have only the packages that the wheel requires without an extra.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from places import ROOT

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


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel in this folder: the sdist from what the Dockerfile copies and nothing
    else, the wheel from the sdist.
    """
    source = folder / "source"
    source.mkdir()
    for name in container_sources():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)
        else:
            shutil.copy(ROOT / name, source)
    hatchling = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "--target"]
    check([*hatchling, "sdist"], cwd=source)
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    check([*hatchling, "wheel"], cwd=folder / sdist.name.removesuffix(".tar.gz"))
    [wheel] = folder.glob("*.whl")
    return sdist, wheel


def container_sources() -> list[str]:
    """The files and folders of the checkout that the Dockerfile copies."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return [
        name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.M) for name in line.split()
    ]


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
        check([sys.executable, "-m", "venv", "--without-pip", str(self.home)])
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install"]
        check([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)])
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
        return check([str(self.python), *arguments], cwd=self.work, env=self.environment)

    def run(self, *arguments: str) -> str:
        """Return what `eab` prints with these arguments."""
        return check([str(self.eab), *arguments], cwd=self.work, env=self.environment)

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


def check(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)
