"""Serving many runs of one model: in turns, in static batches, with the scheduler (continuous
batching), with transformers' continuous batching; and what the prefix cache saves.

    python benchmarks/serving.py [--only batching|prefixes] [--quick] [--device cuda] [--dtype bfloat16]

All ways take turns, with the same requests. Figures are medians with quartiles (eab.timing); ratios are
ratios of medians.

batching: "in turns" means one step of each run in turn, each in its own forward pass. A static batch
takes new runs only when all of its runs have ended. transformers draws independent samples. Our
engine therefore does the same for this comparison, with a model without stop tokens, the same
prompts, and as many samples and tokens per prompt.

prefixes: prompts of 300 tokens, runs of 16 new tokens and at most 4 paths, each job with a new
scheduler and an empty cache. "First tokens" is the time until 95% of the runs have one. "KV memory"
is the most that the runs and the cache hold together after any pass.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from published import (
    Placement,
    clocked,
    command_line,
    markdown_table,
    mib,
    offer_device,
    publish,
    spread,
    where,
)
from shapes import engine_model, plain_model
from transformers import ContinuousBatchingConfig, GenerationConfig

from eab.config import BranchingConfig, PolicyName
from eab.engine.caches.prefix_cache import prefix_cache
from eab.engine.loop import event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model
from eab.engine.request import Request
from eab.engine.scheduler import MAX_RUNNING, Scheduler
from eab.run.events import Pause, TokensAppended
from eab.timing import MIN_REPEATS, Clock, Timing, ratio_words, take_turns, timed

OPENINGS: Final = (
    "Once upon a time, there was a",
    "The cat sat on the",
    "One day, a girl named",
    "He opened the box and",
)
STATIC_BATCH = 8  # runs
MIXED_LENGTHS = (8, 16, 32, 256, 8, 24, 64, 16)  # tokens; a long one in each batch of eight
SAMPLES = 8  # per request, with transformers and with our engine
PREFIX_TOKENS, STUDENTS = 300, 30
THRESHOLDS: Final = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
SHORT: Final = BranchingConfig(max_new_tokens=16, max_paths=4)
ServingMethod = Callable[[LanguageModel, Sequence[Request]], None]


class Models:
    """The embedded model, which ends its texts itself, and models without stop tokens, by shape."""

    def __init__(self, placement: Placement) -> None:
        self.embedded = load_model("embedded", placement.device, placement.dtype_name)
        self._plain = {shape: plain_model(shape, placement) for shape in ("embedded", "135m")}
        self.endless = {shape: engine_model(model, shape) for shape, model in self._plain.items()}

    def by_transformers(self, model: LanguageModel, asked: Sequence[Request]) -> None:
        """Serve with transformers' continuous batching, with the same weights as `model`."""
        config = asked[0].config
        generation = GenerationConfig(
            do_sample=True,
            max_new_tokens=config.max_new_tokens,
            num_return_sequences=config.max_paths,
            top_k=0,
            eos_token_id=-1,
            pad_token_id=0,
        )
        # Sizes that fit the job. The defaults without a GPU take several times as long.
        batching = ContinuousBatchingConfig(page_size=32, num_blocks=512, max_batch_tokens=512)
        prompts = [list(model.encode(request.prompt, request.config)) for request in asked]
        found = self._plain[model.card.name].generate_batch(prompts, generation, batching)
        assert len(found) == len(asked) * config.max_paths


def requests(
    count: int, paths: int, new_tokens: Sequence[int], policy: PolicyName = "fair"
) -> list[Request]:
    """`count` requests, each with its own seed. Prompts and lengths are cycled through."""
    config = BranchingConfig(policy=policy, min_fork_weight=0.03, max_paths=paths)
    return [
        Request(
            OPENINGS[seed % len(OPENINGS)],
            replace(config, seed=seed, max_new_tokens=new_tokens[seed % len(new_tokens)]),
        )
        for seed in range(count)
    ]


def in_turns(model: LanguageModel, asked: Sequence[Request]) -> None:
    """Make one step of each run in turn, until all runs have ended."""
    runs = [event_stream(model, request) for request in asked]
    while runs:
        runs = [run for run in runs if any(isinstance(event, Pause) for event in run)]


def in_static_batches(model: LanguageModel, asked: Sequence[Request]) -> None:
    """Start a batch when the previous batch has ended."""
    for first in range(0, len(asked), STATIC_BATCH):
        continuous(model, asked[first : first + STATIC_BATCH])


def continuous(
    model: LanguageModel, asked: Sequence[Request], max_running: int = MAX_RUNNING
) -> None:
    """Submit all requests together; at least as many run as in a static batch."""
    scheduler = Scheduler(model, max_running=max_running)
    for number, request in enumerate(asked):
        scheduler.submit(request, owner=str(number))
    while scheduler.busy:
        for handle in scheduler.step():
            handle.new_events()


class Comparison(NamedTuple):
    slower: ServingMethod
    faster: ServingMethod
    requests: list[Request]
    model: HuggingFaceModel


