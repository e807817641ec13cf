"""Record the measurement and the run that the page Quantization opens with.

    python scripts/record_quantization.py [--known | --run]

It is made as in the app: with the embedded model, and one core left free for the page. This takes a
minute, and nothing else should run on the machine. With `--known`, only the prompts with known
entropies are written, from the choices that the embedded model was trained on; with `--run`, only
the first bundled run with weights in four bits.
"""

import argparse
import json
import os
from collections import defaultdict
from functools import partial

import torch
from rich.progress import Progress
from transformers import AutoTokenizer

from app.server import bundled_runs
from eab import record
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.models.loading import EMBEDDED_FOLDER, load_model
from eab.quantization import held_out
from eab.quantization.experiments import measure_formats
from eab.quantization.results import FormatReport, dumps
from eab.run import fold
from training.choices import FIXED_CHOICES, entropy_bits, known_distributions


def write_known_entropies() -> None:
    """Write each prompt with the entropy of the first token of its next word."""
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    known = {}
    for prompt, words in known_distributions(FIXED_CHOICES).items():
        first: defaultdict[str, float] = defaultdict(float)
        for word, probability in words.items():
            first[str(tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0])] += (
                probability
            )
        known[prompt] = round(entropy_bits(first), 6)
    path = held_out.FOLDER / "known_entropies.json"
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def record_run() -> None:
    """Make the first bundled run again with weights in four bits."""
    started = fold(bundled_runs.events_of(bundled_runs.recordings()[0])).started
    model = load_model("embedded", "cpu", "float32", weights="int4")
    request = Request(started.prompt, started.config, started.continued_tokens)
    record.save(list(generate(model, request)), bundled_runs.QUANTIZED)


def measure() -> None:
    """Measure all formats and write the report."""
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    report = FormatReport()
    prompt = bundled_runs.events_of(bundled_runs.recordings()[0])[0].prompt
    with Progress() as bar:
        task = bar.add_task("formats", total=1.0)
        load = partial(load_model, "embedded", "cpu", "float32")
        for event in measure_formats(load, prompt):
            report.apply(event)
            bar.update(task, completed=report.progress.share, description=report.progress.words)
    bundled_runs.FORMATS.write_text(dumps(report), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--known", action="store_true")
    only.add_argument("--run", action="store_true")
    options = parser.parse_args()
    if options.known:
        write_known_entropies()
    else:
        record_run()
        if not options.run:
            measure()
