"""Growing the KV tensors every r steps, against growing them at every step and against the
DynamicCache and StaticCache of transformers.

    python benchmarks/bmc.py [--quick] [--device cuda] [--dtype bfloat16] [--json FILE] [--table FILE]

The first question: how good is the predicted r*? The KV part of writing N rows with padded
attention is timed for a grid of r. It consists of the growths and the cost of spare rows, which is
found by running each forward pass with and without them.

The second question: what does r* save? The KV part of a step (update and attention of all layers,
without weights) and the whole step are timed for several contexts and numbers of paths, each over
one period between two growths.

All competitors take turns, and the first round is a warm-up. Figures are medians with quartiles
(eab.timing); ratios are ratios of medians. The tree's paths share their context, while transformers
holds it once per path. `--quick` measures fewer layers and rows.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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
    where,
)
from rich.console import Console
from shapes import plain_model, same_weights
from transformers import AutoTokenizer, DynamicCache, PreTrainedModel, StaticCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from eab.caches.growth import CacheWorkload, best_r, growth_step
from eab.caches.shape import KVShape
from eab.caches.timing import attention_alone, now, prefilled_tree, time_step
from eab.config import AUTO, AllocationStep
from eab.figures.timings import in_ms
from eab.labs.bmc.measure import sensitivity_to_r
from eab.labs.bmc.pictures import growth_sentence
from eab.labs.bmc.results import ExperimentReport, RTimed, overheads, predicted_r
from eab.labs.bmc.rounds import whole_model
from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import wrap_model
from eab.models.sources import EMBEDDED_FOLDER
from eab.timing import MIN_REPEATS, Timing, comparison, take_turns

ROOM = 64  # rows beyond the context in StaticCache and in a tree allocated up front
LONGEST = 2048 - ROOM
HEADLINE = 8  # paths
SAMPLED = 6  # steps to time if all steps cost the same
console = Console(stderr=True)
Step = Callable[[], float]
Steps = Mapping[str, Timing]  # by competitor


@dataclass(frozen=True)
class Case:
    paths: int
    context: int  # rows that each path sees
    whole: bool  # time the model's whole step instead of the KV part alone


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


def tree(ours: HuggingFaceModel, case: Case, r: AllocationStep, padded: bool) -> Callable[[], Step]:
    """Prepare steps with this project's tree cache."""

    def prepare() -> Step:
        shape = ours.kv_shape
        run = whole_model(ours) if case.whole else attention_alone(shape)
        cache = prefilled_tree(shape, case.context, r, padded=padded, paths=case.paths)
        paths = range(1, case.paths + 1)
        return lambda: time_step(run, cache, paths).seconds

    return prepare


