"""The competitors that generate N continuations of one prompt: this project's engine with each
cache, transformers, and the parts of a step that no competitor can skip. A call of `run` does one
whole job and records the measurements.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from shapes import same_weights
from transformers import (
    ContinuousBatchingConfig,
    DynamicCache,
    GenerationConfig,
    PreTrainedModel,
)

from eab.config import BranchingConfig, CacheName
from eab.engine.branching.policies import make_policy
from eab.engine.build import new_cache
from eab.engine.forward_pass import Part, run_pass
from eab.engine.generation import Generation
from eab.engine.models.huggingface import HuggingFaceModel
from eab.run.events import Event, KvMeasured, RunStarted, StepTimed

THRESHOLD_NATS = 0.5


@dataclass(frozen=True)
class Sampling:
    """How tokens are sampled: logits / `temperature`, then top-p; `stops` are the stop tokens."""

    temperature: float
    top_p: float
    stops: frozenset[int]


@dataclass(frozen=True)
class Job:
    """The job for every competitor: `paths` continuations of the prompt, `new_tokens` tokens each.

    With `sampling`, a continuation may be shorter. Without it, any token can be sampled.
    """

    prompt: tuple[int, ...]
    paths: int
    new_tokens: int
    sampling: Sampling | None = None

    def __str__(self) -> str:
        return f"prompt {len(self.prompt)}, {self.paths} paths x {self.new_tokens} tokens"


@dataclass
class Measured:
    """What a competitor measured; None if it has no cache or could not measure it."""

    seconds: list[float] = field(default_factory=list)  # for each whole job
    # for each job, the seconds of each step that decodes all paths
    step_seconds: list[list[float]] = field(default_factory=list)
    tokens: int = 0  # tokens that went through the model in a job
    rows: int | None = None  # distinct KV rows at the end of a job
    spare_rows: int | None = None  # allocated rows without a token at the end of a job
    kv_bytes: int | None = None  # bytes of K and V at the end of a job
    peak_bytes: int | None = None  # the peak of these bytes
    # on CUDA: the peak bytes of all tensors during a job, minus their bytes before it
    allocated: int | None = None
    reserved: int | None = None  # the same for the memory that PyTorch's allocator reserves
    # for each job, the lengths of its texts, including their last token
    texts: list[list[int]] = field(default_factory=list)
    # for each job, the number of new tokens; a token that texts share counts once
    made: list[int] = field(default_factory=list)

    def note_samples(self, lengths: list[int]) -> None:
        """Record the texts of a job, which share no new token."""
        self.texts.append(lengths)
        self.made.append(sum(lengths))

    def forget_jobs(self) -> None:
        """Drop the records of all jobs."""
        for noted in (self.seconds, self.step_seconds, self.texts, self.made):
            noted.clear()


class Competitor(Protocol):
    """An alternative that can do the job."""

    name: str
    measured: Measured

    def run(self) -> None:
        """Do the job once."""
        ...


class Engine:
    """This project's engine with one cache. Every path forks at every step, so that the time
    includes all decisions.
    """

    def __init__(self, model: HuggingFaceModel, job: Job, cache: CacheName = "tree") -> None:
        self.name = f"engine, cache {cache}"
        self.measured = Measured()
        self._model, self._job = model, job
        self._config = BranchingConfig(
            max_paths=job.paths, max_new_tokens=job.new_tokens, cache=cache
        )
        self._full = False

    def run(self) -> None:
        events = self._events()
        self.measured.tokens = 0
        self.measured.step_seconds.append([])
        start = time.perf_counter()
        for event in events:
            self._note(event)
        self.measured.seconds.append(time.perf_counter() - start)

    def _events(self) -> Iterator[Event]:
        """The events of a new run. It is set up by this call and starts when they are iterated."""
        generation = self._generation()

        def run() -> Iterator[Event]:
            while generation.live:
                part = Part(generation)
                run_pass(self._model, [part])
                if part.error is not None:
                    raise part.error
                yield from part.events

        return run()

    def _generation(self) -> Generation:
        """A new run, from token ids: the random prompt has no text."""
        model, config, tokens = self._model, self._config, self._job.prompt
        texts = tuple(map(model.text, tokens))
        started = RunStarted("", tokens, texts, model.card, config, THRESHOLD_NATS)
        policy = make_policy(config, THRESHOLD_NATS)
        return Generation(model, started, new_cache(model, config), policy)

    def _note(self, event: Event) -> None:
        measured = self.measured
        if isinstance(event, StepTimed):
            measured.tokens += event.tokens
            if self._full:
                measured.step_seconds[-1].append(event.seconds)
        elif isinstance(event, KvMeasured):
            kv = event.usage
            self._full = len(kv.paths) == self._job.paths
            measured.rows, measured.spare_rows = kv.rows_shared + kv.rows_private, kv.rows_spare
            measured.kv_bytes, measured.peak_bytes = kv.bytes_held, kv.peak_bytes


class Generate:
    """`generate` of transformers, with `batch` samples per call.

    `shared_prompt` prefills the prompt once and copies its rows for each sample. With a `static`
    cache, transformers compiles the forward pass on CUDA.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        job: Job,
        batch: int,
        shared_prompt: bool = False,
        static: bool = False,
    ) -> None:
        self.name = "generate, " + ("one by one" if batch == 1 else "one batch")
        self.name += ", prompt prefilled once" if shared_prompt else ""
        self.name += ", static cache" if static else ""
        self.measured = Measured()
        self._model: Any = model
        self._job, self._batch, self._shared_prompt = job, batch, shared_prompt
        self._static = static

    @torch.inference_mode()
    def run(self) -> None:
        """Do the job once, in as many calls of `generate` as it needs."""
        job, measured = self._job, self.measured
        outputs = []
        start = time.perf_counter()
        for _ in range(0, job.paths, self._batch):
            output, cache = self._generate()
            outputs.append(output)
        synchronize(self._model.device)
        measured.seconds.append(time.perf_counter() - start)
        prompt = len(job.prompt) if not self._shared_prompt else len(job.prompt) / job.paths
        steps = sum(output.shape[1] - len(job.prompt) - 1 for output in outputs)
        measured.tokens = round(job.paths * prompt + self._batch * steps)
        stops = job.sampling.stops if job.sampling is not None else ()
        texts = [row[len(job.prompt) :] for output in outputs for row in output.tolist()]
        measured.note_samples([length_of(text, stops) for text in texts])
        measured.rows = self._batch * int(cache.get_seq_length())  # a tensor for StaticCache
        measured.kv_bytes = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)

    def _generate(self) -> tuple[torch.Tensor, DynamicCache]:
        prompt = torch.tensor([self._job.prompt], device=self._model.device)
        options = self._sampling() | {"num_return_sequences": self._batch}
        if self._static:
            options["cache_implementation"] = "static"
        if self._shared_prompt:
            cache = DynamicCache(config=self._model.config)
            self._model(prompt[:, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.batch_repeat_interleave(self._batch)
            prompt = prompt.repeat(self._batch, 1)
            options = self._sampling() | {"past_key_values": cache}
        output = self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=True,
            max_new_tokens=self._job.new_tokens,
            pad_token_id=0,
            return_dict_in_generate=True,
            **options,
        )
        return output.sequences, output.past_key_values

    def _sampling(self) -> dict[str, Any]:
        sampling = self._job.sampling
        if sampling is None:
            return {"min_new_tokens": self._job.new_tokens}
        return {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": 0,  # the default of transformers is 50
            "eos_token_id": sorted(sampling.stops),
        }


class ContinuousBatching:
    """The continuous batching of transformers, which forks the request after its prompt. Its manager
    stays, with its CUDA graphs, between jobs; starting it does not count.
    """

    name = "continuous batching of transformers"

    def __init__(self, model: PreTrainedModel, job: Job) -> None:
        self.measured = Measured(tokens=len(job.prompt) + job.paths * (job.new_tokens - 1))
        self._model: Any = same_weights(model)
        self._job = job

    def run(self) -> None:
        """See Competitor."""
        config = GenerationConfig(
            do_sample=True,
            max_new_tokens=self._job.new_tokens,
            num_return_sequences=self._job.paths,
            eos_token_id=-1,
            pad_token_id=0,
        )
        with self._model.continuous_batching_context_manager(
            generation_config=config,
            continuous_batching_config=ContinuousBatchingConfig(max_memory_percent=0.1),
            persistent_manager=True,
        ) as manager:
            start = time.perf_counter()
            manager.add_requests([[*self._job.prompt]], max_new_tokens=self._job.new_tokens)
            lengths = [self._length_of_next(manager) for _ in range(self._job.paths)]
            self.measured.seconds.append(time.perf_counter() - start)
        self.measured.note_samples(lengths)

    def _length_of_next(self, manager: Any) -> int:
        while not (found := manager.get_result(timeout=60)).is_finished():
            pass
        return len(found.generated_tokens)


class BarePass:
    """The lower bound: as many tokens through the model as loaded, without a cache."""

    name = "bare forward passes"

    def __init__(self, model: PreTrainedModel, job: Job) -> None:
        self.measured = Measured(tokens=len(job.prompt) + job.paths * (job.new_tokens - 1))
        self._model, self._job = model, job

    @torch.inference_mode()
    def run(self) -> None:
        """Prefill the prompt, then run one pass of `paths` tokens per step."""
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


def length_of(tokens: Sequence[int], stops: Collection[int]) -> int:
    """The number of tokens up to and including the first stop token; the rest is padding."""
    ends = (index for index, token in enumerate(tokens, 1) if token in stops)
    return next(ends, len(tokens))


def synchronize(device: torch.device) -> None:
    """Wait until the device is idle. CUDA needs this because it works asynchronously."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
