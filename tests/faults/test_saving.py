"""Saved runs survive whatever happens to the process or the disk that saves them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from saving_process import found

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="no fork there"), pytest.mark.slow]
OWN_MOUNTS = ("unshare", "--map-root-user", "--mount")  # only the process itself sees its mounts


@pytest.fixture
def own_disk() -> tuple[str, ...]:
    """A command prefix with which a process can mount disks of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    mounts = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    if subprocess.run(mounts, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    return OWN_MOUNTS


def test_a_hundred_processes_killed_while_they_save_lose_nothing(tmp_path: Path) -> None:
    seen = found("killed", tmp_path, 100)
    assert seen["lost"] == []
    assert seen["told"] >= 100
    assert seen["torn"] > 0, "no process was killed in the middle of a transaction"


def test_nothing_is_lost_where_files_cannot_grow(tmp_path: Path) -> None:
    seen = found("without_room", tmp_path)
    assert "cannot be written" in seen.pop("why")
    assert seen.pop("told") > 1
    assert seen == {"lost": [], "again": ""}


def test_a_read_only_disk_is_reported_and_its_runs_can_be_opened(
    tmp_path: Path, own_disk: tuple[str, ...]
) -> None:
    seen = found("on_a_read_only_disk", tmp_path, around=own_disk)
    for why in seen.pop("why"):
        assert "cannot be written: " in why
        assert "Set EAB_STORE" in why
    assert seen == {"lost": [], "none": [], "again": ""}
