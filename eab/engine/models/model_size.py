"""Checks, before building it, that the model described by a config.json can be loaded.

An untrusted configuration may ask for a million layers. Its model is built without data, on the
`meta` device, and building stops when it exceeds what the files can hold.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from eab.engine.models.machine import CPU, total_memory
from eab.errors import ModelError
from eab.formatting import counted, excerpt, human_bytes, quoted, reason_of

MAX_COUNT: Final = 2**16  # layers, heads, experts, labels: each becomes a list
# Settings that have one entry for each layer
_LAYER_LISTS: Final = ("layer_types", "layers_block_type", "no_rope_layers", "mlp_layer_types")
_COUNT: Final = re.compile("num_|layer")
# Allowance per tensor and per byte of the files: for split tensors, buffers, and one-bit weights.
_TENSORS_PER_TENSOR, _NUMBERS_PER_BYTE = 4, 16
_MORE_TENSORS, _MORE_NUMBERS = 1000, 2**28  # such as tables of positions
_BITS_OF_QUANTIZED: Final = 4


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """The largest model that is allowed."""

    tensors: int = 20_000
    numbers: int = 2**43


def read_config(name: str, source: str, options: Mapping[str, Any]) -> PreTrainedConfig:
    """Read a configuration; `options` are further arguments of `AutoConfig.from_pretrained`.

    Raises:
        ModelError: It asks for too much, or cannot be used.
    """
    raw = PreTrainedConfig.get_config_dict(source, **options)[0]
    refuse_absurd_counts(name, raw)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(source, **options)
    except Exception as error:  # transformers raises anything for a damaged or hostile config
        raise ModelError(
            f"the model {quoted(name)} cannot be loaded: its config.json cannot be used "
            f"({_wrong_list(raw) or _wrong_value(raw, error) or reason_of(error)})"
        ) from error
    return config


def _wrong_list(config: Mapping[str, Any]) -> str:
    """Which list of layers does not have the configured length; empty if all do."""
    parts = [config, *(value for value in config.values() if isinstance(value, Mapping))]
    for part in parts:
        layers = part.get("num_hidden_layers")
        for key in _LAYER_LISTS:
            named = part.get(key)
            if isinstance(layers, int) and isinstance(named, list) and len(named) != layers:
                return (
                    f"num_hidden_layers is {layers}, but {key} names {counted(len(named), 'layer')}"
                )
    return ""


def _wrong_value(config: Mapping[str, Any], error: Exception) -> str:
    """Which setting transformers found to be wrong; empty if the error has another cause."""
    if not isinstance(error, StrictDataclassError):
        return ""
    reason = " ".join(str(error.__cause__ or error).split())
    named = re.match(r"Field '(\w+)'", reason)
    if named and named[1] in config:
        return f"{named[1]} cannot be {quoted(config[named[1]])}"
    reason = re.sub(r"\('[^()]*'\)", "those that transformers knows,", reason)
    return excerpt(reason.replace("`", ""), 200)


def refuse_absurd_counts(name: str, config: Mapping[str, Any]) -> None:
    """Refuse settings that would make the configuration itself build very long lists."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            refuse_absurd_counts(name, value)
        elif isinstance(value, int) and value > MAX_COUNT and _COUNT.search(str(key)):
            raise ModelError(
                f"the model {quoted(name)} cannot be loaded: its configuration says that "
                f"{quoted(key)} is {quoted(value)}; at most {MAX_COUNT:,} are allowed"
            )


def refuse_absurd_size(
    name: str,
    config: PreTrainedConfig,
    limit: SizeLimit,
    dtype: torch.dtype,
    device: torch.device = CPU,
    auto_class: Any = AutoModelForCausalLM,
) -> PreTrainedModel:
    """Refuse a configuration that describes a larger model than its files hold, or one that does
    not fit into the memory of this machine.

    Args:
        limit: What the files can hold (see `limit_of_folder`).
        dtype: The data type of the weights, unless they are quantized.
        device: Will hold all weights as loaded. The machine's memory is checked in any case.

    Returns:
        The model without data, on the `meta` device.

    Raises:
        ModelError: Says which of these applies, or that the configuration describes no model.
    """
    try:
        with torch.device("meta"), _CountedTensors(name, limit):
            # The config's own dtype would become the default of all threads meanwhile.
            model: PreTrainedModel = auto_class.from_config(config, dtype=torch.get_default_dtype())
    except ModelError:
        raise
    except Exception as error:  # transformers raises anything for a hostile configuration
        raise ModelError(
            f"the model {quoted(name)} cannot be loaded: no model can be built from its "
            f"configuration ({reason_of(error)})"
        ) from error
    is_quantized = getattr(config, "quantization_config", None) is not None
    bits = _BITS_OF_QUANTIZED if is_quantized else 8 * dtype.itemsize
    needed = sum(weight.numel() for weight in model.parameters()) * bits // 8
    for place, words, advice in (
        (CPU, "this machine", "a smaller model"),
        (device, f"the device {device}", "a smaller model, weights nf4, or device cpu"),
    ):
        if 0 < total_memory(place) < needed:
            raise ModelError(
                f"the weights of the model {quoted(name)} take {human_bytes(needed)}, and {words} "
                f"has {human_bytes(total_memory(place))} of memory. Choose {advice}"
            )
    return model


def limit_of_folder(folder: str | None) -> SizeLimit:
    """The size limit for the weights in this folder; the default limit if they cannot be read."""
    files, tensors = list(Path(folder).glob("*.safetensors")) if folder else [], 0
    with suppress(Exception):  # damaged files are refused when they are loaded
        for file in files:
            with safe_open(file, framework="pt") as weights:
                tensors += len(weights.keys())
    if not tensors:
        return SizeLimit()
    numbers = _NUMBERS_PER_BYTE * sum(file.stat().st_size for file in files)
    return SizeLimit(_TENSORS_PER_TENSOR * tensors + _MORE_TENSORS, numbers + _MORE_NUMBERS)


class _CountedTensors(TorchFunctionMode):
    """Counts the tensors that this thread creates, and raises ModelError beyond a limit."""

    def __init__(self, name: str, limit: SizeLimit) -> None:
        super().__init__()
        self._name, self._limit, self._tensors, self._numbers = name, limit, 0, 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        given = (*args, *(kwargs or {}).values())
        if isinstance(made, Tensor) and not any(isinstance(argument, Tensor) for argument in given):
            self._tensors += 1
            self._numbers += made.numel()
            self._check()
        return made

    def _check(self) -> None:
        if self._tensors > self._limit.tensors or self._numbers > self._limit.numbers:
            raise ModelError(
                f"the model {quoted(self._name)} cannot be loaded: its configuration describes "
                f"more than {self._limit.tensors:,} tensors or {self._limit.numbers:,} numbers, "
                "far more than its files contain. Copy or download it again"
            )
