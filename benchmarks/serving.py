"""Serving many runs of one model: in turns, in static batches, with the scheduler (continuous
batching), and with transformers' continuous batching.

    python benchmarks/serving.py --quick [--device cuda] [--dtype bfloat16] --json serving.json

Every round measures all ways one after another, with the same requests. A ratio is the median, over
rounds, of the seconds of one way over those of another in the same round; its spread is the
smallest and the largest of these. "In turns" means one step of each run in turn, each in its own
forward pass. A static batch takes new runs only when all of its runs have ended.

transformers draws independent samples. Our engine therefore does the same for this comparison, with
a model without stop tokens, the same prompts, and as many samples and tokens per prompt.
"""

import logging
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from chat_prompts import OPENINGS
from published import (
    Placement,
    clock_of,
    command_line,
    offer_device,
    offer_processor_time,
    publish,
    ratio_table,
    where,
)
from shapes import engine_model, plain_model
from transformers import ContinuousBatchingConfig, GenerationConfig

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.events import Pause, TokensAppended
from eab.models.base import LanguageModel
from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import load_model

STATIC_BATCH = 8  # runs
MIXED_LENGTHS = (8, 16, 32, 256, 8, 24, 64, 16)  # tokens; a long one in each batch of eight
SAMPLES = 8  # per request, with transformers and with our engine
PROMPT_REPEATS = (1, 2, 4, 8, 16, 32)  # of an opening, for the prompts of many lengths


ServingMethod = Callable[[LanguageModel, Sequence[Request]], None]
Clock = Callable[[], float]


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
    count: int, paths: int, new_tokens: Sequence[int], prompts: Sequence[str] = OPENINGS
) -> list[Request]:
    """`count` requests, each with its own seed. Prompts and lengths are cycled through."""
    config = BranchingConfig(min_fork_weight=0.03, max_paths=paths)
    return [
        Request(
            prompts[seed % len(prompts)],
            replace(config, seed=seed, max_new_tokens=new_tokens[seed % len(new_tokens)]),
        )
        for seed in range(count)
    ]


def independent(count: int, samples: int, new_tokens: int) -> list[Request]:
    """The same as `requests`, with independent sampling."""
    return [
        replace(request, config=replace(request.config, policy="independent"))
        for request in requests(count, samples, [new_tokens])
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


def continuous(model: LanguageModel, asked: Sequence[Request]) -> None:
    """Submit all requests together; at least as many run as in a static batch."""
    _serve(Scheduler(model), asked)


def continuous_eight(model: LanguageModel, asked: Sequence[Request]) -> None:
    """The same as `continuous`, with at most as many running runs as a static batch holds."""
    _serve(Scheduler(model, max_running=STATIC_BATCH), asked)


def _serve(scheduler: Scheduler, asked: Sequence[Request]) -> None:
    for number, request in enumerate(asked):
        scheduler.submit(request, owner=str(number))
    while scheduler.busy:
        for handle in scheduler.step():
            handle.new_events()


@dataclass(frozen=True)
class Comparison:
    slower: ServingMethod
    faster: ServingMethod
    requests: list[Request]
    model: HuggingFaceModel


def comparisons(models: Models) -> dict[str, Comparison]:
    """The comparisons, by the name of their ratio."""
    small, large = models.embedded, models.endless["135m"]
    mixed, sampled = requests(24, 2, MIXED_LENGTHS), independent(8, SAMPLES, 40)
    return {
        "turns_over_batched_8": Comparison(in_turns, continuous, requests(8, 16, [40]), small),
        "turns_over_batched_30": Comparison(in_turns, continuous, requests(30, 8, [40]), small),
        "turns_over_batched_135m": Comparison(in_turns, continuous, requests(8, 8, [12]), large),
        "static_over_continuous": Comparison(in_static_batches, continuous_eight, mixed, small),
        "transformers_over_ours": Comparison(
            models.by_transformers, continuous, sampled, models.endless["embedded"]
        ),
        "turns_over_batched_1": Comparison(in_turns, continuous, requests(1, 16, [40]), small),
    }


def seconds(
    way: ServingMethod, model: LanguageModel, asked: Sequence[Request], clock: Clock
) -> float:
    start = clock()
    way(model, asked)
    return clock() - start


def prompts_of_many_lengths() -> list[str]:
    """Prompts from a few tokens to a few hundred."""
    return [f"{OPENINGS[0]} " * repeats for repeats in PROMPT_REPEATS]


def prefill_seconds(model: LanguageModel, clock: Clock) -> float:
    """The time to the first token of a run that has the longest prompt and is served alone."""
    longest = requests(1, 8, [1], prompts_of_many_lengths()[-1:])
    return statistics.median(seconds(continuous, model, longest, clock) for _ in range(5))


def first_tokens(model: LanguageModel, clock: Clock) -> list[float]:
    """Submit thirty runs together. Returns the seconds to the first token of each run, sorted."""
    asked = requests(30, 8, [40], prompts_of_many_lengths())
    scheduler, start = Scheduler(model), clock()
    waiting = [scheduler.submit(request, owner=str(number)) for number, request in enumerate(asked)]
    found: list[float] = []
    while waiting:
        scheduler.step()
        for handle in waiting[:]:
            if any(isinstance(event, TokensAppended) for event in handle.new_events()):
                waiting.remove(handle)
                found.append(clock() - start)
    scheduler.close()
    return found


def measure(models: Models, rounds: int, clock: Clock) -> dict[str, list[tuple[float, float]]]:
    """The seconds of both ways for each ratio, from interleaved rounds."""
    compared = comparisons(models)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in compared}
    for pair in compared.values():  # the first passes of a process are slow
        for way in (pair.slower, pair.faster):
            short = [
                replace(asked, config=replace(asked.config, max_new_tokens=4))
                for asked in pair.requests[:2]
            ]
            way(pair.model, short)
    for _ in range(rounds):
        for name, pair in compared.items():
            slow = seconds(pair.slower, pair.model, pair.requests, clock)
            times[name].append((slow, seconds(pair.faster, pair.model, pair.requests, clock)))
    return times


