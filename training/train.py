"""Train a small model within a budget of minutes and export it.

    python -m training.train --data DATA --minutes 60 --out assets/model

The learning rate follows the clock: after a short warm-up it falls linearly and reaches zero when
the minutes are over, however fast the machine is. ``--resume`` continues an interrupted run.
``--start`` starts from the weights of a finished model, widened if the new model is wider.
``--teacher`` trains on another model's probabilities instead of the bare text (distillation).
"""

import argparse
import math
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from training import checkpoint
from training.batches import Batch, PassReader, make_batch
from training.checkpoint import Progress
from training.choices import FIXED_CHOICES
from training.corpus import Corpus, Tokens, load_corpus, load_tokenizer
from training.export import export
from training.network import CONTEXT, VOCABULARY, build_model, widened
from training.optimizer import build_optimizers
from training.probe import Prober
from training.tokenizer import for_transformers

CACHE = Path(__file__).parent / "cache"
MUON_RATE = 0.02
ADAM_RATE = 4e-3
WARM_UP = 0.015
ROWS = 8
LOG_EVERY = 50
CHECKPOINT_SECONDS = 600.0
VALIDATION_ROWS = 64
SAMPLE_PROMPTS = (
    "Once upon a time",
    "The capital of France is",
    "User: What is two plus three?\nAssistant:",
)


def rate_factor(done: float) -> float:
    """The share of the full learning rate when the share ``done`` of the time has passed."""
    return max(0.0, min(done / WARM_UP, (1 - done) / (1 - WARM_UP)))


def logits_of(model: LlamaForCausalLM, batch: Batch) -> Tensor:
    """Next-token logits at every position, (tokens, vocabulary)."""
    logits: Tensor = model(
        input_ids=batch.inputs, attention_mask=batch.mask, use_cache=False
    ).logits
    return logits.flatten(0, 1).float()


def loss_of(model: LlamaForCausalLM, batch: Batch) -> Tensor:
    """The mean cross-entropy against the text, in nats per token."""
    return functional.cross_entropy(logits_of(model, batch), batch.targets.flatten())


def distillation_loss(model: LlamaForCausalLM, teacher: LlamaForCausalLM, batch: Batch) -> Tensor:
    """Cross-entropy against the teacher's probabilities (Hinton et al. 2015), in nats per token."""
    with torch.no_grad():
        expected = logits_of(teacher, batch).softmax(-1)
    return functional.cross_entropy(logits_of(model, batch), expected)


