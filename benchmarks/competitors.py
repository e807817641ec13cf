"""Everybody who can make N continuations of one prompt: this project's engine under each cache, and
transformers.

Each competitor does one whole job in `run` and notes what it measured.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from eab.branching.policies import Child, FairPolicy, Leaf, Member
from eab.branching.sampling import Predictions
from eab.caches.attention import masked_attention
from eab.caches.static_buffers import MASK_ALIGNMENT
from eab.config import BranchingConfig, CacheName
from eab.engine.generation import Generation
from eab.engine.loop import step
from eab.events import Event, KvMeasured, StepTimed
from eab.models.huggingface import HuggingFaceModel
from eab.models.weight_layouts import PrepackedLinear


@dataclass(frozen=True)
class Job:
    """What is asked of every competitor: `paths` continuations of the prompt, `new_tokens` each."""

    prompt: tuple[int, ...]
    paths: int
    new_tokens: int

    def __str__(self) -> str:
        return f"prompt {len(self.prompt)}, {self.paths} paths x {self.new_tokens} tokens"


@dataclass
class Measured:
    """seconds: of each whole job. step_seconds: of each step that all paths took part in, over all
    jobs.

    tokens: through the model. Bytes and rows at the end of a job; None where there is no cache, or
    nothing to measure.
    step_rows: distinct rows at each step that all paths took part in, in the latest job.
    allocated: the most that CUDA's allocator gave out during a job, beyond what it had given out
    before.
    """

    seconds: list[float] = field(default_factory=list)
    step_seconds: list[list[float]] = field(default_factory=list)
    tokens: int = 0
    rows: int | None = None
    step_rows: list[int] = field(default_factory=list)
    spare_rows: int | None = None
    kv_bytes: int | None = None
    peak_bytes: int | None = None
    allocated: int | None = None


class Competitor(Protocol):
    """name: as the table shows it."""

    name: str
    measured: Measured

    def run(self) -> None:
        """Do the job once."""
        ...


class ForkUntilFull(FairPolicy):
    """Forks into two at every step until there are enough paths, then never again: long private
    parts.
    """

    def __init__(self, config: BranchingConfig) -> None:
        super().__init__(config, threshold_nats=0.0)

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        self._threshold = 0.0 if len(leaves) < self._config.max_paths else float("inf")
        return super().branch(leaves, predictions, step)

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """See Policy.prune: the first ones stay, so that every path that was born goes on."""
        return [
            member.weight if index < self._config.max_paths else None
            for index, member in enumerate(population)
        ]


class Engine:
    """This project's engine under one cache, stepped directly.

    Every path forks at every step, so that all decisions are paid for; or, with `grow_apart`, only
    until there are
    enough paths, so that their private parts grow long. captured: passes of fixed shapes, on CUDA
    as graphs.
    """

    def __init__(
        self,
        model: HuggingFaceModel,
        job: Job,
        cache: CacheName = "tree",
        grow_apart: bool = False,
        captured: bool = False,
    ) -> None:
        self.name = f"engine, cache {cache}" + (", captured passes" if captured else "")
        self.measured = Measured()
        self._model, self._job, self._grow_apart = model, job, grow_apart
        self._config = BranchingConfig(
            max_paths=job.paths,
            max_new_tokens=job.new_tokens,
            cache=cache,
            attention="padded" if captured else "sliced",
        )
        self._full = False
        self.kv_shape = model.kv_shape

    def run(self) -> None:
        """See Competitor."""
        generation = Generation(self._model, "", self._job.prompt, self._config, threshold_nats=0.5)
        if self._grow_apart:
            generation._policy = ForkUntilFull(self._config)
        self.measured.tokens, self.measured.step_rows = 0, []
        self.measured.step_seconds.append([])
        start = time.perf_counter()
        while generation.live:
            [events] = step(self._model, [generation])
            for event in events:
                self._note(event)
        self.measured.seconds.append(time.perf_counter() - start)

    def _note(self, event: Event) -> None:
        measured = self.measured
        if isinstance(event, StepTimed):
            measured.tokens += event.tokens
            if self._full:
                measured.step_seconds[-1].append(event.seconds)
        elif isinstance(event, KvMeasured):
            self._full = len(event.paths) == self._job.paths
            measured.rows, measured.spare_rows = (
                event.rows_shared + event.rows_private,
                event.rows_spare,
            )
            measured.step_rows += [measured.rows] if self._full else []
            measured.kv_bytes, measured.peak_bytes = event.bytes_held, event.peak_bytes


class Generate:
    """`generate` of transformers: one sample at a time, all as one batch, or as one batch over the
    prompt's rows, which went through the model once and were then copied for each sample."""

    def __init__(
        self, model: PreTrainedModel, job: Job, batch: int, shared_prompt: bool = False
    ) -> None:
        kind = (
            "one by one"
            if batch == 1
            else "one batch, prompt prefilled once"
            if shared_prompt
            else "one batch"
        )
        self.name = f"generate, {kind}"
        self.measured = Measured()
        self._model: Any = model
        self._job, self._batch, self._shared_prompt = job, batch, shared_prompt

    @torch.inference_mode()
    def run(self) -> None:
        """See Competitor: as many calls as it takes."""
        job, measured = self._job, self.measured
        start = time.perf_counter()
        for _ in range(0, job.paths, self._batch):
            cache = self._generate()
        synchronize(self._model.device)
        measured.seconds.append(time.perf_counter() - start)
        prompt = len(job.prompt) if not self._shared_prompt else len(job.prompt) / job.paths
        measured.tokens = round(job.paths * (prompt + job.new_tokens - 1))
        measured.rows = self._batch * cache.get_seq_length()
        measured.kv_bytes = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)

    def _generate(self) -> DynamicCache:
        prompt = torch.tensor([self._job.prompt], device=self._model.device)
        options: dict[str, Any] = {"num_return_sequences": self._batch}
        if self._shared_prompt:
            cache = DynamicCache(config=self._model.config)
            self._model(prompt[:, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.batch_repeat_interleave(self._batch)
            prompt, options = prompt.repeat(self._batch, 1), {"past_key_values": cache}
        output = self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=True,
            max_new_tokens=self._job.new_tokens,
            min_new_tokens=self._job.new_tokens,
            pad_token_id=0,
            return_dict_in_generate=True,
            **options,
        )
        found: DynamicCache = output.past_key_values
        return found


class BarePass:
    """The floor: the same tokens through the model as loaded, without any cache work."""

    name = "bare forward passes"

    def __init__(self, model: PreTrainedModel, job: Job) -> None:
        self.measured = Measured(tokens=len(job.prompt) + job.paths * (job.new_tokens - 1))
        self._model, self._job = model, job

    @torch.inference_mode()
    def run(self) -> None:
        """Prefill, then one pass of `paths` tokens per step."""
        device = self._model.device
        prompt = torch.tensor([self._job.prompt], device=device)
        tokens = prompt[:, :1].repeat(1, self._job.paths)
        begin = time.perf_counter()
        self._model(prompt, use_cache=False, logits_to_keep=1)
        self.measured.step_seconds.append([])
        for _ in range(self._job.new_tokens - 1):
            start = time.perf_counter()
            self._model(tokens, use_cache=False)
            synchronize(device)
            self.measured.step_seconds[-1].append(time.perf_counter() - start)
        self.measured.seconds.append(time.perf_counter() - begin)


class Kernels:
    """The linear layers alone, which no step can do without, with their weights stored as the
    engine has them; given the engine, also plain masked attention over as many rows as its tree
    had.
    """

    def __init__(self, model: PreTrainedModel, job: Job, tree: Engine | None = None) -> None:
        self.name = f"products{' and attention' if tree else ''} of the decode steps alone"
        self.measured = Measured(tokens=job.paths * (job.new_tokens - 1))
        self._layers = [
            layer for layer in model.modules() if isinstance(layer, nn.Linear | PrepackedLinear)
        ]
        self._model, self._job, self._tree = model, job, tree

    @torch.inference_mode()
    def run(self) -> None:
        """See Competitor: as many rounds as there are decode steps after the first."""
        inputs = {
            size: self._random(1, self._job.paths, size)
            for size in {one.in_features for one in self._layers}
        }
        attention = (
            [self._attention() for _ in range(self._model.config.num_hidden_layers)]
            if self._tree
            else []
        )
        self.measured.step_seconds.append([])
        for _ in range(self._job.new_tokens - 1):
            start = time.perf_counter()
            for layer in self._layers:
                layer(inputs[layer.in_features])
            for attend in attention:
                attend()
            synchronize(self._model.device)
            self.measured.step_seconds[-1].append(time.perf_counter() - start)
        self.measured.seconds.append(sum(self.measured.step_seconds[-1]))

    def _attention(self) -> Callable[[], object]:
        """Every query over the mean number of rows of the tree, under a mask."""
        assert self._tree is not None
        shape, rows = self._tree.kv_shape, round(statistics.mean(self._tree.measured.step_rows))
        query = self._random(shape.kv_heads, shape.group * self._job.paths, shape.head_dim)
        keys, values = (self._random(shape.kv_heads, rows, shape.head_dim) for _ in range(2))
        mask = self._random(shape.group * self._job.paths, -(-rows // MASK_ALIGNMENT) * MASK_ALIGNMENT)[:, :rows]
        return lambda: masked_attention(query, keys, values, mask, shape.head_dim**-0.5)

    def _random(self, *sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device=self._model.device, dtype=self._model.dtype)


def synchronize(device: torch.device) -> None:
    """Wait for the device, where it works on its own."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
