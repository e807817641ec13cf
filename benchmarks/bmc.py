"""Growing the KV tensors every r steps, against growing them at every step and against the
DynamicCache and StaticCache of transformers.

    python benchmarks/bmc.py [--quick] [--device cuda] [--dtype bfloat16] [--json FILE] [--table FILE]

The first question: how good is the predicted r*? The KV part of writing N rows with padded
attention is timed for a grid of r. It consists of the growths and the cost of spare rows, which is
found by running each forward pass with and without them.

The second question: what does r* save? The KV part of a step (update and attention of all layers,
without weights) is timed for several numbers of paths, over one period between two growths.

All competitors take turns, and the first round is a warm-up. Figures are medians with quartiles
(eab.timing); ratios are ratios of medians. The tree's paths share their context, while transformers
holds it once per path. `--quick` measures fewer layers and rows.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from published import (
    Placement,
    command_line,
    markdown_table,
    offer_device,
    publish,
    ratio_lines,
    seconds_of,
    where,
)
from rich.console import Console
from shapes import plain_model, same_weights
from transformers import AutoTokenizer, DynamicCache, PreTrainedConfig, StaticCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from eab.config import AUTO, AllocationStep
from eab.engine.caches.growth import CacheWorkload, best_r, growth_step
from eab.engine.caches.shape import KVShape
from eab.engine.models.loading import wrap_model
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.formatting import counted
from eab.labs.bmc import fitted, growth_answer, overheads
from eab.labs.decode_steps import attention_alone, now, prefilled_tree, time_step
from eab.labs.measure_bmc import sensitivity_to_r
from eab.labs.measurement import Report
from eab.timing import MIN_REPEATS, Timing, comparison, in_ms, take_turns

ROOM = 64  # rows beyond the context in StaticCache and in a tree allocated up front
CONTEXT = 2048 - ROOM  # rows that each path sees
PATHS = (1, 8, 32)
SAMPLED = 6  # steps to time if all steps cost the same
console = Console(stderr=True)
Step = Callable[[], float]
Steps = Mapping[str, Timing]  # by competitor


@dataclass
class Competitor:
    """One way to store K and V."""

    name: str
    prepare: Callable[[], Step]  # fills a cache and returns a function that times one step
    # steps to time: a whole period, in which one step grows the tensors, or steps that are alike
    period: int = SAMPLED
    # if spare rows cost nothing and the period is too long to time: the number of steps over
    # which to spread the growth in the first step
    growth_every: int | None = None

    def seconds_per_step(self) -> float:
        """Time one period. The first two steps of a fresh cache do not count towards it."""
        step = self.prepare()
        first, _ = step(), step()
        mean = statistics.mean(step() for _ in range(self.period))
        spread = max(0.0, first - mean) / self.growth_every if self.growth_every else 0.0
        return mean + spread


def tree(shape: KVShape, paths: int, r: AllocationStep, padded: bool) -> Callable[[], Step]:
    """Prepare steps with this project's tree cache."""

    def prepare() -> Step:
        run = attention_alone(shape)
        cache = prefilled_tree(shape, CONTEXT, r, padded=padded, paths=paths)
        return lambda: time_step(run, cache, range(1, paths + 1)).seconds

    return prepare


def theirs(
    config: PreTrainedConfig, shape: KVShape, paths: int, static: bool
) -> Callable[[], Step]:
    """Prepare steps with a cache of transformers and the attention of transformers."""
    room = CONTEXT + ROOM
    like: Any = {"dtype": shape.dtype, "device": shape.device}

    def prepare() -> Step:
        cache: Any = StaticCache(config, room) if static else DynamicCache(config=config)
        rows = torch.zeros((paths, shape.kv_heads, CONTEXT, shape.head_dim), **like)
        for layer in range(shape.layers):
            cache.update(rows, rows, layer)
        query, key = (
            torch.randn((paths, heads, 1, shape.head_dim), **like)
            for heads in (shape.kv_heads * shape.group, shape.kv_heads)
        )
        layer_like: Any = SimpleNamespace(num_key_value_groups=shape.group, is_causal=True)
        written = CONTEXT

        @torch.inference_mode()
        def step() -> float:
            nonlocal written
            start = now(shape.device)
            written += 1
            mask = None
            if static:  # one mask per step for all layers, as in transformers
                seen = torch.arange(room, device=shape.device) < written
                mask = seen[None, None, None].expand(paths, 1, 1, room)
            for layer in range(shape.layers):
                both = cache.update(key, key, layer)
                scaling = shape.head_dim**-0.5
                sdpa_attention_forward(layer_like, query, *both, mask, scaling=scaling)
            return now(shape.device) - start

        return step

    return prepare