def measure_first_tokens(model: LanguageModel, rounds: int, clock: Clock) -> dict[str, list[float]]:
    """For each round, the seconds of the longest prompt's prefill alone, and the seconds until half
    and 95% of thirty runs that start together have their first token.
    """
    found: dict[str, list[float]] = {"prefill": [], "p50": [], "p95": []}
    for _ in range(rounds):
        found["prefill"].append(prefill_seconds(model, clock))
        waits = first_tokens(model, clock)
        found["p50"].append(statistics.median(waits))
        found["p95"].append(waits[int(0.95 * len(waits))])
    return found


def words(first: dict[str, list[float]]) -> str:
    """The times to the first token as text, in multiples of the prefill in the same round."""
    turns = {
        name: [time / prefill for time, prefill in zip(first[name], first["prefill"], strict=True)]
        for name in ("p50", "p95")
    }
    p50, p95 = (
        f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
        for values in turns.values()
    )
    return (
        f"\nThirty runs at once, with prompts of many lengths: half have their first token after "
        f"{p50} times the longest prompt's prefill alone, 95% after {p95} times. That prefill "
        f"takes {1000 * statistics.median(first['prefill']):.0f} ms.\n"
    )


def main() -> None:
    parser = command_line(__doc__, quick="three rounds instead of nine")
    offer_device(parser)
    offer_processor_time(parser)
    options = parser.parse_args()
    clock = clock_of(parser, options)
    torch.set_num_threads(options.threads)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    rounds = 3 if options.quick else 9
    placement = Placement.of(options)
    models = Models(placement)
    found = measure(models, rounds, clock)
    first = measure_first_tokens(models.embedded, rounds, clock)
    ratios = {
        name: statistics.median(slow / fast for slow, fast in pairs)
        for name, pairs in found.items()
    }
    result = {"seconds": found, "first_token_seconds": first, "ratios": ratios}
    publish(
        options,
        where(str(placement), placement.device),
        ratio_table(["", "seconds", "against seconds"], found) + words(first),
        result,
    )


if __name__ == "__main__":
    main()
