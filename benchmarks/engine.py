"""One step of the tree engine against the bare forward pass, and the whole job against Hugging Face `generate`.

    python benchmarks/engine.py [--quick] [--json FILE] [--table FILE]

The job: N continuations of one prompt by a random model of SmolLM2-135M shape (30 layers, 576, 9 query and 3 KV
heads, vocabulary 49,152; 46,080 KV bytes per row in float32). All competitors run in turn in each round, with the
same weights, prompt, number of new tokens, dtype and threads; the figures are medians over rounds, the ratios are
ratios of medians. KV bytes are measured from the tensors.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from eab.config import BranchingConfig
from eab.engine import step
from eab.events import KvMeasured, StepTimed
from eab.generation import Generation
from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import EMBEDDED_FOLDER, wrap_model

console = Console(stderr=True)


@dataclass
class Job:
    """What is asked of every competitor."""

    prompt: list[int]
    paths: int
    new_tokens: int


@dataclass
class Measured:
    """Medians are taken over `seconds`; kv_bytes at the end of the job, None where there is no cache."""

    seconds: list[float] = field(default_factory=list)
    kv_bytes: int | None = None


def random_model(dtype: torch.dtype, device: str) -> LlamaForCausalLM:
    """SmolLM2-135M's shape with random weights and no stop token, with transformers' own attention."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).to(device=device, dtype=dtype).eval()


def same_weights(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """A second model object on the same tensors, so that the engine's attention function is not set on the first."""
    with torch.device("meta"):
        twin = LlamaForCausalLM(model.config.__class__.from_dict(model.config.to_dict()))
    twin.load_state_dict(model.state_dict(), assign=True)
    twin.tie_weights()
    twin.model.rotary_emb = model.model.rotary_emb
    return twin.eval()


class Tree:
    """This project's engine, stepped directly; every path forks at every step, so all decisions are paid for."""

    def __init__(self, model: HuggingFaceModel, job: Job) -> None:
        self.model, self.job = model, job
        self.whole, self.steps = Measured(), Measured()
        self.distinct_bytes = self.spare_bytes = 0

    def run(self) -> None:
        """One whole job."""
        config = BranchingConfig(max_paths=self.job.paths, max_new_tokens=self.job.new_tokens)
        generation = Generation(self.model, "", self.job.prompt, config, threshold_nats=0.5)
        start = time.perf_counter()
        while generation.live:
            [events] = step(self.model, [generation])
            for event in events:
                self._note(event)
        self.whole.seconds.append(time.perf_counter() - start)

    def _note(self, event: Any) -> None:
        row_bytes = self.model.card.row_bytes
        if isinstance(event, StepTimed) and event.tokens == self.job.paths:
            self.steps.seconds.append(event.seconds)
        elif isinstance(event, KvMeasured):
            self.whole.kv_bytes = event.bytes_held
            self.distinct_bytes = (event.rows_shared + event.rows_private) * row_bytes
            self.spare_bytes = event.rows_spare * row_bytes


class HuggingFace:
    """`generate` of transformers: one sample at a time, or all as one batch."""

    def __init__(self, model: LlamaForCausalLM, job: Job, batch: int) -> None:
        self.model, self.job, self.batch = model, job, batch
        self.whole = Measured()

    def run(self) -> None:
        """One whole job: as many calls as it takes."""
        prompt = torch.tensor([self.job.prompt], device=self.model.device)
        start = time.perf_counter()
        for _ in range(0, self.job.paths, self.batch):
            output: Any = self.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=True,
                num_return_sequences=self.batch,
                max_new_tokens=self.job.new_tokens,
                min_new_tokens=self.job.new_tokens,
                pad_token_id=0,
                return_dict_in_generate=True,
            )
        _synchronize(self.model.device)
        self.whole.seconds.append(time.perf_counter() - start)
        layers = output.past_key_values.layers
        self.whole.kv_bytes = sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)


