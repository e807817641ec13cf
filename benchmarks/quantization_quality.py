"""How weights with fewer bits change the embedded model, against float32.

On held-out texts: the loss in nats per character, the KL divergence from the float32 distribution
in nats per token, how often the most likely token stays the same, how far the entropy moves, and
how many forks at the default threshold appear or vanish. On prompts with a known distribution: how
far the entropy moves, in bits.
"""

import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
from published import markdown_table
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from eab.config import BranchingConfig
from eab.errors import ModelError
from eab.labs.quantization import held_out
from eab.labs.quantization.measure import divergence
from eab.models.quantized.formats import FORMATS, Format, quantize, refuse_if_unusable
from eab.models.quantized.int4 import Int4Linear
from eab.models.sources import EMBEDDED_FOLDER
from training.choices import FIXED_CHOICES, known_distributions
from training.corpus import read_documents
from training.measures import CONTEXT
from training.probe import Prober


class Int4Group64(Int4Linear):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear, 64)


class Int4Group128(Int4Linear):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear, 128)


_OUTPUT = FORMATS["int4"].output
VARIANTS: Mapping[str, Format] = {
    "bfloat16": FORMATS["bfloat16"],
    "int8": FORMATS["int8"],
    "int8-weight-only": FORMATS["int8-weight-only"],
    "int4 (groups of 32)": FORMATS["int4"],
    "the same, output layer too": Format(Int4Linear, Int4Linear, 0.15),
    "groups of 64": Format(Int4Group64, _OUTPUT, 0.15),
    "groups of 128": Format(Int4Group128, _OUTPUT, 0.15),
    "nf4 (blocks of 64)": FORMATS["nf4"],
    "nf4-double-quant": FORMATS["nf4-double-quant"],
}


@cache
def unusable_formats(device: str = "cpu") -> dict[str, str]:
    """The formats that this device cannot compute, with the reasons."""
    found = {}
    for name in FORMATS:
        try:
            refuse_if_unusable(name, torch.device(device))
        except ModelError as error:
            found[name] = str(error)
    return found


def quality_table(file: Path, documents: int) -> str:
    """A Markdown table with one row per format. The held-out texts are the bundled fables, or come
    from a file in which <|endoftext|> separates them. Each is cut to the length of the context.
    """
    documents_in_file = held_out.texts() if file == held_out.FABLES else read_documents(file)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    plain = _prober(tokenizer)
    texts = [plain.encode(text)[:CONTEXT] for text in documents_in_file[:documents]]
    characters = sum(len(plain.decode(ids)) for ids in texts)
    prompts = [*known_distributions(FIXED_CHOICES)]
    loss = sum(_nats(plain.log_probabilities(ids), ids) for ids in texts) / characters
    words = (
        f"Embedded model, {len(texts)} texts of {file.name}, {sum(map(len, texts)):,} tokens. "
        f"float32 has {loss:.4f} nats per character."
    )
    heads = ["weights", "nats per character", "KL, nats", "same top token"]
    heads += ["entropy moves by, nats", "forks at 0.65 that flip"]
    heads.append("known entropies move by, bits: mean, largest")
    unusable = [FORMATS[name] for name in unusable_formats()]
    rows = [
        [name, *_cells(plain, _prober(tokenizer, form), texts, prompts, characters)]
        for name, form in VARIANTS.items()
        if form not in unusable
    ]
    return f"{words}\n\n{markdown_table(heads, rows)}"


def _cells(
    plain: Prober, ours: Prober, texts: list[list[int]], prompts: list[str], characters: int
) -> list[str]:
    threshold = BranchingConfig().entropy_threshold
    extra, divergences, same, moved, flipped = 0.0, [], [], [], []
    for ids in texts:
        wanted, found = plain.log_probabilities(ids), ours.log_probabilities(ids)
        extra += _nats(found, ids) - _nats(wanted, ids)
        divergences.append(divergence(wanted, found))
        same.append(wanted.argmax(1) == found.argmax(1))
        before, after = _entropy(wanted), _entropy(found)
        moved.append((after - before).abs())
        flipped.append((before >= threshold) != (after >= threshold))
    shifts = [
        abs(ours.next_token_entropy(prompt) - plain.next_token_entropy(prompt))
        for prompt in prompts
    ]
    return [
        f"{extra / characters:+.4f}",
        f"{_mean(divergences):.4f}",
        f"{_mean(same):.1%}",
        f"{_mean(moved):.3f}",
        f"{_mean(flipped):.2%}",
        f"{statistics.fmean(shifts):.3f}, {max(shifts):.3f}",
    ]


def _prober(tokenizer: object, form: Format | None = None) -> Prober:
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=torch.float32).eval()
    if form is not None:
        quantize(model, form)
    return Prober(model, tokenizer)


def _nats(scores: Tensor, ids: list[int]) -> float:
    """The loss of the text in nats, without its first token."""
    return -float(scores[:-1].gather(1, torch.tensor(ids[1:])[:, None]).double().sum())


def _entropy(scores: Tensor) -> Tensor:
    return -(scores.exp() * scores).sum(1)


def _mean(parts: list[Tensor]) -> float:
    return float(torch.cat(parts).double().mean())
