"""Ways to hold the weights of a GGUF file: their loading time, time to the first token, step time
and bytes, and how the answers change with fewer bits.
"""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from chat_prompts import QUESTION, QUESTIONS
from decode_steps import MIB, Steps, steps_table, time_steps
from published import markdown_table
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.errors import ModelError
from eab.figures.timings import ratio_words, with_spread
from eab.formatting import as_sentence
from eab.labs.quantization.measure import divergence, log_probabilities
from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import load_model
from eab.models.packaged import SMOLLM2
from eab.run import fold
from eab.timing import Measure, Timing, take_turns, timed
from eab.weight_formats import AS_LOADED, AUTO, PLAIN

ROOT: Final = Path(__file__).resolve().parents[1]
ROWS: Final = (1, 8, 16, 64)
FORMATS: Final = ("bfloat16", "int8", "int8-weight-only", "int4")
BASE: Final = f"float32, {PLAIN}"
NEW_TOKENS: Final = 48
console = Console(stderr=True)


@dataclass(frozen=True)
class WeightSetup:
    """A way to hold weights: their format and, for weights as loaded, their layout."""

    weights: str
    layout: str = AUTO

    def load(self) -> HuggingFaceModel:
        names = {"weights": self.weights, "layout": self.layout}
        return load_model(SMOLLM2.name, device="cpu", dtype="float32", **names)


@dataclass(frozen=True)
class Agreement:
    """How well a model with other weights agrees with the float32 model, on its greedy answers."""

    # share of positions in the float32 answers at which the most likely token is the same
    same_token: float
    same_answers: int  # answers in which every token stays the same
    answers: int
    divergence: float  # mean KL divergence from the float32 distribution at these positions, nats


def ways() -> tuple[dict[str, WeightSetup], dict[str, str]]:
    """The ways available on this machine, by name, and the reasons why the others are not. The
    search for the fastest float32 layout happens here, so that it is not part of the timed loading.
    """
    fastest = WeightSetup(AS_LOADED).load().stored.layout
    found = {f"float32, {layout}": WeightSetup(AS_LOADED, layout) for layout in (PLAIN, fastest)}
    refused = {}
    for name in FORMATS:
        try:
            WeightSetup(name).load()
        except ModelError as error:
            refused[name] = str(error)
        else:
            found[name] = WeightSetup(name)
    return found, refused


def loading(way: WeightSetup) -> Measure:
    """Times loading the model, after the previous model has been freed."""
    load = timed(way.load)

    def measure() -> float:
        gc.collect()
        return load()

    return measure


