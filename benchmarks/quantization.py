"""Weights with fewer bits: the time of whole decode steps, bytes, batch invariance and quality.

    python benchmarks/quantization.py [--quick] [--device cuda] [--dtype bfloat16] [--json FILE] [--table FILE] [--held-out FILE] [--peer PYTHON]

For every shape and number of rows (live paths), all formats take turns to make one decode step of
the engine after a prompt of 300 tokens, directly after a step that is not timed. Figures are medians
with quartiles. The baseline is the weights as loaded, in the layout that is fastest at this number
of rows. `alone_over_beside` is the largest difference between a row's result alone and among other
rows, over all layers and formats. Quality is measured with the embedded model on held-out texts (see
quantization_quality.py). `--quick` makes 5 rounds instead of 15, and measures quality on fewer texts.
"""

import argparse
import json
import math
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from decode_steps import (
    PROMPT,
    Steps,
    is_as_loaded,
    loaded_step,
    steps_of,
    steps_table,
    time_steps,
)
from published import (
    Placement,
    clock_of,
    command_line,
    offer_device,
    offer_processor_time,
    publish,
    where,
)
from quantization_kv import kv_attention
from quantization_quality import quality_table, unusable_formats
from rich.console import Console
from shapes import plain_model, same_weights
from torch import nn
from transformers import AutoTokenizer
from transformers.utils import logging

from eab.caches.shape import KVShape
from eab.labs.quantization.held_out import FABLES
from eab.models.huggingface import HuggingFaceModel
from eab.models.quantized.layer import QuantizedLinear
from eab.models.sources import EMBEDDED_FOLDER
from eab.models.stored_weights import store_weights
from eab.timing import Clock
from eab.weight_formats import AS_LOADED, AUTO, LAYOUTS, PLAIN, WEIGHT_FORMATS

PEER_WEIGHTS = ("Q8_0", "Q4_0")
SHAPES = ("135m", "0.5b")
ROWS = (1, 8, 20, 64)
DEFAULT = "int8"  # the format that the documentation recommends for speed
console = Console(stderr=True)


@dataclass
class Stored:
    model: HuggingFaceModel
    linear_bytes: int  # of its linear layers, including the output layer, without biases
    loaded_bytes: int  # of the same layers as loaded


def stored_models(shape: str, placement: Placement) -> dict[str, Stored]:
    """The model of this shape in every format, from the same random weights."""
    plain = plain_model(shape, placement)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    loaded_bytes = sum(
        layer.weight.nbytes for layer in plain.modules() if isinstance(layer, nn.Linear)
    )
    models = {}
    ways = {
        f"{placement.dtype_name}, {layout}": (AS_LOADED, layout)
        for layout in (LAYOUTS if placement.device == "cpu" else (PLAIN,))
    }
    formats = WEIGHT_FORMATS.keys() - unusable_formats(placement.device) - {AS_LOADED}
    ways |= {weights: (weights, AUTO) for weights in WEIGHT_FORMATS if weights in formats}
    for name, (weights, layout) in ways.items():
        console.print(f"shape {shape}: {name} ...")
        twin = same_weights(plain)
        stored = store_weights(twin, weights, layout)
        model = HuggingFaceModel(twin, tokenizer, shape, stored)
        linear_bytes = loaded_bytes if weights == AS_LOADED else _linear_bytes(twin)
        models[name] = Stored(model, linear_bytes, loaded_bytes)
    return models


def _linear_bytes(model: nn.Module) -> int:
    """Bytes of the tensors of all linear layers, including those that were not quantized."""
    tensors = [
        tensor
        for module in model.modules()
        for tensor in (
            module.buffers()
            if isinstance(module, QuantizedLinear)
            else [module.weight]
            if isinstance(module, nn.Linear)
            else []
        )
    ]
    return sum(tensor.nbytes for tensor in tensors)


