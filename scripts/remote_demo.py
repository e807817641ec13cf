"""The explorer on a real llama.cpp server with the embedded model, all on this machine.

    python scripts/remote_demo.py          # opens the page; Ctrl-C ends both
    python scripts/remote_demo.py --run    # prints one run

Needs the packages xllamacpp and gguf (the extra `dev`).
"""

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from eab.remote import operator
from scripts.llama_server import llama_server
from scripts.write_gguf import write_gguf

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
    """Start the server, then the explorer or a run on it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="print one run, without the page")
    command = RUN if parser.parse_args().run else ("app",)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "embedded.gguf"
        write_gguf(file)
        with llama_server(file) as (url, _):
            print(f"A llama.cpp server with the embedded model is at {url}.", flush=True)
            if command == ("app",):
                print("Choose Server as the model, and a top-k from 1 to 100.", flush=True)
            environment = os.environ | {operator.ADDRESS: url}
            with suppress(KeyboardInterrupt):
                done = subprocess.run(
                    [sys.executable, "-m", "eab", *command], env=environment, check=False
                )
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
