"""A server is killed, or ends, during a run: the next one has it among the saved runs."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from app.server.store import RUNS, NamedStore, RunStore
from app.server.unfinished import RUN, Unfinished
from eab.run import fold

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals"),
    pytest.mark.slow,
]

SERVER = """
import signal, sys, time
from pathlib import Path
from app.server import unfinished
from eab.engine.job import run_job
from app.server.model_cache import ModelCache
from app.server.store import NamedStore
from app.server.store import RUNS
from app.server.unfinished import RUN
from app.server.worker import Worker
from eab.config import BranchingConfig

unfinished.EVERY = 0.05
worker = Worker(ModelCache())
store = NamedStore(Path(sys.argv[1]), RUNS)
unfinished.Keeper(lambda: worker.remembered, [unfinished.Unfinished(store, RUN)])
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background job
long = BranchingConfig(max_new_tokens=400, max_paths=32, cache="recompute")
run = worker.start(run_job("Once upon a time", long, "embedded"))
try:
    while run.active:
        run.mark_watched()
        time.sleep(0.05)
except KeyboardInterrupt:
    pass
"""


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return NamedStore(tmp_path / "runs.sqlite", RUNS)


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGINT])
def test_the_run_of_a_server_that_ended_is_saved(store: RunStore, signal_: signal.Signals) -> None:
    folder = store.path.with_suffix(".unfinished")
    with subprocess.Popen([sys.executable, "-c", SERVER, str(store.path)]) as server:

        def has_written() -> bool:
            assert server.poll() is None, "it ended before it was killed"
            return any(file.stat().st_size > 3000 for file in folder.glob("*.eab"))

        wait_until(has_written)
        assert Unfinished(store, RUN).recover() == [], "it lives"
        server.send_signal(signal_)
        server.wait(timeout=120)
    names = wait_until(lambda: Unfinished(store, RUN).recover())
    [saved] = store.all()
    run = fold(store.load(saved.id)[1])
    assert run.ended is None
    assert len(run.steps) > 1
    assert names == [f"Once upon a time (breaks off after {len(run.steps)} steps)"]
    assert not [*folder.iterdir()]