class Peer:
    """llama.cpp with random weights of the same shape, run by a Python that has it installed."""

    def __init__(self, python: Path, model: HuggingFaceModel, weights: str, repeats: int) -> None:
        config: Any = model._model.config
        shape = {
            "layers": config.num_hidden_layers,
            "hidden": config.hidden_size,
            "inner": config.intermediate_size,
            "heads": config.num_attention_heads,
            "kv_heads": config.num_key_value_heads,
            "vocab": config.vocab_size,
            "context": config.max_position_embeddings,
            "weights": weights,
            "threads": torch.get_num_threads(),
            "prompt": PROMPT,
            "steps": steps_of(repeats),
        }
        command = [str(python), str(Path(__file__).with_name("llama_cpp_peer.py"))]
        self._process = subprocess.Popen(
            [*command, json.dumps(shape)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._answer() != "ready":
            raise SystemExit(f"llama.cpp could not load its model with {python}")

    def step(self, rows: int) -> float:
        """Ask for one decode step, and return its seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rows}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("llama.cpp ended early; its message is above")
        return line.strip()


@torch.inference_mode()
def alone_over_beside(models: Mapping[str, Stored]) -> float:
    """The largest difference between a row's result alone and among other rows, some of which are
    30 times as large, over all layer shapes in all formats.
    """
    largest, seen = 0.0, set()
    for weights, stored in models.items():
        for layer in stored.model._model.modules():
            if not isinstance(layer, QuantizedLinear):
                continue
            key = (weights, layer.in_features, layer.out_features)
            if key not in seen:
                seen.add(key)
                largest = max(largest, _difference(layer, stored.model.kv_shape))
    return largest


def _difference(layer: nn.Module, shape: KVShape) -> float:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(max(ROWS), int(layer.in_features), generator=generator)
    x = x.to(shape.device, shape.dtype)
    x[1::2] *= 30
    whole = layer(x)
    return max(
        (layer(x[start : start + rows]) - whole[start : start + rows]).abs().max().item()
        for rows in ROWS
        for start in (0, max(ROWS) - rows)
    )


def ratios_of(all_steps: Mapping[str, Steps], bytes_ratio: float, dtype: str) -> dict[str, float]:
    """The step times as loaded over those of each format that this machine can compute."""

    def faster(shape: str, weights: str, rows: int) -> float:
        steps = all_steps[shape]
        if weights not in steps:
            return math.nan
        return loaded_step(steps, rows).median / steps[weights][rows].median

    ratios = {
        f"{dtype}_over_int8_20rows_05b": faster("0.5b", "int8", 20),
        f"{dtype}_over_int4_1row_05b": faster("0.5b", "int4", 1),
        f"{dtype}_over_bfloat16_20rows_05b": faster("0.5b", "bfloat16", 20),
        f"weights_bytes_int4_over_{dtype}": bytes_ratio,
        "worst_default": min(faster(shape, DEFAULT, rows) for shape in all_steps for rows in ROWS),
    }
    targets = {name: ratio for name, ratio in ratios.items() if not math.isnan(ratio)}
    return targets | {
        f"{dtype}_over_{weights}_{rows}rows_{shape}": faster(shape, weights, rows)
        for shape, steps in all_steps.items()
        for weights in steps
        for rows in ROWS
        if not is_as_loaded(weights)
    }


def measure_speed(
    options: argparse.Namespace, placement: Placement, clock: Clock
) -> tuple[str, dict[str, Any]]:
    """Measure steps, bytes and batch invariance for all shapes. Returns text and figures."""
    repeats = 5 if options.quick else 15
    tables, all_steps, seconds, difference, bytes_ratio = [], {}, {}, 0.0, math.nan
    for shape in SHAPES:
        models = stored_models(shape, placement)
        with ExitStack() as stack:
            peers = {}
            for weights in PEER_WEIGHTS if options.peer is not None else ():
                peer = Peer(options.peer, models["int8"].model, weights, repeats)
                stack.callback(peer.close)
                peers[f"llama.cpp {weights}"] = peer.step
            ours = {weights: stored.model for weights, stored in models.items()}
            all_steps[shape] = time_steps(ours, ROWS, repeats, clock, peers)
        held = {weights: stored.linear_bytes for weights, stored in models.items()}
        tables.append(f"Shape {shape}. {steps_table(all_steps[shape], 'linear layers', held)}")
        difference = max(difference, alone_over_beside(models))
        if "int4" in models:
            bytes_ratio = models["int4"].linear_bytes / models["int4"].loaded_bytes
        seconds[shape] = {
            weights: {rows: timing.seconds for rows, timing in by_rows.items()}
            for weights, by_rows in all_steps[shape].items()
        }
    text, kv_ratios = kv_attention(placement, repeats, clock)
    ratios = (
        ratios_of(all_steps, bytes_ratio, placement.dtype_name)
        | {"alone_over_beside": difference}
        | kv_ratios
    )
    tables += [
        f"The result of a row alone and among others differs by {difference:g} at most.\n",
        text,
    ]
    return "\n".join(tables), {"seconds": seconds, "ratios": ratios}


def main() -> None:
    parser = command_line(__doc__, quick="5 rounds instead of 15, and fewer texts")
    parser.add_argument(
        "--held-out",
        type=Path,
        default=FABLES,
        metavar="FILE",
        help="texts for the quality, separated by <|endoftext|>; by default the fables that come "
        "with the project",
    )
    offer_device(parser)
    offer_processor_time(parser)
    parser.add_argument(
        "--peer",
        type=Path,
        metavar="PYTHON",
        help="the Python of an environment with llama-cpp-python and gguf: time llama.cpp, too",
    )
    parser.add_argument("--only", choices=["speed", "quality"], help="run only this part")
    options = parser.parse_args()
    placement = Placement.of(options)
    for why in unusable_formats(placement.device).values():
        console.print(f"left out: {why}")
    if not options.held_out.is_file():
        parser.error(f"there is no file {options.held_out}")
    clock = clock_of(parser, options)
    if options.processor_time and options.peer is not None:
        parser.error("llama.cpp is timed by the clock; leave --processor-time out")
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    text, result = "", {}
    if options.only != "quality":
        text, result = measure_speed(options, placement, clock)
    if options.only != "speed":
        console.print("quality ...")
        text += "\n" + quality_table(options.held_out, 20 if options.quick else 60)
    publish(options, where(f"{placement} around the linear layers", placement.device), text, result)


if __name__ == "__main__":
    main()
