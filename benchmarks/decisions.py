"""What the engine does with the logits of a step, with and without filters.

    python benchmarks/decisions.py [--quick] [--json FILE] [--table FILE]

Twenty rows, a vocabulary of 151,936 tokens, float32: processing the logits, entropies and lists of
the most likely tokens included. The logits are like a model's (the probabilities of a row fall with
a power of the rank, between 1.5 and 3), and nearly flat. All take turns; figures are medians with
their quartiles, ratios are ratios of medians. `sorted` is top-p as transformers does it, by sorting
the vocabulary. `--quick` makes fewer rounds.
"""

from functools import partial

import torch
from published import clock_of, command_line, markdown_table, offer_processor_time, publish, where
from transformers import TopPLogitsWarper

from eab.branching.sampling import Predictions
from eab.config import BranchingConfig
from eab.figures.timings import with_spread
from eab.timing import MIN_REPEATS, Timing, take_turns, timed

ROWS, VOCABULARY = 20, 151_936
REPEATS = 25
PLAIN, SORTED = "no filter", "top-p 0.95, sorted"
FILTERS = {
    "top-k 50": BranchingConfig(top_k=50),
    "top-p 0.95": BranchingConfig(top_p=0.95),
    "top-k 50, top-p 0.95": BranchingConfig(top_k=50, top_p=0.95),
}
KEYS = {"top-k 50": "top_k", "top-p 0.95": "top_p", "top-k 50, top-p 0.95": "top_k_top_p"}


def peaked() -> torch.Tensor:
    """Logits like a model's, (P, V)."""
    random = torch.Generator().manual_seed(1)
    ranks = torch.rand(ROWS, VOCABULARY, generator=random).argsort(dim=1) + 1.0
    power = torch.linspace(1.5, 3.0, ROWS)[:, None]
    noise = torch.randn(ROWS, VOCABULARY, generator=random)
    return 15.0 - power * ranks.log() + 0.1 * noise


def flat() -> torch.Tensor:
    """Logits that hardly differ, (P, V)."""
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


def main() -> None:
    parser = command_line(__doc__, quick=f"{MIN_REPEATS} rounds")
    offer_processor_time(parser)
    options = parser.parse_args()
    clock = clock_of(parser, options)
    torch.set_num_threads(options.threads)
    ratios: dict[str, float] = {}
    seconds, lines = {}, []
    for kind, logits in {"": peaked(), "_flat": flat()}.items():
        alternatives = {PLAIN: timed(partial(process, logits, BranchingConfig()), clock)}
        for name, config in FILTERS.items():
            alternatives[name] = timed(partial(process, logits, config), clock)
        alternatives[SORTED] = timed(partial(process_sorted, logits), clock)
        timings = take_turns(alternatives, MIN_REPEATS if options.quick else REPEATS)
        ratios |= ratios_of(timings, kind)
        for name, timing in timings.items():
            seconds[f"{name}{kind}"] = timing.seconds
            cells = with_spread(timing, lambda value: f"{value * 1000:.1f}")
            ratio = timing.median / timings[PLAIN].median
            lines.append([name, "nearly flat" if kind else "peaked", cells, f"{ratio:.2f}"])
    text = markdown_table(["filter", "logits", "milliseconds (quartiles)", "over no filter"], lines)
    publish(options, where("float32"), text, {"seconds": seconds, "ratios": ratios})


if __name__ == "__main__":
    main()
