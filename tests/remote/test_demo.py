"""scripts/remote_demo.py: the page and its llama.cpp server start together and end together."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from places import ROOT

from eab.remote import operator
from scripts.servers import free_port, serving_explorer

pytestmark = pytest.mark.slow

DEMO = [sys.executable, str(ROOT / "scripts" / "remote_demo.py")]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no signal to another process")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_signal_to_the_demo_ends_its_page_and_its_server(ending: signal.Signals) -> None:
    port = free_port()
    with serving_explorer([*DEMO, f"--port={port}"], port) as (_, process):
        demo = psutil.Process(process)
        started = demo.children(recursive=True)
        names = [" ".join(child.cmdline()) for child in started]
        assert any("llama_server.py" in name for name in names)
        assert any("app.serve" in name for name in names)
        os.kill(process, ending)
        _, alive = psutil.wait_procs([demo, *started], timeout=120)
        assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


def test_the_demo_prints_a_run_and_ends() -> None:
    environment = {name: value for name, value in os.environ.items() if name != operator.ADDRESS}
    done = subprocess.run(
        [*DEMO, "--run"], env=environment, capture_output=True, text=True, check=True, timeout=240
    )
    words = " ".join(done.stdout.split())
    assert "A llama.cpp server with the embedded model is at http" in words
    assert "on the server (computed, row by row)" in words
