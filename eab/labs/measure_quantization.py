"""Measures a model in every weight format against the model as loaded, on this machine.

A generator of rows, with progress between them; to stop, stop iterating. At most two copies of
the model are in memory. Their steps alternate, so a disturbance of the machine affects both.

Also how fast the machine reads weights and multiplies, the two limits of the roofline.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from eab.assets import ASSETS
from eab.config import BranchingConfig
from eab.engine.caches.tree import TreeCache
from eab.engine.models.base import LanguageModel, refuse_own_memory
from eab.engine.models.machine import describe_machine
from eab.engine.models.transformers_model import TransformersModel
from eab.errors import ModelError
from eab.formatting import counted
from eab.labs.decode_steps import NO_LIMIT, now, prefilled_tree, time_step
from eab.labs.measurement import Counter, LabBegan, LabEvent, Row, Values
from eab.run.events import Progressed, RunEnded
from eab.timing import Measure, timed
from eab.weight_formats import AS_LOADED, WEIGHT_FORMATS

if TYPE_CHECKING:
    from eab.engine.models.transformers_model import TransformersModel


FOLDER: Final = ASSETS / "quantization"
FABLES: Final = FOLDER / "held_out.txt"
SEPARATOR: Final = "\n\n"


@cache
def held_out_texts() -> tuple[str, ...]:
    """Fables that are not in the training data of any bundled model."""
    return tuple(FABLES.read_text(encoding="utf-8").strip().split(SEPARATOR))


@cache
def known_entropies() -> dict[str, float]:
    """Prompts whose next word has a known distribution, and its entropy in bits."""
    entropies: dict[str, float] = json.loads(
        (FOLDER / "known_entropies.json").read_text(encoding="utf-8")
    )
    return entropies


_COLUMNS: Final = 4096


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts that are read and multiplied."""

    read_bytes: int  # size of a matrix; more than the caches of the processor or GPU hold
    side: int  # side length of two square matrices
    times: int  # repetitions per measurement; on a GPU, a single one is shorter than its launch


SIZES: Final[dict[str, Sizes]] = {"cpu": Sizes(2**28, 1024, 1), "cuda": Sizes(2**30, 8192, 8)}


@torch.inference_mode()
def measure_machine(device: torch.device, dtype: torch.dtype, repeats: int) -> list[Values]:
    """Time reading and multiplying alternately, after one warm-up round: a row per repeat."""
    sizes = SIZES.get(device.type, SIZES["cpu"])
    rows = sizes.read_bytes // dtype.itemsize // _COLUMNS
    wide = torch.ones(rows, _COLUMNS, dtype=dtype, device=device)
    row = torch.ones(_COLUMNS, dtype=dtype, device=device)
    square = torch.ones(sizes.side, sizes.side, dtype=dtype, device=device)

    def read() -> None:
        for _ in range(sizes.times):
            wide @ row

    def multiply() -> None:
        for _ in range(sizes.times):
            square @ square

    works: Mapping[str, Measure] = {
        "read": timed(read, lambda: now(device)),
        "multiply": timed(multiply, lambda: now(device)),
    }
    rounds = [{name: work() for name, work in works.items()} for _ in range(repeats + 1)][1:]
    return [
        {
            "bytes_per_second": sizes.times * wide.nbytes / seconds["read"],
            "operations_per_second": sizes.times * 2 * sizes.side**3 / seconds["multiply"],
        }
        for seconds in rounds
    ]


ROWS: Final = (1, 4, 16, 64)  # live paths
REPEATS: Final = 15
PROMPT_ROWS: Final = 128
_KNOWN: Final = "embedded"  # the model whose training text has the known distributions

Load = Callable[[str], TransformersModel]  # by weight format


@dataclass(frozen=True, slots=True)
class _Texts:
    held_out: Sequence[tuple[int, ...]]
    prompt: tuple[int, ...]
    known: Sequence[tuple[tuple[int, ...], float]]  # prompts, and their true entropy in bits


def measure_formats(load: Load, prompt: str, repeats: int = REPEATS) -> Iterator[LabEvent]:
    """Measure every format; each step is timed `repeats` times after one warm-up."""
    loaded = _with_rows(load, AS_LOADED)
    texts, characters = _texts(loaded, prompt)
    card, tokens = loaded.card, sum(map(len, texts.held_out))
    about: Values = {"layout": card.layout, "prompt": prompt, "characters": characters}
    about |= {"tokens": tokens, "threshold": _threshold(), "known": len(texts.known)}
    yield LabBegan(card.name, card.dtype, describe_machine(card.device), "formats", about)
    counter = Counter(len(WEIGHT_FORMATS))
    yield counter.at("memory and multiplications")
    for values in measure_machine(loaded.kv_shape.device, loaded.kv_shape.dtype, repeats):
        yield Row("machine", values)
    for _, weights in counter.rounds(0, WEIGHT_FORMATS):
        yield counter.at(f"{weights}: loading")
        try:
            model = loaded if weights == AS_LOADED else _with_rows(load, weights)
        except ModelError as error:
            yield Row("missing", {"weights": weights, "reason": str(error)})
            continue
        for event in _measure_format(weights, model, loaded, texts, characters, repeats):
            if isinstance(event, Progressed):
                event = counter.at(f"{weights}: {event.words}", event.share)
            yield event
    yield RunEnded(0, "finished")


