"""How the weights of a GGUF file can be held: seconds to load, to the first token and of a step;
bytes; and what fewer bits change in the answers.
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
from eab.figures.timings import as_long, with_spread
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
class Way:
    """How weights are held: their format, and their layout if they are as loaded."""

    weights: str
    layout: str = AUTO

    def load(self) -> HuggingFaceModel:
        names = {"weights": self.weights, "layout": self.layout}
        return load_model(SMOLLM2.name, device="cpu", dtype="float32", **names)


@dataclass(frozen=True)
class Agreement:
    """How the answers with other weights agree with those in float32."""

    # share of the places of float32's greedy answers where the most likely token is the same
    same_token: float
    same_answers: int  # that stay the same from the first to the last token
    answers: int
    divergence: float  # mean KL of the next token from float32, in nats, at these places


def ways() -> tuple[dict[str, Way], dict[str, str]]:
    """All ways to be had here, by name, float32 also in its fastest layout, which is found here, so
    that no timed loading contains the search; and why the others cannot be had.
    """
    fastest = Way(AS_LOADED).load().stored.layout
    found = {f"float32, {layout}": Way(AS_LOADED, layout) for layout in (PLAIN, fastest)}
    refused = {}
    for name in FORMATS:
        try:
            Way(name).load()
        except ModelError as error:
            refused[name] = str(error)
        else:
            found[name] = Way(name)
    return found, refused


def loading(way: Way) -> Measure:
    """Seconds to load the model; the previous one is no longer in memory."""
    load = timed(way.load)

    def measure() -> float:
        gc.collect()
        return load()

    return measure


def first_token(way: Way, threads: int) -> Measure:
    """Seconds of a process that imports, loads, and generates one token."""
    command = [sys.executable, "-m", "eab", "run", QUESTION, "--model", SMOLLM2.name]
    command += ["--device", "cpu", "--dtype", "float32"]
    command += ["--weights", way.weights, "--layout", way.layout]
    command += ["--policy", "greedy", "--max-new-tokens", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    run = partial(subprocess.run, command, check=True, capture_output=True)
    return timed(partial(run, cwd=ROOT, env=environment))


def seconds_by_transformers() -> float:
    """To load tokenizer and model from the file as transformers does it, once."""
    place: dict[str, Any] = {"gguf_file": SMOLLM2.file.name}
    start = time.perf_counter()
    AutoTokenizer.from_pretrained(SMOLLM2.file.parent, **place)
    AutoModelForCausalLM.from_pretrained(SMOLLM2.file.parent, dtype=torch.float32, **place)
    return time.perf_counter() - start


def greedy_answers(model: HuggingFaceModel) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Token ids of each question as the chat template makes it, and of the model's answer."""
    config = BranchingConfig(policy="greedy", chat=True, max_new_tokens=NEW_TOKENS)
    runs = [fold(event_stream(model, Request(question, config))) for question in QUESTIONS]
    return [(run.started.prompt_tokens, run.samples[0].token_ids) for run in runs]


def agreements(models: Mapping[str, HuggingFaceModel]) -> dict[str, Agreement]:
    """How each model agrees with the first one, on the first one's greedy answers.

    An answer stays the same as long as each of its tokens is the most likely one after those
    before it, so one pass per answer tells it.
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
            cells.append("" if name == BASE else as_long(timings[name], timings[BASE]))
        ours = agreement[name]
        cells += [f"{ours.same_token:.1%}", f"{ours.same_answers} of {ours.answers}"]
        rows.append([*cells, f"{ours.divergence:.4f}"])
    return markdown_table(heads, rows)


def measure_formats(threads: int, rounds: int, step_rounds: int) -> tuple[str, dict[str, Any]]:
    """All ways -> text, and the figures as data."""
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
