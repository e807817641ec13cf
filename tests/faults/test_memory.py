"""The machine really runs out of memory in the middle of a run."""

import json
import os
import subprocess
import sys

import pytest
from places import ROOT


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
def test_a_run_that_uses_up_the_memory_fails_with_a_message_and_the_next_one_works() -> None:
    process = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "support" / "short_of_memory.py")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not process.returncode, process.stderr
    before, large, after = json.loads(process.stdout)
    assert before == after == ["finished", "", 8]
    reason, why, steps = large
    assert reason == "failed"
    assert why.startswith("this machine has too little memory for the run. Its tokens")
    assert 0 < steps < 200
    assert not process.stderr