def field_of(config: PreTrainedConfig, shape: KVShape, paths: int, r: int) -> list[Competitor]:
    """The competitors for so many paths, for which the predicted r* is `r`."""
    ahead = growth_step(AUTO, CONTEXT, paths)
    sliced, up_front = tree(shape, paths, AUTO, False), tree(shape, paths, ROOM, True)
    concat, static = (theirs(config, shape, paths, static) for static in (False, True))
    return [
        Competitor("tree, r = 1, padded (copy at every step)", tree(shape, paths, 1, True)),
        Competitor(f"tree, r* = {r}, padded", tree(shape, paths, r, True), period=r),
        Competitor(f"tree, {ROOM} steps up front, padded", up_front),
        Competitor("tree, r = auto, sliced", sliced, growth_every=ahead),
        Competitor("DynamicCache (torch.cat at every step)", concat),
        Competitor(f"StaticCache, {ROOM} rows spare", static),
    ]


def predicted(report: Report, paths: int) -> int:
    """The predicted r* for steps at about this context length."""
    costs = fitted(report)
    assert costs is not None
    work = CacheWorkload(2 * CONTEXT, kept=paths, tokens=paths)
    return min(CONTEXT, best_r(costs, work))


def table(paths: int, timings: Steps) -> str:
    words = f"KV update and attention, {counted(paths, 'path')}, context {CONTEXT} (quartiles)"
    best = [*timings.values()][1]
    rows = [
        (name, in_ms(timing), "" if timing is best else comparison(timing, best))
        for name, timing in timings.items()
    ]
    return f"{words}\n\n{markdown_table(['', 'ms per step', 'against r*'], rows)}"


def sweep_table(report: Report) -> str:
    """A Markdown table of the measured overhead for each r."""
    rows_written = report.rows("growth")[0]["rows"]
    words = f"Writing {rows_written:,} rows, one path, padded: growths and spare rows."
    rows = [(r, in_ms(timing)) for r, timing in overheads(report).items()]
    table = markdown_table(["r", "measured (quartiles)"], rows)
    return f"{words}\n\n{table}\n{growth_answer(report)}\n"


def ratios_of(found: Mapping[int, Steps]) -> dict[str, float]:
    """By number of paths, the KV part of a step when it copies at each step, and with transformers'
    caches, over the best of ours.
    """
    ratios = dict[str, float]()
    for paths, timings in found.items():
        copying, r_star, _, sliced, *others = (timing.median for timing in timings.values())
        for name, seconds in zip(("copying", "concat", "static"), (copying, *others), strict=True):
            ratios[f"{name}_over_best_kv_{paths}_paths"] = seconds / min(r_star, sliced)
    return ratios


def main() -> None:
    parser = command_line(__doc__, quick="fewer layers, rows and paths")
    offer_device(parser)
    options = parser.parse_args()
    placement = Placement.of(options)
    torch.set_num_threads(options.threads)
    plain = plain_model("135m", placement)
    layers, rows = (6, 256) if options.quick else (30, 512)
    plain.model.layers, plain.config.num_hidden_layers = plain.model.layers[:layers], layers
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    shape = wrap_model(same_weights(plain), tokenizer, "135m").kv_shape
    report = Report().collect(sensitivity_to_r(shape, rows, MIN_REPEATS))
    found: dict[int, Steps] = {}
    for paths in PATHS[:2] if options.quick else PATHS:
        console.print(f"{paths} paths ...")
        competitors = field_of(plain.config, shape, paths, predicted(report, paths))
        measures = {each.name: each.seconds_per_step for each in competitors}
        found[paths] = take_turns(measures, MIN_REPEATS)
    ratios = ratios_of(found)
    texts = [sweep_table(report), *(table(*one) for one in found.items()), ratio_lines(ratios)]
    seconds = {str(paths): seconds_of(timings) for paths, timings in found.items()}
    origin = where(f"{placement}, {layers} layers", placement.device)
    publish(options, origin, "\n".join(texts), {"seconds": seconds, "ratios": ratios})


if __name__ == "__main__":
    main()