def first_token(way: WeightSetup, threads: int) -> Measure:
    """Times a process that imports the package, loads the model and generates one token."""
    command = [sys.executable, "-m", "eab", "run", QUESTION, "--model", SMOLLM2.name]
    command += ["--device", "cpu", "--dtype", "float32"]
    command += ["--weights", way.weights, "--layout", way.layout]
    command += ["--policy", "greedy", "--max-new-tokens", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    run = partial(subprocess.run, command, check=True, capture_output=True)
    return timed(partial(run, cwd=ROOT, env=environment))


def seconds_by_transformers() -> float:
    """Seconds that transformers takes to load tokenizer and model from the file, measured once."""
    place: dict[str, Any] = {"gguf_file": SMOLLM2.file.name}
    start = time.perf_counter()
    AutoTokenizer.from_pretrained(SMOLLM2.file.parent, **place)
    AutoModelForCausalLM.from_pretrained(SMOLLM2.file.parent, dtype=torch.float32, **place)
    return time.perf_counter() - start


def greedy_answers(model: HuggingFaceModel) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each question: its token ids after the chat template, and those of the model's answer."""
    config = BranchingConfig(policy="greedy", chat=True, max_new_tokens=NEW_TOKENS)
    runs = [fold(event_stream(model, Request(question, config))) for question in QUESTIONS]
    return [(run.started.prompt_tokens, run.samples[0].token_ids) for run in runs]


def agreements(models: Mapping[str, HuggingFaceModel]) -> dict[str, Agreement]:
    """The agreement of each model with the first model, on the first model's greedy answers.

    A model gives the same answer if each token is the most likely one after the tokens before it,
    so one forward pass per answer is enough.
    """
    base, *_ = models.values()
    answers = greedy_answers(base)
    found = {}
    for name, model in models.items():
        same, divergences = [], []
        for prompt, answer in answers:
            ids, first = (*prompt, *answer[:-1]), len(prompt) - 1
            wanted, ours = (log_probabilities(each, ids)[first:] for each in (base, model))
            same.append(wanted.argmax(-1) == ours.argmax(-1))
            divergences.append(divergence(wanted, ours))
        found[name] = Agreement(
            float(torch.cat(same).double().mean()),
            sum(bool(answer.all()) for answer in same),
            len(answers),
            float(torch.cat(divergences).mean()),
        )
    return found


def table(
    models: Mapping[str, HuggingFaceModel],
    loads: Mapping[str, Timing],
    firsts: Mapping[str, Timing],
    agreement: Mapping[str, Agreement],
) -> str:
    heads = ["weights", "bytes", "seconds to load (quartiles)", "as long as float32"]
    heads += ["seconds of a process with one token", "as long"]
    heads += ["same next token", "same answers", "KL, nats"]
    rows = []
    for name, model in models.items():
        cells = [name, f"{sum(model.weight_bytes.values()) / MIB:,.0f} MiB"]
        for timings in (loads, firsts):
            cells.append(with_spread(timings[name], "{:.2f}".format))
            cells.append("" if name == BASE else ratio_words(timings[name], timings[BASE]))
        ours = agreement[name]
        cells += [f"{ours.same_token:.1%}", f"{ours.same_answers} of {ours.answers}"]
        rows.append([*cells, f"{ours.divergence:.4f}"])
    return markdown_table(heads, rows)


def measure_formats(threads: int, rounds: int, step_rounds: int) -> tuple[str, dict[str, Any]]:
    """Measure all ways. Returns the text and the figures as data."""
    plainly, (held, refused) = seconds_by_transformers(), ways()
    console.print(f"loading, {rounds} rounds ...")
    loads = take_turns({name: loading(way) for name, way in held.items()}, rounds)
    console.print(f"processes with one token, {rounds} rounds ...")
    firsts = take_turns({name: first_token(way, threads) for name, way in held.items()}, rounds)
    models = {name: way.load() for name, way in held.items()}
    steps = time_steps(models, ROWS, step_rounds, time.perf_counter, {})
    agreement = agreements(models)
    file_bytes = f"{SMOLLM2.bytes / MIB:,.0f} MiB"
    text = (
        f"The file has {file_bytes}. Agreement is over the greedy answers in float32 to "
        f"{len(QUESTIONS)} questions.\n\n{table(models, loads, firsts, agreement)}\n"
        f"`from_pretrained(folder, gguf_file=...)` of transformers takes {plainly:.1f} seconds for "
        "tokenizer and model (one run).\n\n" + steps_table(steps, "all weights", _bytes(models))
    )
    text += "".join(f"\nNot here: {name}. {as_sentence(why)}\n" for name, why in refused.items())
    data = _as_data(plainly, loads, firsts, steps, agreement, _bytes(models))
    return text, data | {"not_here": refused}


def _bytes(models: Mapping[str, HuggingFaceModel]) -> dict[str, int]:
    return {name: sum(model.weight_bytes.values()) for name, model in models.items()}


def _as_data(
    plainly: float,
    loads: Mapping[str, Timing],
    firsts: Mapping[str, Timing],
    steps: Steps,
    agreement: Mapping[str, Agreement],
    weight_bytes: Mapping[str, int],
) -> dict[str, Any]:
    return {
        "seconds": {
            "load": {name: timing.seconds for name, timing in loads.items()},
            "first_token": {name: timing.seconds for name, timing in firsts.items()},
            "steps": {
                name: {rows: timing.seconds for rows, timing in by_rows.items()}
                for name, by_rows in steps.items()
            },
            "load_by_transformers": plainly,
        },
        "weight_bytes": weight_bytes,
        "agreement": {name: asdict(each) for name, each in agreement.items()},
        "ratios": {
            f"transformers over {name}, seconds to load": plainly / timing.median
            for name, timing in loads.items()
        },
    }
