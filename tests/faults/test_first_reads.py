"""Threads that read the same kinds of events for the first time in a process, all at once."""

import subprocess
import sys
from pathlib import Path

from eab.lessons import bundled_runs
from eab.run.record.run_file import encode

# Each visitor's tab reads in its own thread, and a server that has just started knows no type yet.
SCRIPT = """
import sys, threading
from eab.run.record.run_file import decode

sys.setswitchinterval(1e-6)
lines, errors, start = open(sys.argv[1], "rb").read().splitlines(), [], threading.Barrier(8)

def read():
    start.wait()
    try:
        for line in lines:
            decode(line)
    except Exception as error:
        errors.append(error)

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(bool(errors))
"""


def test_threads_can_read_a_run_for_the_first_time_simultaneously(tmp_path: Path) -> None:
    run = bundled_runs.events_of(bundled_runs.named("coin.eab"))
    file = tmp_path / "events.json"
    file.write_bytes(b"\n".join(map(encode, run)))
    for _ in range(3):  # without a lock, nine of ten processes crash
        subprocess.run([sys.executable, "-c", SCRIPT, str(file)], check=True)
