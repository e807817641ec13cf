"""Ctrl+C keeps what a command has computed so far."""

import json
import signal
from pathlib import Path

import pytest
from command_line import eab_here, python

from eab import record
from eab.run import fold

pytestmark = pytest.mark.slow

INTERRUPTED = """
import os, signal, sys
from eab.cli import commands
from eab.engine import scheduler

whole_pass = scheduler.run_pass

def pass_then_ctrl_c(model, parts):
    if parts[0].generation.step == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return whole_pass(model, parts)

scheduler.run_pass = pass_then_ctrl_c
commands.main()
"""


def interrupted(*arguments: str, by: str = "SIGINT", code: int = 130) -> None:
    nats = ("--threshold", "0.65")  # no probe comes first
    out = python("-c", INTERRUPTED.replace("SIGINT", by), *arguments, *nats)
    assert out.returncode == code, out.stderr


def test_ctrl_c_keeps_what_was_generated(tmp_path: Path) -> None:
    file = tmp_path / "stopped.eab"
    interrupted("run", "Once upon a time", "--record", str(file))
    run = fold(record.load(file))
    assert run.ended.reason == "stopped"
    assert len(run.steps) == 5  # the pass of the sixth is left
    assert run.samples


def test_a_killed_process_leaves_a_file_with_its_steps(tmp_path: Path) -> None:
    file, killed = tmp_path / "run.eab", {"by": "SIGKILL", "code": -signal.SIGKILL}
    interrupted("run", "Once upon a time", "--record", str(file), **killed)
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


def test_ctrl_c_ends_a_comparison_and_writes_its_results_so_far(tmp_path: Path) -> None:
    file = tmp_path / "stopped.json"
    interrupted("compare-caches", "Once upon a time", "--json", str(file))
    value = json.loads(file.read_text())
    assert [(cost["variant"], cost["ended"]) for cost in value["variants"]] == [("tree", "stopped")]
    assert value["agreed"] is False
