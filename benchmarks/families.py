"""Families of models: how many run with correct results, and what sliding windows cost.

    python benchmarks/families.py [--quick] [--before COMMIT] [--json FILE]

`right_share`: the share of model families that run correctly here, so that every leaf of a tree has
the log-probabilities and entropies of transformers' full forward pass. It counts the families in
transformers' mapping for causal language models that have a tiny configuration by rule
(benchmarks/tiny_by_rule.py) and run in transformers alone. The text is longer than the windows.

`window_over_full`: a decode step of a Mistral with a window in every layer, against one without
windows. `llama_before_over_after`: a decode step of a small Llama with the version of COMMIT,
against this version, as the median step of a process. `batched_over_hybrid`: 20 samples of 40
tokens after a prompt of 300 tokens, by transformers' `generate` in one batch against the tree, with
a hybrid of 100 million parameters (LFM2: two layers with a state for each one with rows). Only this
one can use processor time. Within each ratio, the alternatives take turns.
"""

import copy
import logging
import statistics
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Final

import torch
from published import (
    clock_of,
    command_line,
    markdown_table,
    offer_processor_time,
    publish,
    where,
)
from tiny_by_rule import FAMILIES, tiny_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Lfm2Config,
    MistralConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from eab.caches.timing import prefilled_tree, time_step
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.errors import ModelError
from eab.models.loading import wrap_model
from eab.models.sources import EMBEDDED_FOLDER
from eab.models.transformers_model import TransformersModel
from eab.run import RunState, fold
from eab.timing import Clock, Measure, Timing, take_turns

ROOT: Final = Path(__file__).resolve().parents[1]
BEFORE: Final = "e7c8e34"  # the last version in which all layers had to be alike
TOLERANCE: Final = 3e-3
# Token ids, because the tokenizer belongs to another model
PROMPT: Final = tuple(2 + 13 * index % 60 for index in range(20))
CONFIG: Final = BranchingConfig(
    max_new_tokens=12, max_paths=5, entropy_threshold=0.5, temperature=2
)
PATHS, ROWS, STEPS = 20, 300, 40
SAMPLES: Final = BranchingConfig(max_new_tokens=STEPS, max_paths=PATHS, policy="independent")
HYBRID: Final = Lfm2Config(
    vocab_size=16384,
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=14,
    num_attention_heads=12,
    num_key_value_heads=4,
    layer_types=["full_attention" if at % 3 == 2 else "conv" for at in range(14)],
    bos_token_id=None,
    eos_token_id=None,
)


def judge(family: str, tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """A one-word verdict on a family, and the reason or the way in which it runs."""
    for dtype in (torch.float64, torch.float32):
        try:
            plain = tiny_model(family, dtype)
        except Exception as error:
            return "no configuration", _short(error)
        try:
            with torch.inference_mode():
                plain(torch.tensor([PROMPT]), use_cache=False)
            break
        except Exception as error:
            if dtype == torch.float32:
                return "no configuration", f"transformers alone fails: {_short(error)}"
    try:
        ours = wrap_model(copy.deepcopy(plain), tokenizer, family)
    except ModelError as error:
        return "refused", _short(error)
    run = fold(event_stream(ours, Request("", CONFIG, token_ids=PROMPT)))
    worst = largest_error(run, plain)
    return ("right", way(ours)) if worst < TOLERANCE else ("wrong", f"by {worst:.2g}")


def way(model: TransformersModel) -> str:
    """How a model runs: its kind of cache and attention."""
    if (own := model.kv_shape.own) is not None:
        return "tree and states" if own.shared_layers else "own cache"
    return "tree, own attention" if model.kv_shape.own_attention else "tree"


@torch.inference_mode()
def largest_error(run: RunState, plain: PreTrainedModel) -> float:
    """The largest error of the log-probabilities and entropies of all leaves."""
    errors = [0.0]
    for sample in run.samples:
        new = torch.tensor(sample.token_ids)
        text = torch.tensor([[*PROMPT, *sample.token_ids]])
        logits = plain(text, use_cache=False).logits[0, len(PROMPT) - 1 : -1].double()
        known = (logits / CONFIG.temperature).log_softmax(-1)
        log_probs = known.gather(1, new[:, None])[:, 0]
        entropies = torch.special.entr(known.exp()).sum(-1)
        for ours, theirs in ((sample.log_probs, log_probs), (sample.entropies, entropies)):
            errors.append((torch.tensor(ours, dtype=torch.float64) - theirs).abs().max().item())
    return max(errors)


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:160] if str(error) else type(error).__name__


