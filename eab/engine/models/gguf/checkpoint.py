"""Loads the weights of a GGUF file into a transformers model, in full precision.

Quantized blocks are converted back to floats. The four-bit kernels here keep their scales in
bfloat16, GGUF in float16, so they would compute a different model (see docs/models.md).
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, dequantize, get_tensor_name_map
from torch import Tensor
from transformers import (
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

from eab.engine.models.gguf.architecture import ROPE_FACTORS, config_of
from eab.engine.models.gguf.header import Header, TensorInfo, read_header, read_tensor
from eab.engine.models.gguf.tokenizer import generation_of, tokenizer_of
from eab.engine.models.model_size import SizeLimit, refuse_absurd_size
from eab.engine.models.pretrained import refuse_missing_weights
from eab.engine.models.sources import Source
from eab.errors import ModelError
from eab.formatting import quoted

_MORE_NUMBERS: Final = 2**24  # for buffers, such as tables of positions


def size_limit(header: Header) -> SizeLimit:
    """The size limit for a model with the tensors that the file lists."""
    numbers = sum(prod(tensor.shape) for tensor in header.tensors.values())
    return SizeLimit(4 * len(header.tensors) + 1000, 2 * numbers + _MORE_NUMBERS)


def describe(
    name: str, source: Source
) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig, GenerationConfig]:
    """Tokenizer, configuration and generation config of a model."""
    header = read_header(Path(source.place))
    config = config_of(name, header)  # first: it checks that the vocabulary fits the model
    return tokenizer_of(name, header), config, generation_of(header)


def load(
    name: str, source: Source, dtype: torch.dtype, holds_all: torch.device
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """The tokenizer, and the model on the CPU.

    Raises:
        ModelError: The file is damaged, too large for this machine, of a family that cannot be
            read, or changes while it is being read.
    """
    header = read_header(Path(source.place))
    before = _marks(header)
    config = config_of(name, header)
    empty = refuse_absurd_size(name, config, size_limit(header), dtype, holds_all)
    tokenizer = tokenizer_of(name, header)
    weights = _weights(name, header, config, empty, dtype)
    from_pretrained: Any = type(empty).from_pretrained
    loaded: Any = from_pretrained(
        None, config=config, state_dict=weights, dtype=dtype, output_loading_info=True
    )
    model, info = loaded
    refuse_missing_weights(name, info)
    model.generation_config = generation_of(header)
    if _marks(header) != before:
        raise ModelError(f"the file of {quoted(name)} changed while it was read; try again")
    return tokenizer, model


def _marks(header: Header) -> list[tuple[int, int]]:
    """Size and modification time of each file, which change if somebody writes to it."""
    states = [file.stat() for file in header.files]
    return [(state.st_size, state.st_mtime_ns) for state in states]


def _weights(
    name: str, header: Header, config: PreTrainedConfig, empty: PreTrainedModel, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The weights by their transformers names."""
    kind: Any = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)
    processor = kind(config=config.to_dict())
    places = _places(header.architecture, config.num_hidden_layers, empty)
    shapes = {place: weight.shape for place, weight in empty.state_dict().items()}
    weights: dict[str, Tensor] = {}
    for file in header.files:
        with file.open("rb") as opened:
            for tensor in header.tensors.values():
                if tensor.file == file and tensor.name != ROPE_FACTORS:
                    place = _place(name, tensor, places)
                    if prod(tensor.shape) != shapes[place].numel():  # checked before reading
                        raise _other_shape(name, tensor, shapes[place])
                    values = _values(read_tensor(opened, tensor), tensor)
                    if tensor.name != "output.weight":  # the processor of GPT-2 fails on it
                        values = processor.process(weights=values, name=tensor.name).weights
                    weights[place] = torch.from_numpy(np.array(values)).to(dtype)
                    if weights[place].shape != shapes[place]:
                        raise _other_shape(name, tensor, shapes[place])
    return weights


def _other_shape(name: str, tensor: TensorInfo, expected: torch.Size) -> ModelError:
    return ModelError(
        f"the tensor {quoted(tensor.name)} in {quoted(name)} has a shape of {tensor.shape}; the "
        f"settings of the file ask for {tuple(expected)}"
    )


def _places(architecture: str, layers: int, empty: PreTrainedModel) -> dict[str, str]:
    """Names in the file -> names of the weights in transformers."""
    [family] = [key for key, name in MODEL_ARCH_NAMES.items() if name == architecture]
    names = get_tensor_name_map(family, layers)
    places = {}
    for place in empty.state_dict():
        module, _, kind = place.rpartition(".")
        if (in_file := names.get_name(module)) is not None:
            places[f"{in_file}.{kind}"] = place
    return places


def _place(name: str, tensor: TensorInfo, places: Mapping[str, str]) -> str:
    if tensor.name not in places:
        raise ModelError(
            f"the GGUF file {quoted(name)} has the tensor {quoted(tensor.name)}, which its family "
            "has no place for; it is another kind of model"
        )
    return places[tensor.name]


def _values(data: bytes, tensor: TensorInfo) -> Any:
    """The values of a tensor, in float32 or as stored."""
    rows = np.frombuffer(data, np.uint8).reshape(*tensor.shape[:-1], -1)
    try:
        return dequantize(rows, tensor.kind)
    except NotImplementedError as error:
        raise ModelError(
            f"the tensor {quoted(tensor.name)} is stored as {tensor.kind.name}, which cannot be "
            "read; choose a file in another format, such as Q8_0"
        ) from error
