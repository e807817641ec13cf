"""The competitors that can make N continuations of one prompt: this project's engine with each
cache, and transformers.

Each does one whole job in `run` and notes what it measured.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel

from eab.branching.fair import FairPolicy
from eab.branching.policies import make_policy
from eab.branching.policy import Child, Leaf, Member
from eab.branching.sampling import Predictions
from eab.config import BranchingConfig, CacheName
from eab.engine.build import new_cache
from eab.engine.forward_pass import Part, run_pass
from eab.engine.generation import Generation
from eab.events import Event, KvMeasured, RunStarted, StepTimed
from eab.models.huggingface import HuggingFaceModel

THRESHOLD_NATS = 0.5


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: logits over `temperature`, then top-p; `stops` end a text."""

    temperature: float
    top_p: float
    stops: frozenset[int]


@dataclass(frozen=True)
class Job:
    """The job of every competitor: `paths` continuations of the prompt, `new_tokens` tokens each.

    With `sampling` a continuation may have fewer tokens; without, all tokens can be drawn.
    """

    prompt: tuple[int, ...]
    paths: int
    new_tokens: int
    sampling: Sampling | None = None

    def __str__(self) -> str:
        return f"prompt {len(self.prompt)}, {self.paths} paths x {self.new_tokens} tokens"


@dataclass
class Measured:
    """What a competitor measured; None where there is no cache, or nothing to measure."""

    seconds: list[float] = field(default_factory=list)  # of each whole job
    # for each job, of each step with all paths
    step_seconds: list[list[float]] = field(default_factory=list)
    tokens: int = 0  # that went through the model in a job
    rows: int | None = None  # distinct KV rows at the end of a job
    # distinct KV rows at each step with all paths, in the latest job
    step_rows: list[int] = field(default_factory=list)
    spare_rows: int | None = None  # allocated rows without a token at the end of a job
    kv_bytes: int | None = None  # of K and V at the end of a job
    peak_bytes: int | None = None  # their peak
    # on CUDA: the peak of what tensors took during a job, less what they took before
    allocated: int | None = None
    reserved: int | None = None  # likewise what PyTorch's allocator took of the device for them
    # for each job, the lengths of its texts, their last token included
    texts: list[list[int]] = field(default_factory=list)
    # for each job, its new tokens, each once, also where texts share it
    made: list[int] = field(default_factory=list)

    def note_samples(self, lengths: list[int]) -> None:
        """Note the texts of a job that share no new token."""
        self.texts.append(lengths)
        self.made.append(sum(lengths))

    def forget_jobs(self) -> None:
        """Forget what was noted of each job."""
        for noted in (self.seconds, self.step_seconds, self.texts, self.made):
            noted.clear()


class Competitor(Protocol):
    """Does the job."""

    name: str
    measured: Measured

    def run(self) -> None:
        """Do the job once."""
        ...


class ForkUntilFull(FairPolicy):
    """Forks into two until there are enough paths, then never again: private suffixes grow long."""

    def __init__(self, config: BranchingConfig) -> None:
        super().__init__(config, threshold_nats=0.0)
        self._full = False

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        self._full = len(leaves) >= self._config.max_paths
        return super().branch(leaves, predictions, step)

    def _may_fork(self, leaf: Leaf, predictions: Predictions, index: int, step: int) -> bool:
        return not self._full

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """See Policy.prune. The first members stay, so that every path that was born continues."""
        return [
            member.weight if index < self._config.max_paths else None
            for index, member in enumerate(population)
        ]


class Engine:
    """This project's engine with one cache.

    `long_suffixes` forks only until there are enough paths; otherwise every path forks at every
    step, so that the time contains all decisions. `cuda_graphs` runs padded attention, whose passes
    have fixed shapes, as CUDA graphs.
    """

    def __init__(
        self,
        model: HuggingFaceModel,
        job: Job,
        cache: CacheName = "tree",
        long_suffixes: bool = False,
        cuda_graphs: bool = False,
    ) -> None:
        self.name = f"engine, cache {cache}" + (", CUDA graphs" if cuda_graphs else "")
        self.measured = Measured()
        self._model, self._job, self._long_suffixes = model, job, long_suffixes
        self._config = BranchingConfig(
            max_paths=job.paths, max_new_tokens=job.new_tokens, cache=cache
        )
        if cuda_graphs:  # each growth means new captures, of several forward passes each
            self._config = replace(self._config, attention="padded", r=job.new_tokens)
        self._full = False
        self.kv_shape = model.kv_shape

    def run(self) -> None:
        events = self._events()
        self.measured.tokens, self.measured.step_rows = 0, []
        self.measured.step_seconds.append([])
        start = time.perf_counter()
        for event in events:
            self._note(event)
        self.measured.seconds.append(time.perf_counter() - start)

    def _events(self) -> Iterator[Event]:
        """What happens in the run, which is made here and begins when the first event is asked for."""
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
        """The run, from token ids: the prompt is random and has no text."""
        model, config, tokens = self._model, self._config, self._job.prompt
        texts = tuple(map(model.text, tokens))
        started = RunStarted("", tokens, texts, model.card, config, THRESHOLD_NATS)
        policy = (
            ForkUntilFull(config) if self._long_suffixes else make_policy(config, THRESHOLD_NATS)
        )
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
            measured.step_rows += [measured.rows] if self._full else []
            measured.kv_bytes, measured.peak_bytes = kv.bytes_held, kv.peak_bytes


class Generate:
    """`generate` of transformers, one sample per call or all.

    `shared_prompt` computes the prompt once and copies its rows for each sample. For a `static`
    cache transformers compiles the forward pass on CUDA.
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
        """See Competitor: as many calls as needed."""
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
        measured.rows = self._batch * int(cache.get_seq_length())  # StaticCache: a tensor
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
            "top_k": 0,  # transformers' own default is 50
            "eos_token_id": sorted(sampling.stops),
        }


def length_of(tokens: Sequence[int], stops: Collection[int]) -> int:
    """Tokens of a text up to its first stop token, which counts; what follows is padding."""
    ends = (index for index, token in enumerate(tokens, 1) if token in stops)
    return next(ends, len(tokens))


def synchronize(device: torch.device) -> None:
    """Wait until the device is idle; needed on CUDA, which works asynchronously."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
