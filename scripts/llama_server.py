"""A real llama.cpp server with the embedded model, in its own process.

    python scripts/llama_server.py embedded.gguf 8080

The server comes from the package xllamacpp. It keeps K and V in float32, as the engine does, unless
`--own-choices` leaves the choice to llama.cpp.
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for scripts

from scripts.servers import free_port, serving

SLOTS: Final = 32  # texts computed at the same time
CONTEXT: Final = 512  # tokens per text


@contextmanager
def llama_server(
    model: Path, key: str = "", slots: int = SLOTS, threads: int = 1, as_engine: bool = True
) -> Iterator[tuple[str, int]]:
    """Run the server; yield address and process id. `as_engine`: K, V and attention in float32."""
    port = free_port()
    command = [sys.executable, str(Path(__file__)), str(model), str(port), *([key] if key else [])]
    command += [f"--slots={slots}", f"--threads={threads}"]
    command += [] if as_engine else ["--own-choices"]
    with serving(command, port, "health") as running:
        yield running


def serve(model: Path, port: int, key: str, slots: int, threads: int, as_engine: bool) -> None:
    """Serve until the process is killed; see `llama_server`."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {model.stem}
    params.port = port
    params.n_parallel, params.n_ctx = slots, slots * CONTEXT
    if as_engine:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_ram_mib = 0
    params.fit_params = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.api_keys = [key] if key else []
    server = xllamacpp.Server(params)
    print(f"llama.cpp serves {model} at {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("key", nargs="?", default="")
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--own-choices", action="store_true", help="K, V and attention")
    given = parser.parse_args()
    own = (given.slots, given.threads, not given.own_choices)
    serve(given.model, given.port, given.key, *own)
