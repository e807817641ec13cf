"""A real chat model, SmolLM2-135M-Instruct in a 4-bit GGUF file: a tree of answers against
independent answers by the engine, transformers and llama.cpp.

    python benchmarks/chat_model.py [--paths 8 16] [--quick] [--json FILE] [--table FILE]

The model decides where each text ends, so the tables show seconds per job and per 1,000 tokens.

A short question and a text to summarize, through the chat template, with at most 8 and 16 texts of
48 tokens. The tree uses the page's starting settings, except for a lower minimum weight. The engine,
transformers and llama.cpp sample as many independent texts with the same temperature and top-p.
transformers uses the same weights in float32; llama.cpp (package xllamacpp, in its own process with
as many threads) uses the same file and a float32 copy of it. All take turns, after a short warm-up
job each. Figures are medians with quartiles; ratios are ratios of medians.
"""

import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from competitors import Competitor, Engine, Generate, Job, Measured, Sampling
from engine import Pair, measure, timing_of
from published import command_line, markdown_table, mib, publish, spread, where
from rich.console import Console
from shapes import same_weights
from write_gguf import in_float32

from eab.config import BranchingConfig
from eab.engine.branching.presets import START
from eab.engine.build import PROBED
from eab.engine.loop import event_stream
from eab.engine.models.gguf import checkpoint
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.machine import CPU
from eab.engine.models.packaged import SMOLLM2
from eab.engine.models.sources import find_source
from eab.engine.models.weights import store_weights
from eab.engine.remote.connection import Address, Connection
from eab.engine.request import Request
from eab.run import fold
from eab.run.events import Event, RunStarted
from eab.timing import MIN_REPEATS, Timing, ratio_words
from eab.weight_formats import AS_LOADED, AUTO, PLAIN
from scripts.llama_server import llama_server

_LIGHTHOUSE: Final = """\
The lighthouse at Marren Point had been dark for eleven years when the council voted to sell it. \
Nobody in the village wanted it to become a hotel, but nobody could say what else it should be. The \
schoolteacher, Ida Brandt, suggested a weather station run by children. At first people laughed. \
She brought a barometer to the next meeting, passed it around, and explained that the nearest \
official station was forty kilometres inland, behind the hills, where the wind was never the same. \
Fishermen knew this well: twice that winter the forecast had promised a calm sea, and twice the boats \
had come back with broken masts. So the council gave her one year. The pupils painted the tower, \
carried instruments up its hundred and twelve steps, and wrote down temperature, pressure and wind at \
six in the morning and six in the evening. They made mistakes, argued about them, and learned to \
check each other's numbers. In spring the harbour master began to read their report before he let the \
fleet out. In summer the national service asked whether it could use the figures as well. By autumn \
there was no more talk of selling. The lamp was lit again on the first of October, not because ships \
needed it, but because the children who had the evening watch were tired of climbing the stairs in \
the dark."""
PROMPTS: Final = {
    "the question": "What should I cook tonight with eggs and rice?",
    "the text": f"Summarize this text in one sentence.\n\n{_LIGHTHOUSE}",
}
PATHS: Final = (8, 16)
NEW_TOKENS, QUICK_TOKENS = 48, 12
# The page's starting settings, with a lower minimum weight that lets more paths fork
TREE: Final = replace(START, min_fork_weight=0.05)
# The same sampling without forks. A threshold in nats needs no probe.
INDEPENDENT: Final = replace(TREE, policy="independent", threshold_unit="nats")
REQUEST_SECONDS: Final = 600.0  # timeout
AS_ENGINE: Final = "llama.cpp, the file"
OWN_CHOICES: Final = "llama.cpp, the file, its own choices for K, V and attention"
FLOAT32: Final = "llama.cpp, float32"
console = Console(stderr=True)


def load_pair() -> Pair:
    """Load the weights of the file in float32; the engine stores them in the fastest layout."""
    name = SMOLLM2.name
    tokenizer, plain = checkpoint.load(name, find_source(name), torch.float32, CPU)
    twin = same_weights(plain)
    stored = store_weights(twin, AS_LOADED, AUTO)
    return Pair(name, plain, HuggingFaceModel(twin, tokenizer, name, stored))


class Chat(Engine):
    """Runs of the engine from the prompt text, with a new seed for each job. The probe that sets
    the threshold is part of the job; `probe_seconds` records how long it took.
    """

    def __init__(
        self, name: str, model: HuggingFaceModel, job: Job, prompt: str, settings: BranchingConfig
    ) -> None:
        super().__init__(model, job)
        self.name = f"engine, {name}"
        self._prompt = prompt
        self._config = replace(settings, max_paths=job.paths, max_new_tokens=job.new_tokens)
        self._seen: list[Event] = []
        self.probe_seconds: list[float] = []

    def run(self) -> None:
        super().run()
        run = fold(self._seen)
        run.raise_if_failed()
        self.measured.texts.append([sum(1 for _ in run.tokens(leaf.id)) for leaf in run.leaves()])
        self.measured.made.append(sum(len(path.tokens) for path in run.paths))

    def _events(self) -> Iterator[Event]:
        self._seen = []
        config = replace(self._config, seed=len(self.measured.seconds))
        PROBED.clear()  # so that the job includes the probe
        start = time.perf_counter()
        for event in event_stream(self._model, Request(self._prompt, config)):
            if isinstance(event, RunStarted):
                self.probe_seconds.append(time.perf_counter() - start)
            self._seen.append(event)
            yield event


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
                found[name] = Connection(Address(url, ""), REQUEST_SECONDS)
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


