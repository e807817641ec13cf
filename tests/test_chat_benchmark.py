"""The benchmark of the chat model, started without the model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT


@pytest.mark.slow
def test_without_the_model_the_benchmark_says_how_to_get_it(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "benchmarks/chat_model.py", "--quick"],
        cwd=ROOT,
        env=os.environ | {"EAB_MODELS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 1
    assert "eab models get smollm2" in ended.stderr
    assert ended.stdout == ""
