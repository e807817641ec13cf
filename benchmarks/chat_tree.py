"""A tree of answers against as many independent answers by the engine, transformers, llama.cpp."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

import torch
from chat_prompts import QUESTION, SUMMARY
from competitors import Competitor, Engine, Generate, Job, Sampling
from engine import measure, timing_of
from llama_cpp_samples import AS_ENGINE, LlamaCpp, servers
from published import markdown_table, mib
from rich.console import Console
from shapes import same_weights
from transformers import PreTrainedModel

from eab.branching.presets import START
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.probe import PROBED
from eab.engine.request import Request
from eab.events import Event, RunStarted
from eab.figures.timings import ratio_words, with_spread
from eab.models.gguf import checkpoint
from eab.models.huggingface import HuggingFaceModel
from eab.models.machine import CPU
from eab.models.packaged import SMOLLM2
from eab.models.sources import find_source
from eab.models.stored_weights import store_weights
from eab.remote.connection import Connection
from eab.run import fold
from eab.timing import Timing
from eab.weight_formats import AS_LOADED, AUTO, PLAIN

PROMPTS: Final = {"the question": QUESTION, "the text": SUMMARY}
PATHS: Final = (8, 16)
NEW_TOKENS: Final = 48
# The page's starting settings, with a lower minimum weight that lets more paths fork
TREE: Final = replace(START, min_fork_weight=0.05)
# The same sampling without forks. A threshold in nats needs no probe.
INDEPENDENT: Final = replace(TREE, policy="independent", threshold_unit="nats")
console = Console(stderr=True)


@dataclass(frozen=True)
class Pair:
    """The chat model as loaded and as the engine uses it, with the same weights."""

    plain: PreTrainedModel
    ours: HuggingFaceModel


def load_pair() -> Pair:
    """Load the weights of the file in float32; the engine stores them in the fastest layout."""
    name = SMOLLM2.name
    tokenizer, plain = checkpoint.load(name, find_source(name), torch.float32, CPU)
    twin = same_weights(plain)
    return Pair(
        plain, HuggingFaceModel(twin, tokenizer, name, store_weights(twin, AS_LOADED, AUTO))
    )


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
        texts = [sum(1 for _ in run.tokens(leaf.id)) for leaf in run.leaves()]
        self.measured.texts.append(texts)
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


def job_of(model: HuggingFaceModel, prompt: str, paths: int, new_tokens: int) -> Job:
    """A job with the prompt in the chat template and the sampling settings of the tree."""
    sampling = Sampling(TREE.temperature, TREE.top_p, model.stop_ids)
    return Job(model.encode(prompt, BranchingConfig(chat=True)), paths, new_tokens, sampling)


def per_thousand(competitor: Competitor, tokens: Sequence[int]) -> Timing:
    """Seconds per 1,000 tokens; `tokens` has the number of tokens of each job."""
    jobs = zip(competitor.measured.seconds, tokens, strict=True)
    return Timing(tuple(1000 * seconds / count for seconds, count in jobs))


def figures_of(competitor: Competitor) -> dict[str, Timing]:
    """The figures to compare with the tree's: seconds per job, per 1,000 generated tokens, and per
    1,000 tokens of text. In the last, a token counts once for every text that shares it.
    """
    measured = competitor.measured
    return {
        "seconds": timing_of(competitor),
        "seconds_per_1000_made": per_thousand(competitor, measured.made),
        "seconds_per_1000_of_texts": per_thousand(competitor, [*map(sum, measured.texts)]),
    }


def table(competitors: Sequence[Competitor]) -> str:
    heads = ["", "seconds (quartiles)", "as long as the tree", "texts", "new tokens"]
    heads += ["seconds per 1,000 new tokens", "as long", "per 1,000 tokens of the texts", "as long"]
    heads += ["KV bytes held", "peak"]
    rows = []
    tree = figures_of(competitors[0])
    for competitor in competitors:
        measured, cells = competitor.measured, []
        for name, timing in figures_of(competitor).items():
            cells.append(with_spread(timing, "{:.2f}".format))
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
    result: dict[str, Any] = {"seconds": {}, "texts": {}, "new_tokens": {}, "ratios": {}}
    with servers(SMOLLM2.file, max(all_paths), threads) as llama:
        if not llama:
            console.print("left out: llama.cpp, because xllamacpp is not installed")
        for name, prompt in PROMPTS.items():
            for paths in all_paths:
                job = job_of(pair.ours, prompt, paths, new_tokens)
                short = replace(job, new_tokens=6)  # enough to get past the slow first passes
                measure(field_of(pair, short, prompt, llama), 1)
                competitors = field_of(pair, job, prompt, llama)
                measure(competitors, rounds)
                texts.append(_section(name, job, pair, competitors))
                words = f"{name}, {job}"
                measured = {way.name: way.measured for way in competitors}
                result["seconds"][words] = {name: each.seconds for name, each in measured.items()}
                result["texts"][words] = {name: each.texts for name, each in measured.items()}
                result["new_tokens"][words] = {name: each.made for name, each in measured.items()}
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
