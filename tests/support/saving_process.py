"""A process that saves runs where it may be killed, where others save, or where the disk is full.

`found` starts it and reads what it prints. It imports little, and forks others from itself, so that a hundred of
them take seconds.
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
from typing import Any, Final, NoReturn

from places import ROOT

from app.server import store_file
from app.server.named_store import NamedStore
from app.server.store import RUNS, RunStore
from eab import record
from eab.errors import StoreError

FILE: Final = ROOT / "assets" / "batching" / "request-3.eab"  # 19 kB
EVENTS: Final = record.load(FILE)
DISK: Final = 300 * 2**10  # bytes


def found(what: str, folder: Path, times: int = 0, around: Sequence[str] = ()) -> dict[str, Any]:
    """What such a process finds that saves in this folder.

    Args:
        what: A function of this file.
        folder: Where the store is.
        times: How often.
        around: A command that the process is started by.
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
    """Kill so many processes, each in the middle of its saves: at a random moment, and every second
    one while a transaction is under way.
    """
    store = NamedStore(store.path, replace(RUNS, most=2**40, most_bytes=2**40))
    moments, saved, torn = random.Random(0), list[str](), 0
    journal = store.path.with_name(f"{store.path.name}-journal")
    for turn in range(times):
        with _forked(lambda tell: _save_on(store, tell)) as (child, told):
            saved.append(next(told))
            time.sleep(moments.uniform(0, 0.02))
            while turn % 2 and not journal.exists():
                pass  # so short that a sleep would miss it
            os.kill(child, signal.SIGKILL)
            saved += told
        torn += journal.exists()
    return {"told": len(saved), "lost": _lost(store, saved), "torn": torn}


def beside_each_other(store: RunStore, times: int) -> dict[str, Any]:
    """Let four processes save, rename and delete as often at the same time."""
    store_file._TIMEOUT = 60.0  # type: ignore[misc]  # a busy machine is no failure
    with _writer(store, times) as a, _writer(store, times) as b, _writer(store, times) as c:
        saved = [*_writing_here(store, times), *a, *b, *c]
    return {"told": len(saved), "lost": _lost(store, saved), "names": _names(store)}


def without_room(store: RunStore, _: int) -> dict[str, Any]:
    """Save as long as files may grow: the limit of a process, which needs no disk of its own."""
    import resource  # Windows has none

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, resource.RLIM_INFINITY))
    found = _until_full(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return found | {"again": _refused(lambda: store.save("again", EVENTS))}


def on_a_full_disk(store: RunStore, _: int) -> dict[str, Any]:
    """Save until the disk is full, and once more when there is room again."""
    _mount(store, f"size={DISK}")
    ballast = store.path.with_name("ballast")
    ballast.write_bytes(bytes(DISK // 3))
    found = _until_full(store)
    ballast.unlink()
    return found | {"again": _refused(lambda: store.save("again", EVENTS))}


def on_a_read_only_disk(store: RunStore, _: int) -> dict[str, Any]:
    """Read and write where nothing can be written, and once more where it can."""
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
    """Save until it is refused, and try to delete then."""
    saved: list[str] = []
    why = ""
    while not why:
        why = _refused(lambda: saved.append(store.save("one", EVENTS).id))
    return {"told": len(saved), "lost": _lost(store, saved), "why": why}


def _refused(act: Callable[[], object]) -> str:
    """Why the store does not do this; empty if it does."""
    try:
        act()
    except StoreError as error:
        return str(error)
    return ""


def _lost(store: RunStore, saved: list[str]) -> list[str]:
    """Which of these runs do not come back whole."""
    kept = {run.id for run in store.all()}
    return [one for one in saved if one not in kept or store.load(one)[1] != EVENTS]


def _names(store: RunStore) -> list[str]:
    return sorted({run.name for run in store.all()})


def _save_on(store: RunStore, tell: Callable[[str], None]) -> NoReturn:
    while True:
        tell(store.save("one", EVENTS).id)


def _writer(store: RunStore, times: int) -> Any:
    """A process that writes -> the ids of the runs that it leaves there."""
    return _told(lambda tell: [tell(one) for one in _writing_here(store, times)])


def _writing_here(store: RunStore, times: int) -> Iterator[str]:
    for _ in range(times):
        kept, deleted = (store.save("one", EVENTS).id for _ in range(2))
        store.rename(kept, "two")
        store.delete(deleted)
        yield kept


@contextmanager
def _told(work: Callable[[Callable[[str], None]], object]) -> Iterator[Iterator[str]]:
    with _forked(work) as (_, told):
        yield told


@contextmanager
def _forked(work: Callable[[Callable[[str], None]], object]) -> Iterator[tuple[int, Iterator[str]]]:
    """A process that does this work -> its id, and the lines that it tells."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os.close(reading)
            work(lambda line: (os.write(writing, f"{line}\n".encode()), None)[1])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        yield child, (line.strip() for line in told)
    os.waitpid(child, 0)


def _mount(store: RunStore, options: str) -> None:
    """Mount the folder of the store; only what runs in a name space of its own can."""
    folder = str(store.path.parent)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


if __name__ == "__main__":
    what, path, *more = sys.argv[1:]
    print(json.dumps(globals()[what](NamedStore(Path(path), RUNS), int(*more))))