class Run:
    """A training run. `rate` scales both learning rates; a `teacher` provides soft targets."""

    def __init__(
        self,
        model: LlamaForCausalLM,
        tokenizer: Tokenizer,
        corpus: Corpus,
        minutes: float,
        out: Path,
        seed: int,
        rate: float = 1.0,
        teacher: LlamaForCausalLM | None = None,
    ):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model
        self.model.to(self.device)  # type: ignore[arg-type]
        self.tokenizer, self.corpus, self.out, self.seed = tokenizer, corpus, out, seed
        self.budget = minutes * 60
        self.optimizers = build_optimizers(self.model, MUON_RATE * rate, ADAM_RATE * rate)
        self.full_rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers]
        self.progress = Progress()
        self.reader = PassReader(corpus, tokenizer, seed)
        if teacher is None:
            self.loss = partial(torch.compile(loss_of, dynamic=False), self.model)
        else:
            teacher.to(self.device)  # type: ignore[arg-type]
            self.loss = partial(
                torch.compile(distillation_loss, dynamic=False), self.model, teacher
            )
        self.checkpoint_path = CACHE / f"checkpoint-{out.name}.pt"

    def resume(self) -> None:
        self.progress, place = checkpoint.load(self.checkpoint_path, self.model, self.optimizers)
        self.reader = PassReader(self.corpus, self.tokenizer, self.seed, *place)

    def train(self) -> None:
        """Train until the minutes are over."""
        before = self.progress.seconds
        start = last_save = time.monotonic()
        while self.progress.seconds < self.budget:
            loss = self.step()
            now = time.monotonic()
            self.progress.seconds = before + now - start
            if self.progress.step % LOG_EVERY == 0:
                self._log(float(loss), self.progress.seconds)
            if now - last_save > CHECKPOINT_SECONDS:
                last_save = now
                self.save()
        self.save()

    def step(self) -> Tensor:
        factor = rate_factor(self.progress.seconds / self.budget) if self.progress.step else 0.01
        for optimizer, full in zip(self.optimizers, self.full_rates, strict=True):
            optimizer.param_groups[0]["lr"] = full * factor
        batch = self.reader.next(ROWS, CONTEXT).to(self.device)
        loss: Tensor = self.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.progress.step += 1
        self.progress.tokens += batch.inputs.numel()
        return loss.detach()

    def _log(self, loss: float, seconds: float) -> None:
        progress = self.progress
        print(
            f"step {progress.step}  tokens {progress.tokens / 1e6:.2f}M  passes {self.reader.passes:.2f}  "
            f"loss {loss:.3f}  {progress.tokens / seconds:.0f} tokens/s  "
            f"{(self.budget - seconds) / 60:.1f} minutes left",
            flush=True,
        )

    def save(self) -> None:
        checkpoint.save(
            self.checkpoint_path, self.model, self.optimizers, self.reader, self.progress
        )
        export(self.model, self.tokenizer, self.out)
        self.model.train(False)
        minutes = self.progress.seconds / 60
        print(f"== {minutes:.1f} minutes, validation {self._validation_loss():.4f} nats/token")
        self._print_readings()
        self.model.train(True)

    def _print_readings(self) -> None:
        prober = Prober(self.model, for_transformers(self.tokenizer, CONTEXT))
        for choice in FIXED_CHOICES:
            reading = prober.read(choice.prompt, choice.words)
            bits = f"{reading.true_entropy:.2f} bits true, {reading.entropy:.2f} measured"
            print(f"   {bits}: {choice.prompt!r}")
        for prompt in SAMPLE_PROMPTS:
            print("  ", repr(prober.generate(prompt, 120)), flush=True)

    @torch.no_grad()
    def _validation_loss(self) -> float:
        tokens = validation_tokens(self.corpus)
        losses = []
        for at in range(0, len(tokens) - 1, ROWS * CONTEXT):
            batch = make_batch(tokens[at : at + ROWS * CONTEXT + 1], ROWS, CONTEXT)
            losses.append(float(loss_of(self.model, batch.to(self.device))))
        return math.fsum(losses) / len(losses)


def validation_tokens(corpus: Corpus) -> Tokens:
    """The beginning of the validation documents: as many tokens as fill whole batches."""
    tokens = np.concatenate(corpus.validation)
    rows = min(VALIDATION_ROWS, (len(tokens) - 1) // CONTEXT) // ROWS * ROWS
    return tokens[: rows * CONTEXT + 1]


def starting_model(hidden: int, layers: int, seed: int, start: Path | None) -> LlamaForCausalLM:
    """A new model, or the model in the folder ``start``, widened to ``hidden``."""
    if start is None:
        return build_model(hidden, layers, seed)
    return widened(_finished(start), hidden, seed)


def _finished(folder: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the small language model.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the texts")
    parser.add_argument(
        "--out", type=Path, default=Path("assets/model"), help="folder to write the model to"
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="time budget of the training loop"
    )
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1.0, help="factor on the learning rates")
    parser.add_argument("--start", type=Path, help="folder of a finished model to start from")
    parser.add_argument("--teacher", type=Path, help="folder of a model to distil")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint")
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.data, CACHE, VOCABULARY, options.seed)
    corpus = load_corpus(options.data, CACHE, tokenizer, options.seed)
    model = starting_model(options.hidden, options.layers, options.seed, options.start)
    teacher = _finished(options.teacher) if options.teacher else None
    run = Run(
        model, tokenizer, corpus, options.minutes, options.out, options.seed, options.rate, teacher
    )
    print(f"{model.num_parameters() / 1e6:.2f} M parameters, device {run.device}", flush=True)
    if options.resume:
        run.resume()
    run.train()


if __name__ == "__main__":
    main()
