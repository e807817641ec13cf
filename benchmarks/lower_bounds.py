"""The parts of a step that no competitor can skip: the model's forward passes, its linear layers
and its attention.
"""

import statistics
import time
from collections.abc import Callable

import torch
from competitors import Engine, Job, Measured, synchronize
from torch import nn
from transformers import PreTrainedModel

from eab.caches.attention import attention_kernels, empty_mask, masked_attention
from eab.models.weight_layouts import ReorderedLinear


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


class Kernels:
    """Only the linear layers, which every step needs, with the weights stored as in the engine.
    Given the engine as `tree`, also plain masked attention over as many rows as its tree has.
    """

    def __init__(self, model: PreTrainedModel, job: Job, tree: Engine | None = None) -> None:
        self.name = f"linear layers{' and attention' if tree else ''} of the decode steps alone"
        self.measured = Measured(tokens=job.paths * (job.new_tokens - 1))
        self._layers = [
            layer for layer in model.modules() if isinstance(layer, nn.Linear | ReorderedLinear)
        ]
        self._model, self._job, self._tree = model, job, tree

    @torch.inference_mode()
    def run(self) -> None:
        """See Competitor. There is a step for each new token after the first."""
        inputs = {
            size: self._random(1, self._job.paths, size)
            for size in {layer.in_features for layer in self._layers}
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
        """Masked attention of all queries over the mean number of rows in the tree."""
        assert self._tree is not None
        shape, rows = self._tree.kv_shape, round(statistics.mean(self._tree.measured.step_rows))
        query = self._random(shape.kv_heads, shape.group, self._job.paths, shape.head_dim)
        keys, values = (self._random(shape.kv_heads, rows, shape.head_dim) for _ in range(2))
        mask = empty_mask(self._job.paths, rows, shape.dtype, shape.device).normal_()

        def attend() -> None:
            with attention_kernels(shape.device):
                masked_attention(query, keys, values, mask, shape.head_dim**-0.5)

        return attend

    def _random(self, *sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device=self._model.device, dtype=self._model.dtype)