def field_of(
    pair: Pair, job: Job, prompt: str, llama: Mapping[str, Connection]
) -> list[Competitor]:
    found: list[Competitor] = [
        Chat("tree", pair.ours, job, prompt, TREE),
        Chat("independent texts", pair.ours, job, prompt, INDEPENDENT),
        Generate(pair.plain, job, job.paths),
        Generate(pair.plain, job, job.paths, shared_prompt=True),
    ]
    if pair.ours.stored.layout != PLAIN:
        stored = Generate(pair.ours._model, job, job.paths, shared_prompt=True)
        stored.name += f", weights stored {pair.ours.stored.layout}"
        found.append(stored)
    found += [LlamaCpp(name, server, job) for name, server in llama.items()]
    if AS_ENGINE in llama:
        found.append(LlamaCpp(AS_ENGINE, llama[AS_ENGINE], job, one_request=True))
    return found


def figures_of(competitor: Competitor) -> dict[str, Timing]:
    """The figures to compare with the tree's: seconds per job, per 1,000 generated tokens, and per
    1,000 tokens of text. In the last, a token counts once for every text that shares it.
    """
    measured = competitor.measured

    def per_thousand(tokens: Sequence[int]) -> Timing:
        jobs = zip(measured.seconds, tokens, strict=True)
        return Timing(tuple(1000 * seconds / count for seconds, count in jobs))

    return {
        "seconds": timing_of(competitor),
        "seconds_per_1000_made": per_thousand(measured.made),
        "seconds_per_1000_of_texts": per_thousand([*map(sum, measured.texts)]),
    }


def table(competitors: Sequence[Competitor]) -> str:
    heads = ["", "seconds (quartiles)", "as long as the tree", "texts", "new tokens"]
    heads += ["seconds per 1,000 new tokens", "as long", "per 1,000 tokens of the texts", "as long"]
    heads += ["KV bytes held", "peak"]
    rows, tree = [], figures_of(competitors[0])
    for competitor in competitors:
        measured, cells = competitor.measured, []
        for name, timing in figures_of(competitor).items():
            cells.append(spread(timing))
            cells.append("" if competitor is competitors[0] else ratio_words(timing, tree[name]))
        counts = [f"{median(map(len, measured.texts)):g}", f"{median(measured.made):,g}"]
        sizes = [mib(measured.kv_bytes), mib(measured.peak_bytes)]
        rows.append([competitor.name, *cells[:2], *counts, *cells[2:], *sizes])
    return markdown_table(heads, rows)


def ratios_of(competitors: Sequence[Competitor], job: str) -> dict[str, float]:
    tree = figures_of(competitors[0])
    return {
        f"{job}: {way.name}, {name} over the tree": timing.median / tree[name].median
        for way in competitors[1:]
        for name, timing in figures_of(way).items()
    }


def measure_trees(
    threads: int, rounds: int, new_tokens: int, all_paths: Sequence[int]
) -> tuple[str, dict[str, Any]]:
    """Measure all jobs. Returns the text and the figures as data."""
    torch.manual_seed(0)  # for `generate`
    pair, texts = load_pair(), []
    result: dict[str, Any] = {"seconds": {}, "ratios": {}}
    sampling = Sampling(TREE.temperature, TREE.top_p, pair.ours.stop_ids)
    with servers(SMOLLM2.file, max(all_paths), threads) as llama:
        if not llama:
            console.print("left out: llama.cpp, because xllamacpp is not installed")
        for (name, prompt), paths in itertools.product(PROMPTS.items(), all_paths):
            tokens = pair.ours.encode(prompt, BranchingConfig(chat=True))
            job = Job(tokens, paths, new_tokens, sampling)
            short = replace(job, new_tokens=6)  # enough to get past the slow first passes
            measure(field_of(pair, short, prompt, llama), 1)
            competitors = field_of(pair, job, prompt, llama)
            measure(competitors, rounds)
            texts.append(_section(name, job, pair, competitors))
            words = f"{name}, {job}"
            result["seconds"][words] = {way.name: way.measured.seconds for way in competitors}
            result["ratios"] |= ratios_of(competitors, words)
    return "\n".join(texts), result


def _section(name: str, job: Job, pair: Pair, competitors: Sequence[Competitor]) -> str:
    tree = competitors[0]
    assert isinstance(tree, Chat)
    return (
        f"With {name}: {job} at most, the engine's weights stored {pair.ours.stored.layout}.\n\n"
        f"{table(competitors)}\n"
        f"Of the tree's seconds, {median(tree.probe_seconds):.2f} are the greedy text that its "
        f"threshold comes from.\n"
    )


def main() -> int:
    parser = command_line(__doc__, f"one round of {PATHS[0]} texts of {QUICK_TOKENS} tokens")
    paths = {"type": int, "nargs": "+", "default": PATHS}
    parser.add_argument("--paths", help="most texts of a job; several jobs", **paths)
    options = parser.parse_args()
    if not SMOLLM2.is_here:
        print(
            f"{SMOLLM2.title} is not here; get it: eab models get {SMOLLM2.name}", file=sys.stderr
        )
        return 1
    torch.set_num_threads(options.threads)
    size = (1, QUICK_TOKENS, PATHS[:1])
    size = size if options.quick else (MIN_REPEATS, NEW_TOKENS, options.paths)
    text, result = measure_trees(options.threads, *size)
    peer = f"xllamacpp {version('xllamacpp')}" if find_spec("xllamacpp") else "no xllamacpp"
    publish(options, where(f"{peer}, {SMOLLM2.file.name}"), text, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
