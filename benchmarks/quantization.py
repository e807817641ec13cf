"""Weights with fewer bits: the time of whole decode steps, and bytes.

    python benchmarks/quantization.py [--quick] [--device cuda] [--dtype bfloat16] [--json FILE] [--table FILE]

For every shape and number of rows (live paths), all formats take turns to make one decode step of the
engine after a prompt of 300 tokens, directly after a step that is not timed. Figures are medians with
quartiles. The baseline is the weights as loaded, in the layout that is fastest at this number of rows.
What the formats change in the predictions is measured by scripts/record_measurements.py weights.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from published import (
    Placement,
    clocked,
    command_line,
    markdown_table,
    mib,
    offer_device,
    publish,
    seconds_of,
    where,
)
from rich.console import Console
from shapes import plain_model, same_weights
from torch import nn
from transformers import AutoTokenizer

from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.quantized.formats import FORMATS, refuse_if_unusable
from eab.engine.models.quantized.layer import QuantizedLinear
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.engine.models.weights import store_weights
from eab.errors import ModelError
from eab.formatting import counted
from eab.labs.decode_steps import prefilled_tree, time_step
from eab.timing import Clock, Measure, Timing, comparison, fastest, take_turns, timed
from eab.weight_formats import AS_LOADED, AUTO, LAYOUTS, PLAIN, WEIGHT_FORMATS

PROMPT: Final = 300  # tokens before the step
SHAPES: Final = ("135m", "0.5b")
ROWS: Final = (1, 8, 20, 64)
console = Console(stderr=True)
Steps = Mapping[str, Mapping[int, Timing]]  # by format and rows


def unusable_formats(device: str) -> dict[str, str]:
    """The formats that this device cannot compute, with the reasons."""
    found = {}
    for name in FORMATS:
        try:
            refuse_if_unusable(name, torch.device(device))
        except ModelError as error:
            found[name] = str(error)
    return found


def stored_models(
    shape: str, placement: Placement
) -> tuple[dict[str, HuggingFaceModel], dict[str, int]]:
    """The model of this shape in every format, from the same random weights, and the bytes of its
    linear layers.
    """
    plain = plain_model(shape, placement)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    layouts = LAYOUTS if placement.device == "cpu" else (PLAIN,)
    ways = {f"{placement.dtype_name}, {layout}": (AS_LOADED, layout) for layout in layouts}
    unusable = {AS_LOADED, *unusable_formats(placement.device)}
    ways |= {weights: (weights, AUTO) for weights in WEIGHT_FORMATS if weights not in unusable}
    models, held = {}, {}
    for name, way in ways.items():
        console.print(f"shape {shape}: {name} ...")
        twin = same_weights(plain)
        stored = store_weights(twin, *way)
        models[name] = HuggingFaceModel(twin, tokenizer, shape, stored)
        held[name] = linear_bytes(plain if way[0] == AS_LOADED else twin)
    return models, held


def linear_bytes(model: nn.Module) -> int:
    """Bytes of the tensors of all linear layers, including those that were not quantized."""
    layers = [one for one in model.modules() if isinstance(one, nn.Linear | QuantizedLinear)]
    return sum(
        tensor.nbytes
        for layer in layers
        for tensor in (layer.buffers() if isinstance(layer, QuantizedLinear) else [layer.weight])
    )


def decode_step(model: HuggingFaceModel, paths: int, repeats: int, clock: Clock) -> Measure:
    """Times a decode step right after another one, as in a run. The cache has room for all rounds,
    so no growth is timed.
    """
    steps = 2 * (repeats + 1)
    cache = prefilled_tree(model.kv_shape, PROMPT, steps, padded=False, paths=paths, steps=steps)

    def step() -> None:
        time_step(lambda batch: model.forward([batch]), cache, range(1, paths + 1))

    def second_of_two() -> float:
        step()
        return timed(step, clock)()

    return second_of_two


def loaded_step(steps: Steps, rows: int) -> Timing:
    """The step time of the layout of the weights as loaded that is fastest at this number of rows."""
    layouts = {
        name: by_rows[rows] for name, by_rows in steps.items() if name.partition(", ")[2] in LAYOUTS
    }
    return layouts[fastest(layouts)]


def steps_table(shape: str, steps: Steps, held: Mapping[str, int]) -> str:
    """Milliseconds with quartiles, and the speed against weights as loaded."""
    rows = []
    for name, by_rows in steps.items():
        cells = []
        for count, timing in by_rows.items():
            base = loaded_step(steps, count)
            ms = [f"{1000 * value:.0f}" for value in (timing.median, timing.low, timing.high)]
            against = "fastest" if timing is base else comparison(timing, base)
            cells.append(f"{ms[0]} ({ms[1]}-{ms[2]}): {against}")
        rows.append([name, *cells, mib(held[name])])
    heads = ["weights", *(counted(count, "row") for count in ROWS), "linear layers"]
    return (
        f"Shape {shape}, one decode step after {PROMPT} tokens: milliseconds (quartiles), and how "
        f"fast against the fastest layout of the weights as loaded.\n\n{markdown_table(heads, rows)}"
    )


def measure(placement: Placement, repeats: int, clock: Clock) -> tuple[str, dict[str, Any]]:
    """Measure steps and bytes for all shapes. Returns text and figures."""
    texts, seconds, ratios = [], {}, {}
    for shape in SHAPES:
        models, held = stored_models(shape, placement)
        steps: dict[str, dict[int, Timing]] = {name: {} for name in models}
        for rows in ROWS:
            console.print(f"{rows} rows, {repeats} rounds ...")
            measures = {
                name: decode_step(model, rows, repeats, clock) for name, model in models.items()
            }
            for name, timing in take_turns(measures, repeats).items():
                steps[name][rows] = timing
        ratios |= {
            f"{shape}, {rows} rows: as loaded over {name}": loaded_step(steps, rows).median
            / timing.median
            for name, by_rows in steps.items()
            for rows, timing in by_rows.items()
        }
        texts.append(steps_table(shape, steps, held))
        seconds[shape] = {name: seconds_of(by_rows) for name, by_rows in steps.items()}
    return "\n".join(texts), {"seconds": seconds, "ratios": ratios}


def main() -> None:
    parser = command_line(__doc__, quick="5 rounds instead of 15")
    offer_device(parser)
    options, clock = clocked(parser)
    placement = Placement.of(options)
    for why in unusable_formats(placement.device).values():
        console.print(f"left out: {why}")
    text, result = measure(placement, 5 if options.quick else 15, clock)
    origin = where(f"{placement} around the linear layers", placement.device)
    publish(options, origin, text, result)


if __name__ == "__main__":
    main()
