"""A process that saves runs while it may be killed, or while the disk is full or read-only.

`found` starts it and reads its output. It imports little and forks further processes from itself,
so that a hundred of them take only seconds.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from places import ROOT

from app.server.store import RUNS, NamedStore, RunStore
from eab import record
from eab.errors import StoreError

FILE: Final = ROOT / "assets" / "batching" / "request-3.eab"  # 19 kB
EVENTS: Final = record.load(FILE)
DISK: Final = 300 * 2**10  # bytes


def found(what: str, folder: Path, times: int = 0, around: Sequence[str] = ()) -> dict[str, Any]:
    """The results of a process that saves in this folder.

    Args:
        what: The name of the function of this file to call.
        folder: The folder of the store.
        times: The number of repetitions.
        around: A command that starts the process.
    """
    command = [*around, sys.executable, __file__, what, str(folder / "runs.sqlite"), str(times)]
    process = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not process.returncode, process.stderr
    return dict(json.loads(process.stdout))


def killed(store: RunStore, times: int) -> dict[str, Any]:
    """Kill this number of processes while they save, each at a random moment, and every second one
    during a transaction.
    """
    store = NamedStore(store.path, replace(RUNS, most=2**40, most_bytes=2**40))
    moments, saved, torn = random.Random(0), list[str](), 0
    journal = store.path.with_name(f"{store.path.name}-journal")
    for turn in range(times):
        with _saving(store) as (child, told):
            saved.append(next(told))
            time.sleep(moments.uniform(0, 0.02))
            while turn % 2 and not journal.exists():
                pass  # transactions are so short that a sleep would miss them
            os.kill(child, signal.SIGKILL)
            saved += told
        torn += journal.exists()
    return {"told": len(saved), "lost": _lost(store, saved), "torn": torn}


def without_room(store: RunStore, _: int) -> dict[str, Any]:
    """Save up to the process's limit on file sizes, which needs no separate disk."""
    import resource  # missing on Windows

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, resource.RLIM_INFINITY))
    found = _until_full(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return found | {"again": _refused(lambda: store.save("again", EVENTS))}


def on_a_read_only_disk(store: RunStore, _: int) -> dict[str, Any]:
    """Read and write on a read-only disk, and write again once it is writable."""
    _mount(store, f"size={4 * DISK}")
    other = NamedStore(store.path.with_name("none.sqlite"), RUNS)
    saved = [store.save("one", EVENTS).id for _ in range(3)]
    _mount(store, "remount,ro")
    acts: list[Callable[[], object]] = [
        lambda: store.save("again", EVENTS),
        lambda: store.delete(saved[0]),
        lambda: store.rename(saved[0], "two"),
        lambda: other.save("first", EVENTS),
    ]
    found = {"lost": _lost(store, saved), "none": other.all(), "why": list(map(_refused, acts))}
    _mount(store, "remount,rw")
    return found | {"again": _refused(lambda: store.save("again", EVENTS))}


def _until_full(store: RunStore) -> dict[str, Any]:
    """Save until the store refuses; return the number saved, the runs lost, and the reason."""
    saved: list[str] = []
    why = ""
    while not why:
        why = _refused(lambda: saved.append(store.save("one", EVENTS).id))
    return {"told": len(saved), "lost": _lost(store, saved), "why": why}


def _refused(act: Callable[[], object]) -> str:
    """The reason why the store refuses this action; empty if it succeeds."""
    try:
        act()
    except StoreError as error:
        return str(error)
    return ""


def _lost(store: RunStore, saved: list[str]) -> list[str]:
    """The saved runs among these that are missing or damaged."""
    kept = {run.id for run in store.all()}
    return [one for one in saved if one not in kept or store.load(one)[1] != EVENTS]


@contextmanager
def _saving(store: RunStore) -> Iterator[tuple[int, Iterator[str]]]:
    """Fork a process that saves until it is killed; yields its id and the ids that it reports."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os.close(reading)
            while True:
                os.write(writing, f"{store.save('one', EVENTS).id}\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        yield child, (line.strip() for line in told)
    os.waitpid(child, 0)


def _mount(store: RunStore, options: str) -> None:
    """Mount a disk as the store's folder; this needs a separate mount namespace."""
    folder = str(store.path.parent)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


if __name__ == "__main__":
    what, path, *more = sys.argv[1:]
    print(json.dumps(globals()[what](NamedStore(Path(path), RUNS), int(*more))))
