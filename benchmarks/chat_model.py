"""A real chat model, SmolLM2-135M-Instruct in a 4-bit GGUF file: a tree of answers against
independent answers, and ways to hold the weights.

    python benchmarks/chat_model.py [--part tree|formats] [--paths 8 16] [--quick] [--json FILE] [--table FILE]

The other engine benchmarks use random weights and texts of a fixed length. Here the model decides
where each text ends. The tables therefore show seconds per job and seconds per 1,000 tokens.

`tree`: a short question and a text to summarize, through the chat template, with at most 8 and 16
texts of 48 tokens. The tree uses the page's starting settings, except for a lower minimum weight.
The engine, transformers and llama.cpp sample as many independent texts with the same temperature
and top-p. transformers uses the same weights in float32; llama.cpp (package xllamacpp, in its own
process with as many threads) uses the same file and a float32 copy of it. All competitors take
turns, after a short warm-up job each.

`formats`: float32 in its plain and its fastest layout, bfloat16, int8 and int4. Interleaved rounds
time loading, a process that generates one token, and a decode step. The tables also show the bytes,
and how well the greedy answers agree.

Figures are medians with quartiles (eab.timing); ratios are ratios of medians. `--quick` makes one
round with few, short texts, which is not enough for comparisons.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for app, scripts and training

import chat_formats
import chat_tree
import torch
from published import command_line, publish, where
from transformers.utils import logging

from eab.models.packaged import SMOLLM2
from eab.timing import MIN_REPEATS

PARTS: Final = ("tree", "formats")
STEP_ROUNDS: Final = 15
QUICK_TOKENS: Final = 12


def origin() -> str:
    try:
        peer = f"xllamacpp {version('xllamacpp')}"
    except PackageNotFoundError:
        peer = "no xllamacpp"
    return where(f"{peer}, {SMOLLM2.file.name}")


def main() -> int:
    parser = command_line(
        __doc__, quick=f"one round of {chat_tree.PATHS[0]} texts of {QUICK_TOKENS} tokens"
    )
    parser.add_argument("--part", choices=PARTS, help="run only this part")
    paths = {"type": int, "nargs": "+", "default": chat_tree.PATHS}
    parser.add_argument("--paths", help="most texts of a job; several jobs", **paths)
    options = parser.parse_args()
    if not SMOLLM2.is_here:
        print(
            f"{SMOLLM2.title} is not here; get it: eab models get {SMOLLM2.name}", file=sys.stderr
        )
        return 1
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    rounds = 1 if options.quick else MIN_REPEATS
    parts = PARTS if options.part is None else (options.part,)
    texts: list[str] = []
    result: dict[str, Any] = {}
    if "tree" in parts:
        small = (QUICK_TOKENS, chat_tree.PATHS[:1])
        size = small if options.quick else (chat_tree.NEW_TOKENS, options.paths)
        text, result["tree"] = chat_tree.measure_trees(options.threads, rounds, *size)
        texts.append(text)
    if "formats" in parts:
        step_rounds = 1 if options.quick else STEP_ROUNDS
        found = chat_formats.measure_formats(options.threads, rounds, step_rounds)
        text, result["formats"] = found
        texts.append(text)
    result["ratios"] = {
        name: ratio for part in parts for name, ratio in result[part]["ratios"].items()
    }
    publish(options, origin(), "\n".join(texts), result, mark="chat_model")
    return 0


if __name__ == "__main__":
    sys.exit(main())
