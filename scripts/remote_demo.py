"""The explorer with the embedded model on a real llama.cpp server, all on this machine.

    python scripts/remote_demo.py          # opens the page; Ctrl-C ends both
    python scripts/remote_demo.py --run    # prints one run

Needs the packages xllamacpp and gguf (the extra `dev`).
"""

import argparse
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from eab.remote import operator
from scripts.llama_server import llama_server
from scripts.write_gguf import write_embedded

RUN = (
    "run",
    "Once upon a time",
    "--model",
    "llama.cpp:embedded",
    "--top-k",
    "20",
    "--max-new-tokens",
    "24",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="print one run, without the page")
    parser.add_argument("--port", type=int, default=8501, help="port of the page")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends both processes
    with suppress(KeyboardInterrupt), TemporaryDirectory() as folder:
        file = Path(folder) / "embedded.gguf"
        write_embedded(file)
        with llama_server(file) as (url, _):
            print(f"A llama.cpp server with the embedded model is at {url}.", flush=True)
            if not options.run:
                print("Choose Server as the model, and a top-k from 1 to 100.", flush=True)
            command = RUN if options.run else ("app", f"--port={options.port}")
            return wait_for([sys.executable, "-m", "eab", *command], url)
    return 0


def wait_for(command: list[str], url: str) -> int:
    """Run a command with this server, and terminate it on KeyboardInterrupt."""
    with subprocess.Popen(command, env=os.environ | {operator.ADDRESS: url}) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()
            raise


if __name__ == "__main__":
    sys.exit(main())
