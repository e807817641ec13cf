"""llama.cpp as a competitor: samples of one prompt from its server in a separate process.

The server comes from the package xllamacpp (scripts/llama_server.py).
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from competitors import Job, Measured

from eab.remote.connection import Connection
from eab.remote.operator import Address
from scripts.llama_server import llama_server
from scripts.write_gguf import in_float32

SECONDS: Final = 600.0  # timeout of a request
AS_ENGINE: Final = "llama.cpp, the file"
OWN_CHOICES: Final = "llama.cpp, the file, its own choices for K, V and attention"
FLOAT32: Final = "llama.cpp, float32"


@contextmanager
def servers(file: Path, slots: int, threads: int) -> Iterator[Mapping[str, Connection]]:
    """Serve each way to hold weights, K, V. Yields connections by name; empty without xllamacpp."""
    with ExitStack() as stack:
        found: dict[str, Connection] = {}
        if find_spec("xllamacpp") is not None:
            folder = stack.enter_context(TemporaryDirectory())
            exact = in_float32(file, Path(folder) / "float32.gguf")
            ways = {AS_ENGINE: (file, True), OWN_CHOICES: (file, False), FLOAT32: (exact, True)}
            for name, (model, as_engine) in ways.items():
                server = llama_server(model, slots=slots, threads=threads, as_engine=as_engine)
                url, _ = stack.enter_context(server)
                found[name] = Connection(Address(url, ""), SECONDS)
                stack.callback(found[name].close)
        yield found


class LlamaCpp:
    """Samples from a llama.cpp server, which prefills the prompt again in each job. With
    `one_request`, one request asks for all samples, which then share the prefill. Otherwise each
    sample has its own request, and all requests are sent simultaneously.
    """

    def __init__(self, name: str, server: Connection, job: Job, one_request: bool = False) -> None:
        self.name = name + (", one request" if one_request else "")
        self.measured = Measured()
        self._server, self._job, self._one_request = server, job, one_request
        self._seeds = itertools.count(1)

    def run(self) -> None:
        start = time.perf_counter()
        if self._one_request:
            answers = self._ask(next(self._seeds), self._job.paths)
        else:
            seeds = list(itertools.islice(self._seeds, self._job.paths))
            with ThreadPoolExecutor(self._job.paths) as pool:
                answers = list(pool.map(self._ask, seeds))
        self.measured.seconds.append(time.perf_counter() - start)
        self.measured.note_samples([len(answer["tokens"]) for answer in answers])

    def _ask(self, seed: int, samples: int = 1) -> Any:
        sampling = self._job.sampling
        assert sampling is not None
        body = {
            "prompt": list(self._job.prompt),
            "n_predict": self._job.new_tokens,
            "n_cmpl": samples,
            "seed": seed,
            "samplers": ["temperature", "top_p"],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "cache_prompt": False,
            "return_tokens": True,
        }
        return self._server.post("/completion", body)
