"""Memory of the machine, and of a container on it."""

from pathlib import Path

import psutil
import pytest

from eab.engine.models import machine

MIB = 2**20


def limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str) -> None:
    """Make a control group report this limit."""
    file = tmp_path / "memory.max"
    file.write_text(words)
    monkeypatch.setattr(machine, "_LIMITS", (str(tmp_path / "none"), str(file)))


@pytest.mark.parametrize("words", ["max\n", "9223372036854771712\n"])
def test_without_a_limit_the_memory_is_that_of_the_machine(monkeypatch, tmp_path, words):
    limited(monkeypatch, tmp_path, words)
    assert machine.total_memory() == psutil.virtual_memory().total
    assert 0 < machine.free_memory() < machine.total_memory()


def test_a_container_has_what_its_limit_leaves_free(monkeypatch, tmp_path):
    held = psutil.Process().memory_info().rss
    limited(monkeypatch, tmp_path, f"{held + 64 * MIB}\n")
    assert machine.total_memory() == held + 64 * MIB
    assert machine.free_memory() == pytest.approx(64 * MIB, abs=16 * MIB)
    limited(monkeypatch, tmp_path, f"{held // 2}\n")
    assert machine.free_memory() == 0