def window_steps(repeats: int) -> dict[str, Timing]:
    """Time decode steps with a window in every layer and without windows, in turns."""
    return take_turns({name: _step(window) for name, window in WINDOWS.items()}, repeats)


WINDOWS: Final = {"with a window of 64": 64, "without": None}


def _step(window: int | None) -> Measure:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        sliding_window=window,
    )
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    model = wrap_model(AutoModelForCausalLM.from_config(config), tokenizer, "mistral")
    cache = prefilled_tree(model.kv_shape, ROWS, 400, padded=False, paths=PATHS, steps=400)
    forward = partial(time_step, lambda batch: model.forward([batch]), cache)
    return lambda: forward(range(1, PATHS + 1)).seconds


def hybrid_runs(repeats: int, clock: Clock) -> dict[str, Timing]:
    """Time samples of a hybrid by `generate` in one batch and by the tree, in turns."""
    torch.manual_seed(0)
    plain = AutoModelForCausalLM.from_config(HYBRID).eval()
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    ours = wrap_model(copy.deepcopy(plain), tokenizer, "lfm2")
    prompt = torch.randint(2, HYBRID.vocab_size, (ROWS,)).tolist()

    def tree() -> float:
        start = clock()
        run = fold(event_stream(ours, Request("", SAMPLES, token_ids=tuple(prompt))))
        seconds = clock() - start
        assert sum(len(sample.token_ids) for sample in run.samples) == PATHS * STEPS
        return seconds

    @torch.inference_mode()
    def batched() -> float:
        tokens, start = torch.tensor([prompt]), clock()
        made = plain.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            do_sample=True,
            num_return_sequences=PATHS,
            max_new_tokens=STEPS,
            top_k=0,
            pad_token_id=0,
        )
        seconds = clock() - start
        assert made.shape == (PATHS, ROWS + STEPS)
        return seconds

    return take_turns({"batched": batched, "tree": tree}, repeats)


def llama_rounds(before: str, rounds: int, threads: int) -> list[tuple[float, float]]:
    """For each round, the seconds of a step with the version of `before` and with this version."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", ROOT, "archive", before, "eab", "assets"], check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        return [
            (_llama_step(Path(folder), threads), _llama_step(ROOT, threads)) for _ in range(rounds)
        ]


def _llama_step(version: Path, threads: int) -> float:
    program = [sys.executable, str(ROOT / "benchmarks" / "step_of_llama.py"), str(threads)]
    done = subprocess.run(
        program, env={"PYTHONPATH": str(version)}, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def main() -> None:
    parser = command_line(__doc__, quick="fewer rounds")
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT")
    offer_processor_time(parser)
    parser.add_argument("--only", nargs="*", metavar="FAMILY", help="judge these families only")
    options = parser.parse_args()
    clock = clock_of(parser, options)
    # One thread for the tiny models: with two, PyTorch's grouped products of experts can hang.
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    found = {}
    for family in options.only or FAMILIES:
        try:
            found[family] = judge(family, tokenizer)
        except Exception as error:  # one family must not hide the others
            found[family] = ("failed", _short(error))
        print(family, *found[family], sep=": ", file=sys.stderr)
    words = [word for word, _ in found.values() if word != "no configuration"]
    torch.set_num_threads(options.threads)
    windows = window_steps(10 if options.quick else 40)
    hybrid = hybrid_runs(3 if options.quick else 9, clock)
    llama = llama_rounds(options.before, 5 if options.quick else 15, options.threads)
    before, after = (statistics.median(side) for side in zip(*llama, strict=True))
    ratios = {
        "right_share": words.count("right") / len(words),
        "llama_before_over_after": before / after,
        "window_over_full": windows["with a window of 64"].median / windows["without"].median,
        "batched_over_hybrid": hybrid["batched"].median / hybrid["tree"].median,
    }
    lines = [[name, f"{value:.2f}"] for name, value in ratios.items()]
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    text = f"{markdown_table(['ratio', ''], lines)}\n{len(words)} families: {counts}\n"
    publish(options, where("float32"), text, {"families": found, "ratios": ratios})


if __name__ == "__main__":
    main()