class BarePass:
    """The floor: the same tokens through the model as loaded, without any cache."""

    def __init__(self, model: LlamaForCausalLM, job: Job) -> None:
        self.model, self.job = model, job
        self.step, self.whole = Measured(), Measured()

    @torch.inference_mode()
    def run(self) -> None:
        """Prefill, then one pass of `paths` tokens per step."""
        device = self.model.device
        prompt = torch.tensor([self.job.prompt], device=device)
        tokens = prompt[:, : self.job.paths]
        begin = time.perf_counter()
        self.model(prompt, use_cache=False, logits_to_keep=1)
        for _ in range(self.job.new_tokens - 1):
            start = time.perf_counter()
            self.model(tokens, use_cache=False)
            _synchronize(device)
            self.step.seconds.append(time.perf_counter() - start)
        self.whole.seconds.append(time.perf_counter() - begin)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(rounds: int, job: Job, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Run all competitors in turn, `rounds` times -> table lines and ratios."""
    plain = random_model(dtype, device)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    tree = Tree(wrap_model(same_weights(plain), tokenizer, "random-135m"), job)
    bare, batched, single = BarePass(plain, job), HuggingFace(plain, job, job.paths), HuggingFace(plain, job, 1)
    competitors: Sequence[tuple[str, Callable[[], None]]] = [
        ("tree engine", tree.run),
        ("bare forward passes", bare.run),
        ("generate, one batch", batched.run),
        ("generate, one by one", single.run),
    ]
    _warm_up(plain, tree, job)
    for number in range(rounds):
        for name, run in competitors:
            console.print(f"round {number + 1} of {rounds}: {name} ...")
            run()
    return _result(tree, bare, batched, single)


def _warm_up(plain: LlamaForCausalLM, tree: Tree, job: Job) -> None:
    short = Job(job.prompt, job.paths, 4)
    for competitor in (Tree(tree.model, short), BarePass(plain, short), HuggingFace(plain, short, job.paths)):
        competitor.run()


def _result(tree: Tree, bare: BarePass, batched: HuggingFace, single: HuggingFace) -> dict[str, Any]:
    median = {
        "tree": statistics.median(tree.whole.seconds),
        "tree_step": statistics.median(tree.steps.seconds),
        "bare_step": statistics.median(bare.step.seconds),
        "bare": statistics.median(bare.whole.seconds),
        "batched": statistics.median(batched.whole.seconds),
        "one_by_one": statistics.median(single.whole.seconds),
    }
    assert tree.whole.kv_bytes is not None
    assert batched.whole.kv_bytes is not None
    assert single.whole.kv_bytes is not None
    return {
        "seconds": median,
        "kv_bytes": {
            "tree_held": tree.whole.kv_bytes,
            "tree_spare": tree.spare_bytes,
            "tree_distinct": tree.distinct_bytes,
            "batched": batched.whole.kv_bytes,
            "one_by_one": single.whole.kv_bytes,
        },
        "ratios": {
            "step_over_bare_pass": median["tree_step"] / median["bare_step"],
            "batched_over_tree": median["batched"] / median["tree"],
            "one_by_one_over_tree": median["one_by_one"] / median["tree"],
            "kv_over_distinct": (tree.whole.kv_bytes - tree.spare_bytes) / tree.distinct_bytes,
            "batched_kv_over_tree_kv": batched.whole.kv_bytes / tree.whole.kv_bytes,
        },
    }


def machine(device: str, threads: int, dtype: str) -> str:
    """Where the figures come from."""
    name = torch.cuda.get_device_name() if device == "cuda" else _cpu_name()
    return (
        f"{name}, {threads} threads, {dtype}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(result: dict[str, Any], job: Job, where: str, command: str) -> str:
    """The result as a Markdown table for the README."""
    seconds, kv, ratios = result["seconds"], result["kv_bytes"], result["ratios"]
    mib = 2**20
    lines = [
        f"Prompt {len(job.prompt)} tokens, {job.paths} paths, {job.new_tokens} new tokens each. {where}. `{command}`",
        "",
        "| | seconds | times the tree engine | KV bytes held (measured) |",
        "|---|---|---|---|",
        f"| tree engine | {seconds['tree']:.1f} | 1 | {kv['tree_held'] / mib:.1f} MiB, of which spare "
        f"{kv['tree_spare'] / mib:.1f} |",
        f"| bare forward passes, no cache work | {seconds['bare']:.1f} | {seconds['bare'] / seconds['tree']:.2f} | - |",
        f"| `generate(num_return_sequences={job.paths})` | {seconds['batched']:.1f} | "
        f"{ratios['batched_over_tree']:.2f} | {kv['batched'] / mib:.1f} MiB |",
        f"| `generate`, one by one | {seconds['one_by_one']:.1f} | {ratios['one_by_one_over_tree']:.2f} | "
        f"{kv['one_by_one'] / mib:.1f} MiB each |",
        "",
        f"One step of {job.paths} paths takes {seconds['tree_step'] * 1000:.0f} ms, the bare pass of the same tokens "
        f"{seconds['bare_step'] * 1000:.0f} ms: {ratios['step_over_bare_pass']:.2f} times.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round instead of three")
    parser.add_argument("--json", metavar="FILE", help="write seconds, bytes and ratios")
    parser.add_argument("--table", metavar="FILE", help="write the Markdown table here too")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    job = Job(
        prompt=torch.randint(1, 4096, (300,), generator=torch.Generator().manual_seed(1)).tolist(),
        paths=20,
        new_tokens=40,
    )
    result = measure(1 if options.quick else 3, job, getattr(torch, options.dtype), options.device)
    where = machine(options.device, options.threads, options.dtype)
    command = " ".join(["python benchmarks/engine.py", *sys.argv[1:]])
    text = table(result, job, where, command)
    print(text)
    if options.table:
        Path(options.table).write_text(text, encoding="utf-8")
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": where, **result}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
