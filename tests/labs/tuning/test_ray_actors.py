"""Sweeps on a real Ray cluster of two workers on this machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import dying_model
import pandas as pd
import pytest
from dying_model import DyingModel, no_model
from saying_model import saying_model
from waiting import wait_until

from eab.assets import HOME
from eab.config import BranchingConfig
from eab.errors import ModelError, RunsError
from eab.labs.tuning import executors
from eab.labs.tuning.executors import RayActors
from eab.labs.tuning.grid import Cell, Grid
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.report import JOURNAL, TABLE
from eab.labs.tuning.sweeping import sweep, sweep_with

pytestmark = pytest.mark.slow

PROMPTS = [TuningPrompt(name, Question("0", (), {}, "")) for name in ("a", "b")]
GRID = Grid({"entropy_threshold": [0.2, 0.9]}, BranchingConfig(max_new_tokens=4), range(6))
SEEDS = 40  # in the sweep whose driver is killed
HOW = Measurement()
# Workers must be able to import the test models.
PATHS = os.pathsep.join([str(Path(dying_model.__file__).parent), str(HOME), *sys.path])


@pytest.fixture(scope="module")
def cluster() -> Iterator[ModuleType]:
    """The Ray module, connected to a local cluster of two CPUs."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra [ray])")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", PATHS)
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # other tests fill the memory
        for attempt in range(3):  # a loaded machine may need longer than Ray's 30 s to start
            try:
                ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
                break
            except Exception:
                ray.shutdown()
                if attempt == 2:
                    raise
        yield ray
        ray.shutdown()


def by_key(cells: list[Cell]) -> dict[str, Cell]:
    found = {cell.key: replace(cell, seconds=None) for cell in cells}
    assert len(found) == len(cells)
    return found


class TestOnACluster:
    """Tests that need Ray."""

    pytestmark = pytest.mark.ray

    def test_the_cells_equal_those_of_one_process_even_if_a_worker_is_killed(
        self, cluster: ModuleType, tmp_path: Path
    ) -> None:
        with RayActors(partial(DyingModel, 3, tmp_path / "killed"), HOW) as actors:
            steps = [*sweep_with(actors, PROMPTS, GRID, tmp_path / "out", HOW)]
        assert (tmp_path / "killed").exists()
        assert not [failure for step in steps for failure in step.failures]
        here = [cell for step in sweep(saying_model(3), PROMPTS, GRID) for cell in step.cells]
        assert by_key([cell for step in steps for cell in step.cells]) == by_key(here)
        assert cluster.is_initialized(), "a cluster that was there stays"

    def test_a_model_that_no_worker_can_load_is_explained(self, cluster: ModuleType) -> None:
        with pytest.raises(ModelError, match=r"cannot load the model: .*'none' is missing"):
            RayActors(no_model, HOW, workers=1)

    def test_a_cluster_without_room_is_explained(
        self, cluster: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with RayActors(partial(saying_model, 3), HOW, workers=1):
            monkeypatch.setattr(executors, "LOAD_SECONDS", 0.5)
            with pytest.raises(RunsError, match="the Ray workers have not all loaded the model"):
                RayActors(partial(saying_model, 3), HOW, workers=1)


DRIVER = """
import sys
from functools import partial
from pathlib import Path
from saying_model import saying_model
from eab.labs.tuning.prompt_sets import Question
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.executors import RayActors
from eab.labs.tuning.sweeping import sweep_with

prompts = [TuningPrompt("a", Question("0", (), {}, ""))]
folder, address, grid = Path(sys.argv[1]), sys.argv[2], Grid(seeds=range(int(sys.argv[3])))
with RayActors(partial(saying_model, 3), Measurement(), address, workers=1) as actors:
    for step in sweep_with(actors, prompts, grid, folder, Measurement()):
        pass
"""


@pytest.mark.ray
def test_a_sweep_with_a_killed_driver_can_be_resumed(cluster: ModuleType, tmp_path: Path) -> None:
    address = cluster.get_runtime_context().gcs_address
    command = [sys.executable, "-c", DRIVER, str(tmp_path), address, str(SEEDS)]
    environment = os.environ | {"PYTHONPATH": PATHS}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as killed:
        journal = tmp_path / JOURNAL

        def has_cells() -> bool:
            assert killed.poll() is None
            return journal.exists() and journal.read_bytes().count(b"\n") > 1

        wait_until(has_cells, pause=lambda: time.sleep(0.002))
        os.kill(killed.pid, signal.SIGKILL)
    data = journal.read_bytes()
    kept = data[: data.rfind(b"\n") + 1]
    with RayActors(partial(saying_model, 3), HOW, workers=1) as actors:
        first, *others = sweep_with(actors, PROMPTS[:1], Grid(seeds=range(SEEDS)), tmp_path, HOW)
    assert journal.read_bytes().startswith(kept)
    assert first.done == kept.count(b"\n") - 1
    assert (others[-1].done, others[-1].failed) == (SEEDS, 0)
    assert len(pd.read_parquet(tmp_path / TABLE)) == SEEDS
    assert cluster.cluster_resources()["CPU"] == 2, "the cluster outlives its drivers"


def test_without_ray_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunsError, match=r"Ray is not installed\. Install it with: pip install"):
        RayActors(no_model, HOW)


class Unreachable(ModuleType):
    """A fake Ray module without a running cluster; one can be started."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.asked: list[object] = []

    def init(self, address: str, **_: object) -> None:
        self.asked.append(address)
        if address != "local":
            raise ConnectionError("nobody answers")

    def is_initialized(self) -> bool:
        return False


def test_a_cluster_that_cannot_be_reached_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_import_ray", Unreachable)
    with pytest.raises(RunsError, match="no Ray cluster at 'host:1': nobody answers"):
        RayActors(no_model, HOW, "host:1")


def test_auto_starts_a_local_cluster_if_none_is_running() -> None:
    ray = Unreachable()
    executors._connect(ray, executors.AUTO)
    assert ray.asked == ["auto", "local"]