def comparisons(models: Models) -> dict[str, Comparison]:
    """The comparisons, by the name of their ratio."""
    small, large = models.embedded, models.endless["135m"]
    eight = partial(continuous, max_running=STATIC_BATCH)  # as many as a static batch holds
    mixed, sampled = requests(24, 2, MIXED_LENGTHS), requests(8, SAMPLES, [40], "independent")
    return {
        "turns_over_batched_8": Comparison(in_turns, continuous, requests(8, 16, [40]), small),
        "turns_over_batched_30": Comparison(in_turns, continuous, requests(30, 8, [40]), small),
        "turns_over_batched_135m": Comparison(in_turns, continuous, requests(8, 8, [12]), large),
        "static_over_continuous": Comparison(in_static_batches, eight, mixed, small),
        "transformers_over_ours": Comparison(
            models.by_transformers, continuous, sampled, models.endless["embedded"]
        ),
        "turns_over_batched_1": Comparison(in_turns, continuous, requests(1, 16, [40]), small),
    }


def measure_batching(models: Models, quick: bool, clock: Clock) -> tuple[str, dict[str, Any]]:
    """Measure all ways of serving. Returns the text and the figures as data."""
    rows, seconds, ratios = [], {}, {}
    for name, pair in comparisons(models).items():
        ways = {
            "slower": timed(partial(pair.slower, pair.model, pair.requests), clock),
            "faster": timed(partial(pair.faster, pair.model, pair.requests), clock),
        }
        slower, faster = take_turns(ways, MIN_REPEATS if quick else 15).values()
        ratios[name] = slower.median / faster.median
        rows.append([name, spread(slower), spread(faster), ratio_words(slower, faster)])
        seconds[name] = [slower.seconds, faster.seconds]
    text = markdown_table(["", "seconds", "against seconds", "ratio"], rows)
    return text, {"seconds": seconds, "ratios": ratios}


@dataclass
class Job:
    """Requests that are submitted together, with and without a prefix cache."""

    model: LanguageModel
    requests: Sequence[Request]
    clock: Clock
    first_tokens: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    most_bytes: dict[bool, int] = field(default_factory=dict)

    def serve(self, reuse: bool) -> float:
        """Serve all requests, and return the seconds."""
        prefixes = prefix_cache(self.model.kv_shape) if reuse else None
        scheduler = Scheduler(self.model, prefixes=prefixes)
        start, waits, most = self.clock(), list[float](), 0
        waiting = {scheduler.submit(one, owner=str(n)) for n, one in enumerate(self.requests)}
        while scheduler.busy:
            for handle in scheduler.step():
                new = handle.new_events()
                if handle in waiting and any(isinstance(one, TokensAppended) for one in new):
                    waiting.discard(handle)
                    waits.append(self.clock() - start)
            most = max(most, scheduler.kv_held + scheduler.prefix_bytes)
        self.first_tokens[reuse].append(waits[int(0.95 * len(waits))])
        self.most_bytes[reuse] = most
        return self.clock() - start


def prefixed(
    count: int, alike: bool, thresholds: Sequence[float] = (SHORT.entropy_threshold,)
) -> list[Request]:
    """`count` seeds for each threshold, all with the same prompt or with one prompt per seed."""

    def prompt(seed: int) -> tuple[int, ...]:
        random = torch.Generator().manual_seed(0 if alike else seed)
        return tuple(torch.randint(10, 400, (PREFIX_TOKENS,), generator=random).tolist())

    return [
        Request("", replace(SHORT, seed=seed, entropy_threshold=one), token_ids=prompt(seed))
        for seed in range(count)
        for one in thresholds
    ]


def measure_prefixes(models: Models, quick: bool, clock: Clock) -> tuple[str, dict[str, Any]]:
    """Measure the jobs without and with the prefix cache. Returns the text and the figures."""
    small, large = models.embedded, models.endless["135m"]
    same = prefixed(STUDENTS, alike=True)
    jobs = {
        "30 runs of one prompt": Job(small, same, clock),
        "30 runs of one prompt, SmolLM2-135M shape": Job(large, same, clock),
        "sweep, 8 thresholds x 4 seeds": Job(small, prefixed(4, True, THRESHOLDS), clock),
        "one run alone": Job(small, prefixed(1, alike=True), clock),
        "30 runs of 30 prompts": Job(small, prefixed(STUDENTS, alike=False), clock),
    }
    rows, seconds, ratios = [], {}, {}
    for name, job in jobs.items():
        rounds = 3 if job.model is large else MIN_REPEATS if quick else 15
        ways = {way: partial(job.serve, way == "with") for way in ("without", "with")}
        timings = take_turns(ways, rounds)
        first = [Timing(tuple(times[1:])) for times in job.first_tokens.values()]
        ratios[f"without over with: {name}"] = ratio = (
            timings["without"].median / timings["with"].median
        )
        cells = [*map(spread, timings.values()), f"{ratio:.2f}", *map(spread, first)]
        rows.append([name, *cells, *(mib(job.most_bytes[reuse]) for reuse in (False, True))])
        seconds[name] = [timing.seconds for timing in timings.values()]
    heads = ["", "seconds without", "with", "ratio", "first tokens without", "with"]
    text = markdown_table([*heads, "KV memory without", "with"], rows)
    return text, {"prefix_seconds": seconds, "ratios": ratios}


PARTS: Final = {"batching": measure_batching, "prefixes": measure_prefixes}


def main() -> None:
    parser = command_line(__doc__, quick="fewer rounds")
    offer_device(parser)
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    options, clock = clocked(parser)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    placement = Placement.of(options)
    models, texts = Models(placement), []
    result: dict[str, Any] = {"ratios": {}}
    for name, part in PARTS.items():
        if options.only in (None, name):
            text, found = part(models, options.quick, clock)
            texts.append(text)
            result |= found | {"ratios": result["ratios"] | found["ratios"]}
    publish(options, where(str(placement), placement.device), "\n".join(texts), result)


if __name__ == "__main__":
    main()
