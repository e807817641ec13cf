"""Ctrl+C keeps what a command has computed so far."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from command_line import eab_here, python

from eab.engine import scheduler
from eab.run import fold, record

NATS = ("--threshold", "0.65")  # no probe comes first
KILLED = """
import os, signal
from eab.cli import commands
from eab.engine import scheduler

whole_pass = scheduler.run_pass

def pass_or_end(model, parts):
    if parts[0].generation.step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole_pass(model, parts)

scheduler.run_pass = pass_or_end
commands.main()
"""


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl+C is pressed in the sixth step of each run."""
    whole_pass = scheduler.run_pass

    def pass_or_ctrl_c(model: Any, parts: Any) -> None:
        if parts[0].generation.step == 5:
            signal.raise_signal(signal.SIGINT)
        whole_pass(model, parts)

    monkeypatch.setattr(scheduler, "run_pass", pass_or_ctrl_c)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_what_was_generated(tmp_path: Path) -> None:
    file = tmp_path / "stopped.eab"
    assert eab_here("run", "Once upon a time", "--record", str(file), *NATS).returncode == 130
    run = fold(record.load(file))
    assert run.ended.reason == "stopped"
    assert len(run.steps) == 5  # the pass of the sixth is left
    assert run.samples


@pytest.mark.slow
def test_a_killed_process_leaves_a_file_with_its_steps(tmp_path: Path) -> None:
    file = tmp_path / "run.eab"
    out = python("-c", KILLED, "run", "Once upon a time", "--record", str(file), *NATS)
    assert out.returncode == -signal.SIGKILL, out.stderr
    assert not file.exists()
    run = fold(record.load(tmp_path / "run.part.eab"))
    assert run.ended is None
    assert len(run.steps) == 5
    assert run.samples
    shown = eab_here("replay", str(tmp_path / "run.part.eab")).stdout
    assert shown.endswith("Unfinished.\nThe file breaks off after 5 steps.\n")


def test_a_run_that_does_not_start_leaves_no_file(tmp_path: Path) -> None:
    assert eab_here("run", "", "--record", str(tmp_path / "run.eab")).returncode == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_comparison_and_writes_its_results_so_far(tmp_path: Path) -> None:
    file = tmp_path / "stopped.json"
    out = eab_here("compare-caches", "Once upon a time", "--json", str(file), *NATS)
    assert out.returncode == 130
    value = json.loads(file.read_text())
    assert [(cost["variant"], cost["ended"]) for cost in value["variants"]] == [("tree", "stopped")]
    assert value["agreed"] is False