def _with_rows(load: Load, weights: str) -> TransformersModel:
    """The model in a format; ModelError if it has no KV rows, which are measured here."""
    model = load(weights)
    refuse_own_memory(model)
    return model


def _texts(model: LanguageModel, prompt: str) -> tuple[_Texts, int]:
    config = BranchingConfig(chat=False)  # a chat template would be measured, too
    fables = [model.encode(text, config)[: model.context] for text in held_out_texts()]
    known = known_entropies() if model.card.name == _KNOWN else {}
    texts = _Texts(
        fables,
        model.encode(prompt, config),
        [(model.encode(text, config), bits) for text, bits in known.items()],
    )
    return texts, sum(len(model.text(token)) for ids in fables for token in ids[1:])


def _threshold() -> float:
    return BranchingConfig().entropy_threshold


def _measure_format(
    weights: str,
    model: TransformersModel,
    loaded: TransformersModel,
    texts: _Texts,
    characters: int,
    repeats: int,
) -> Iterator[Progressed | Row]:
    counter = Counter(len(ROWS) * (repeats + 1) * 2)  # of which the texts take about half
    for rows in ROWS:
        for number, (ours, theirs) in enumerate(_time_steps(model, loaded, rows, repeats)):
            yield counter.at(f"steps of {counted(rows, 'row')}")
            counter.done += 1
            if number:  # the first round is the warm-up
                values: Values = {"weights": weights, "rows": rows, "seconds": ours}
                yield Row("steps", values | {"loaded_seconds": theirs})
    nats, divergences, flips = 0.0, [], []
    for number, ids in enumerate(texts.held_out):
        share = number / len(texts.held_out)
        yield counter.at(f"held-out text {number + 1}", share * counter.done)
        actual, wanted = log_probabilities(model, ids), log_probabilities(loaded, ids)
        nats -= float(actual[:-1].gather(1, torch.tensor(ids[1:])[:, None]).double().sum())
        divergences.append(divergence(wanted, actual))
        flips.append((_entropy(wanted) >= _threshold()) != (_entropy(actual) >= _threshold()))
    after = (log_probabilities(each, texts.prompt)[-1:] for each in (loaded, model))
    yield Row(
        "formats",
        {
            "weights": weights,
            "total_bytes": sum(model.weight_bytes.values()),
            "read_bytes": read_bytes(model),
            "parameters": _parameters(loaded),
            "kept": len(model.stored.kept),
            "nats_per_character": nats / characters,
            "divergence": float(torch.cat(divergences).mean()),
            "flipped": float(torch.cat(flips).double().mean()),
            "prompt_divergence": float(divergence(*after)),
            "entropy_error": _entropy_error(model, texts),
        },
    )


def _time_steps(
    model: TransformersModel, loaded: TransformersModel, rows: int, repeats: int
) -> Iterator[tuple[float, float]]:
    """Time a decode step of both models alternately; the first round is the warm-up."""
    ours, theirs = (_step(each, rows, repeats) for each in (model, loaded))
    for _ in range(repeats + 1):
        yield ours(), theirs()


def _step(model: TransformersModel, paths: int, repeats: int) -> Measure:
    steps = repeats + 1
    prompt = max(0, min(PROMPT_ROWS, model.context - steps))
    cache = prefilled_tree(model.kv_shape, prompt, steps, padded=False, paths=paths, steps=steps)
    numbers = range(1, paths + 1)
    return lambda: time_step(lambda batch: model.forward([batch]), cache, numbers).rest


def read_bytes(model: TransformersModel) -> int:
    """Bytes of weights that a decode step reads; input embeddings count only if they are tied."""
    embeddings, layers = [], set()
    for module in model.weight_matrices.values():
        if isinstance(module, torch.nn.Embedding):
            embeddings.append(module.weight)
        else:
            layers.add(id(module.weight))
    looked_up = sum(weight.nbytes for weight in embeddings if id(weight) not in layers)
    return sum(model.weight_bytes.values()) - looked_up


def _parameters(loaded: TransformersModel) -> int:
    modules = loaded.weight_matrices.values()
    return sum(
        module.weight.numel()  # type: ignore[operator, misc]
        for module in modules
        if not isinstance(module, torch.nn.Embedding)
    )


@torch.inference_mode()
def log_probabilities(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    """Log-probabilities of the token after each of these, (T, V) float64 on the CPU."""
    batch = TreeCache(model.kv_shape, 1, NO_LIMIT).prepare([0], [ids], [len(ids)])
    return model.forward([batch]).double().log_softmax(-1).cpu()


def divergence(wanted: Tensor, actual: Tensor) -> Tensor:
    """KL(wanted || actual) of log-probabilities, (T, V) each -> (T,) nats."""
    return (wanted.exp() * (wanted - actual)).sum(-1)


def _entropy(scores: Tensor) -> Tensor:
    """Entropy of log-probabilities, (T, V) -> (T,) nats."""
    return -(scores.exp() * scores).sum(-1)


def _entropy_error(model: TransformersModel, texts: _Texts) -> float | None:
    errors = [
        abs(float(_entropy(log_probabilities(model, ids)[-1:])) / math.log(2) - bits)
        for ids, bits in texts.known
    ]
    return fmean(errors) if errors else None