def theirs(
    plain: PreTrainedModel, ours: HuggingFaceModel, case: Case, static: bool
) -> Callable[[], Step]:
    """Prepare steps with a cache of transformers and the attention of transformers."""

    def prepare() -> Step:
        shape, config = ours.kv_shape, plain.config
        room = case.context + ROOM
        cache = (
            StaticCache(config=config, max_cache_len=room)
            if static
            else DynamicCache(config=config)
        )
        rows = torch.zeros(
            (case.paths, shape.kv_heads, case.context, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )
        for layer in range(shape.layers):
            cache.update(rows, rows, layer)
        return (
            _whole(plain, cache, case)
            if case.whole
            else _kv_part(shape, cache, case, room if static else None)
        )

    return prepare


def _kv_part(shape: KVShape, cache: Any, case: Case, room: int | None) -> Step:
    query, key = (
        torch.randn((case.paths, heads, 1, shape.head_dim), dtype=shape.dtype, device=shape.device)
        for heads in (shape.kv_heads * shape.group, shape.kv_heads)
    )
    layer_like: Any = SimpleNamespace(num_key_value_groups=shape.group, is_causal=True)
    written = case.context

    @torch.inference_mode()
    def step() -> float:
        nonlocal written
        start = now(shape.device)
        written += 1
        mask = None
        if room is not None:  # one mask per step for all layers, as in transformers
            seen = torch.arange(room, device=shape.device) < written
            mask = seen[None, None, None].expand(case.paths, 1, 1, room)
        for layer in range(shape.layers):
            keys, values = cache.update(key, key, layer)
            sdpa_attention_forward(
                layer_like, query, keys, values, mask, scaling=shape.head_dim**-0.5
            )
        return now(shape.device) - start

    return step


def _whole(plain: PreTrainedModel, cache: Any, case: Case) -> Step:
    ids = torch.ones((case.paths, 1), dtype=torch.int64, device=plain.device)

    @torch.inference_mode()
    def step() -> float:
        start = now(plain.device)
        plain(ids, past_key_values=cache, use_cache=True)
        return now(plain.device) - start

    return step


def field_of(
    plain: PreTrainedModel, ours: HuggingFaceModel, case: Case, r: int
) -> list[Competitor]:
    """The competitors for one case, whose predicted r* is `r`."""
    ahead = growth_step(AUTO, case.context, case.paths)
    return [
        Competitor("tree, r = 1, padded (copy at every step)", tree(ours, case, 1, True)),
        Competitor(f"tree, r* = {r}, padded", tree(ours, case, r, True), period=r),
        Competitor(f"tree, {ROOM} steps up front, padded", tree(ours, case, ROOM, True)),
        Competitor(
            "tree, r = auto, sliced",
            tree(ours, case, AUTO, False),
            growth_every=ahead,
        ),
        Competitor(
            "DynamicCache (torch.cat at every step)", theirs(plain, ours, case, static=False)
        ),
        Competitor(f"StaticCache, {ROOM} rows spare", theirs(plain, ours, case, static=True)),
    ]


def predicted(report: ExperimentReport, case: Case) -> int:
    """The predicted r* for steps at about this context length."""
    assert report.fitted is not None
    work = CacheWorkload(2 * case.context, kept=case.paths, tokens=case.paths)
    return min(case.context, best_r(report.fitted.costs, work))


def cases(quick: bool) -> Iterator[Case]:
    """From one path to many and from short to long contexts; the whole step at LONGEST only."""
    for paths in (1, 8) if quick else (1, 8, 32):
        for context in (512, LONGEST) if quick else (512, 1024, LONGEST):
            yield Case(paths, context, whole=False)
    for paths in (1, 8) if quick else (1, 8, 32):
        yield Case(paths, LONGEST, whole=True)


def table(timings: Steps, case: Case) -> str:
    kind = "whole step" if case.whole else "KV update and attention"
    paths = "1 path" if case.paths == 1 else f"{case.paths} paths"
    words = f"{kind}, {paths}, context {case.context}: milliseconds per step (quartiles)"
    best = [*timings.values()][1]
    rows = [
        (name, in_ms(timing), "" if timing is best else comparison(timing, best))
        for name, timing in timings.items()
    ]
    return f"{words}\n\n{markdown_table(['', 'ms per step', 'against r*'], rows)}"


def sweep_table(report: ExperimentReport) -> str:
    """A Markdown table of the measured overhead for each r."""
    timed = report.of(RTimed)
    count = timed[0].work.rows
    words = f"Writing {count:,} rows, one path, padded: growths and spare rows (quartiles)."
    rows = [(r, in_ms(timing)) for r, timing in overheads(timed).items()]
    table = markdown_table(["r", "measured"], rows)
    return f"{words}\n\n{table}\n{growth_sentence(report)}\n"


def sweep(shape: KVShape, rows: int, repeats: int) -> ExperimentReport:
    report = ExperimentReport()
    with console.status("r over a grid") as status:
        for event in sensitivity_to_r(shape, rows, repeats):
            report.apply(event)
            status.update(f"{report.progress.share:.0%}: {report.progress.words}")
    return report


def load(layers: int, placement: Placement) -> tuple[PreTrainedModel, HuggingFaceModel]:
    """A model of SmolLM2-135M's shape with this many layers, as two objects that share weights."""
    plain = plain_model("135m", placement)
    plain.model.layers = plain.model.layers[:layers]
    plain.config.num_hidden_layers = layers
    return plain, wrap_model(
        same_weights(plain), AutoTokenizer.from_pretrained(EMBEDDED_FOLDER), "135m"
    )


def ratios_of(report: ExperimentReport, found: Mapping[Case, Steps]) -> dict[str, float]:
    """The ratios that the targets refer to.

    copying: our own tree at r = 1. concat: transformers' DynamicCache, which calls torch.cat at
    every step and holds the context once per path; the headline is the ratio at HEADLINE paths.
    most_to_gain: copying plus attention over attention alone, from the fitted constants: an upper
    bound for one path.
    """
    measured, best = overheads(report.of(RTimed)), predicted_r(report)
    assert best is not None
    assert report.fitted is not None
    costs = report.fitted.costs
    ratios = {
        "predicted_over_best_overhead": measured[best].median
        / min(timing.median for timing in measured.values()),
        "most_to_gain_one_path": 1 + costs.copy_row / costs.spare_row,
    }
    for case, timings in found.items():
        copying, *ours, dynamic, static = (timing.median for timing in timings.values())
        fastest = min(ours[0], ours[2])
        key = f"over_best_{'step' if case.whole else 'kv'}_{case.paths}_paths_{case.context}"
        ratios |= {f"copying_{key}": copying / fastest}
        ratios |= {f"concat_{key}": dynamic / fastest, f"static_{key}": static / fastest}
    ratios["concat_over_best_at_2048"] = ratios[f"concat_over_best_kv_{HEADLINE}_paths_{LONGEST}"]
    return ratios


def main() -> None:
    parser = command_line(__doc__, quick="fewer layers and rows")
    offer_device(parser)
    options = parser.parse_args()
    placement = Placement.of(options)
    torch.set_num_threads(options.threads)
    plain, ours = load(6 if options.quick else 30, placement)
    report = sweep(ours.kv_shape, 256 if options.quick else 512, MIN_REPEATS)
    found: dict[Case, Steps] = {}
    for case in cases(options.quick):
        console.print(f"{replace(case)} ...")
        competitors = field_of(plain, ours, case, predicted(report, case))
        measures = {each.name: each.seconds_per_step for each in competitors}
        found[case] = take_turns(measures, MIN_REPEATS)
    ratios = ratios_of(report, found)
    parts = [sweep_table(report), *(table(timings, case) for case, timings in found.items())]
    parts.append(ratio_lines(ratios))
    seconds = {
        str(case): {name: timing.seconds for name, timing in timings.items()}
        for case, timings in found.items()
    }
    origin = where(f"{placement}, {ours.kv_shape.layers} layers", placement.device)
    publish(options, origin, "\n".join(parts), {"seconds": seconds, "ratios": ratios})


if __name__ == "__main__":
    main()
