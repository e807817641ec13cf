"""What a step costs besides the model: processing the logits, and one path against transformers.

    python benchmarks/decisions.py [--quick] [--json FILE] [--table FILE]

Filters: processing 20 rows of float32 logits over a vocabulary of 151,936 tokens, including the
entropies and the lists of the most likely tokens. One set of logits is like a model's (the
probabilities of a row fall with a power of the rank, from 1.5 to 3), the other is nearly flat. All
filters take turns. Figures are medians with quartiles; ratios are ratios of medians. `sorted` is
top-p as in transformers, which sorts the vocabulary.

One path: one text by the engine and one by `generate` of transformers, with the same weights, both
greedy and sampled from the whole distribution, for three models (see shapes.py). They take turns.
Figures are milliseconds per new token, including the prompt. The ratio of a shape is the larger of
greedy and sampled. `--quick` makes fewer rounds; `--only` runs one part.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from published import (
    Placement,
    clock_of,
    command_line,
    markdown_table,
    offer_processor_time,
    publish,
    where,
)
from shapes import engine_model, plain_model
from transformers import PreTrainedModel, TopPLogitsWarper
from transformers.utils import logging

from eab.branching.sampling import Predictions
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.figures.timings import with_spread
from eab.models.huggingface import HuggingFaceModel
from eab.timing import MIN_REPEATS, Clock, Timing, take_turns, timed

ROWS, VOCABULARY = 20, 151_936
REPEATS = 25
PLAIN, SORTED = "no filter", "top-p 0.95, sorted"
FILTERS = {
    "top-k 50": BranchingConfig(top_k=50),
    "top-p 0.95": BranchingConfig(top_p=0.95),
    "top-k 50, top-p 0.95": BranchingConfig(top_k=50, top_p=0.95),
}
KEYS = {"top-k 50": "top_k", "top-p 0.95": "top_p", "top-k 50, top-p 0.95": "top_k_top_p"}

PROMPT: Final = "Once upon a time there was a little girl who had a red ball and a brown dog. "
# New tokens by shape; fewer for larger models
ONE_PATH: Final = {"embedded": 96, "135m": 24, "0.5b": 16}
WAYS: Final = {"greedy": "greedy", "sampled": "independent"}


def peaked() -> torch.Tensor:
    """Logits like those of a model, (P, V)."""
    random = torch.Generator().manual_seed(1)
    ranks = torch.rand(ROWS, VOCABULARY, generator=random).argsort(dim=1) + 1.0
    power = torch.linspace(1.5, 3.0, ROWS)[:, None]
    noise = torch.randn(ROWS, VOCABULARY, generator=random)
    return 15.0 - power * ranks.log() + 0.1 * noise


def flat() -> torch.Tensor:
    """Nearly equal logits, (P, V)."""
    return 0.01 * torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(2))


@torch.inference_mode()
def process(logits: torch.Tensor, config: BranchingConfig) -> Predictions:
    return Predictions(logits, config)


@torch.inference_mode()
def process_sorted(logits: torch.Tensor) -> Predictions:
    nothing = torch.empty(0, dtype=torch.int64)
    return Predictions(TopPLogitsWarper(0.95)(nothing, logits), BranchingConfig())


def ratios_of(timings: dict[str, Timing], kind: str) -> dict[str, float]:
    plain = timings[PLAIN].median
    ratios = {
        f"{key}_over_plain{kind}_152k": timings[name].median / plain for name, key in KEYS.items()
    }
    ratios[f"sorted_over_top_p{kind}_152k"] = timings[SORTED].median / timings["top-p 0.95"].median
    return ratios


def one_path(shape: str, tokens: int, rounds: int, clock: Clock) -> dict[str, Timing]:
    """Seconds per token of one text of `tokens` tokens, by way and competitor."""
    plain = plain_model(shape, Placement("cpu", torch.float32))
    ours = engine_model(plain, shape)
    prompt = torch.tensor([ours.encode(PROMPT, BranchingConfig())])
    jobs: dict[str, Callable[[], None]] = {}
    for way, policy in WAYS.items():
        config = BranchingConfig(policy=policy, max_paths=1, max_new_tokens=tokens)
        jobs[f"{way}, generate"] = partial(generate, plain, prompt, way == "sampled", tokens)
        jobs[f"{way}, engine"] = partial(run_to_the_end, ours, Request(PROMPT, config))
    timings = take_turns({name: timed(job, clock) for name, job in jobs.items()}, rounds)
    return {
        name: Timing(tuple(seconds / tokens for seconds in timing.seconds))
        for name, timing in timings.items()
    }


def generate(model: PreTrainedModel, prompt: torch.Tensor, sampled: bool, tokens: int) -> None:
    """Generate one text with transformers. Its default top-k of 50 is switched off."""
    sampling = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if sampled else {}
    model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=sampled,
        min_new_tokens=tokens,
        max_new_tokens=tokens,
        pad_token_id=0,
        **sampling,
    )


def run_to_the_end(model: HuggingFaceModel, request: Request) -> None:
    for _ in event_stream(model, request):
        pass


def measure_one_path(rounds: int, clock: Clock) -> tuple[str, dict[str, Timing], dict[str, float]]:
    """Time one path with all shapes. Returns a table, the timings and the ratios."""
    ratios: dict[str, float] = {}
    all_timings, lines = {}, []
    for shape, tokens in ONE_PATH.items():
        timings = one_path(shape, tokens, rounds, clock)
        of_ways = []
        for way in WAYS:
            theirs, ours = timings[f"{way}, generate"], timings[f"{way}, engine"]
            of_ways.append(ours.median / theirs.median)
            cells = [
                with_spread(one, lambda value: f"{value * 1000:.1f}") for one in (theirs, ours)
            ]
            lines.append([shape, way, *cells, f"{of_ways[-1]:.2f}"])
        name = shape.replace(".", "")
        ratios[f"one_path_over_transformers_{name}"] = max(of_ways)
        all_timings |= {f"one path, {shape}, {way}": timing for way, timing in timings.items()}
    heads = ["shape", "way", "generate, ms per token", "engine, ms per token", "over generate"]
    return markdown_table(heads, lines), all_timings, ratios


def measure_filters(rounds: int, clock: Clock) -> tuple[str, dict[str, Timing], dict[str, float]]:
    """Time the filters on both kinds of logits. Returns a table, the timings and the ratios."""
    ratios: dict[str, float] = {}
    all_timings, lines = {}, []
    for kind, logits in {"": peaked(), "_flat": flat()}.items():
        alternatives = {PLAIN: timed(partial(process, logits, BranchingConfig()), clock)}
        for name, config in FILTERS.items():
            alternatives[name] = timed(partial(process, logits, config), clock)
        alternatives[SORTED] = timed(partial(process_sorted, logits), clock)
        timings = take_turns(alternatives, rounds)
        ratios |= ratios_of(timings, kind)
        for name, timing in timings.items():
            all_timings[f"{name}{kind}"] = timing
            cells = with_spread(timing, lambda value: f"{value * 1000:.1f}")
            ratio = timing.median / timings[PLAIN].median
            lines.append([name, "nearly flat" if kind else "peaked", cells, f"{ratio:.2f}"])
    heads = ["filter", "logits", "milliseconds (quartiles)", "over no filter"]
    return markdown_table(heads, lines), all_timings, ratios


PARTS: Final = {"filters": measure_filters, "one-path": measure_one_path}


def main() -> None:
    parser = command_line(__doc__, quick=f"{MIN_REPEATS} rounds")
    offer_processor_time(parser)
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    options = parser.parse_args()
    clock = clock_of(parser, options)
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    rounds = MIN_REPEATS if options.quick else REPEATS
    texts: list[str] = []
    seconds: dict[str, tuple[float, ...]] = {}
    ratios: dict[str, float] = {}
    for name, measure in PARTS.items():
        if options.only in (None, name):
            text, timings, own = measure(rounds, clock)
            texts.append(text)
            seconds |= {of: timing.seconds for of, timing in timings.items()}
            ratios |= own
    publish(options, where("float32"), "\n".join(texts), {"seconds": seconds, "ratios": ratios})


if __name__ == "__main__":
    main()
