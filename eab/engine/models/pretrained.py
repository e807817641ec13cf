"""Models in transformers' own format: a config.json and safetensors, in a folder or on the Hub. A
checkpoint must be complete: it has all weights of its model, only in safetensors.

An untrusted configuration may ask for a million layers. Before a model is built, it is built
without data, on the `meta` device, and building stops when it exceeds what the files can hold.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    StrictDataclassError,
)
from safetensors import safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from eab.engine.models.configuration import refuse_quantized
from eab.engine.models.machine import CPU, total_memory
from eab.engine.models.sources import EMBEDDED, Source, folder_of
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


_INDEX: Final = "model.safetensors.index.json"
_IN_LAYER: Final = re.compile(r"(?P<layers>.*?)\.(?P<layer>\d+)\.")
# Masks and frequencies that older versions saved and that every version computes itself
_TABLE: Final = re.compile(
    r"(inv_freq|masked_bias|causal_mask|position_ids|(attn|attention)\.bias)$"
)


def refuse_other_shards(folder: str) -> None:
    """Refuse a folder whose index names files other than safetensors in the same folder.

    transformers would read any file that the index names.
    """
    index = Path(folder) / _INDEX
    if not index.is_file():
        return
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        ours = {name for name in shards if name.endswith(".safetensors")}
        strange = sorted(shards - {name for name in ours if os.path.basename(name) == name})
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"{_INDEX} in {quoted(folder)} cannot be read: {error}") from error
    if strange:
        raise ModelError(
            f"{_INDEX} in {quoted(folder)} names {quoted(strange[0])}; only safetensors weights "
            "in the same folder are loaded"
        )


def refuse_missing_weights(name: str, info: Mapping[str, Any]) -> None:
    """Refuse a model if weights are missing from its checkpoint; they would be random. `info` is
    transformers' `output_loading_info`.
    """
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"the model {quoted(name)} is incomplete: {counted(len(missing), 'weight')} missing "
            f"in its files, such as {missing[0]}. Copy or download it again"
        )


def refuse_other_shapes(name: str, info: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose weights do not have the shapes that its configuration says. `info`
    as in `refuse_missing_weights`.
    """
    others = sorted(info["mismatched_keys"])
    if others:
        weight, stored, expected = others[0]
        raise ModelError(
            f"config.json of the model {quoted(name)} contradicts its weights: {weight} is "
            f"{_shape_words(stored)} in the file and {_shape_words(expected)} by the "
            "configuration. Copy or download both again"
        )


def refuse_further_weights(
    name: str, info: Mapping[str, Any], weights: Collection[str], more_layers: int = 0
) -> None:
    """Refuse a checkpoint if it has weights inside the model's own layers or modules for which the
    model has no place, such as those of an extra layer. transformers would silently drop them.
    Parts next to the model, such as the vision part of a larger model, may be left out.

    Args:
        info: As in `refuse_missing_weights`.
        weights: The names of the model's weights.
        more_layers: Extra layers that may follow the model's own and do not generate.
    """
    in_layers = [match for weight in weights if (match := _IN_LAYER.match(weight))]
    depths: dict[str, int] = {}
    for match in in_layers:
        depths[match["layers"]] = max(depths.get(match["layers"], 0), int(match["layer"]) + 1)
    modules = {weight.rpartition(".")[0] for weight in weights}
    others = []
    for weight in sorted(set(info["unexpected_keys"]) - set(weights)):
        match = _IN_LAYER.match(weight)
        if match and match["layers"] in depths:
            depth, layer = depths[match["layers"]], int(match["layer"])
            inside = not depth <= layer < depth + more_layers
        else:
            inside = weight.rpartition(".")[0] in modules
        if inside and not _TABLE.search(weight):
            others.append(weight)
    if others:
        raise ModelError(
            f"config.json of the model {quoted(name)} contradicts its weights: "
            f"{counted(len(others), 'weight')} in its files have no place in the model that it "
            f"describes, such as {quoted(others[0])}. Copy or download both again"
        )


def _shape_words(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


HUB_SECONDS: Final = 10  # timeout for the Hub


def describe(
    name: str, source: Source
) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig, GenerationConfig | None]:
    """Tokenizer, configuration and generation config of a model.

    Raises:
        ModelError: The model is missing, or its configuration asks for too much.
    """
    options = _options(source)
    config = read_config(name, source.place, options)
    tokenizer = AutoTokenizer.from_pretrained(source.place, **options)
    with suppress(OSError):
        return tokenizer, config, GenerationConfig.from_pretrained(source.place, **options)
    return tokenizer, config, None


def load(
    name: str, source: Source, dtype: torch.dtype, holds_all: torch.device
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """The tokenizer, and the model on the CPU.

    Raises:
        ModelError: The model is missing, incomplete, too large, or not in safetensors.
    """
    options = _options(source)
    refuse_other_shards(source.place)
    config = read_config(name, source.place, options)
    refuse_quantized(config)
    refuse_absurd_size(name, config, limit_of_folder(folder_of(source)), dtype, holds_all)
    tokenizer = AutoTokenizer.from_pretrained(source.place, **options)
    options |= {"dtype": dtype, "use_safetensors": True, "output_loading_info": True}
    # Shapes are checked below: transformers' error would refer to a table on stderr.
    options["ignore_mismatched_sizes"] = True
    loaded: Any = AutoModelForCausalLM.from_pretrained(source.place, **options)
    model, info = loaded
    more = int(getattr(config.get_text_config(), "num_nextn_predict_layers", 0) or 0)
    refuse_further_weights(source.place, info, set(model.state_dict()), more)
    refuse_missing_weights(source.place, info)
    refuse_other_shapes(source.place, info)
    return tokenizer, model


def _options(source: Source) -> dict[str, Any]:
    """Arguments of transformers' `from_pretrained`, after checking that the Hub has the model."""
    if source.kind == "hub":
        _check_hub(source.place)
    return {"trust_remote_code": False, "local_files_only": source.kind != "hub"}


def _check_hub(id: str) -> None:
    """Query the Hub before the download, to report a wrong id or a missing network immediately."""
    try:
        HfApi().model_info(id, timeout=HUB_SECONDS)
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"the Hugging Face Hub has no model {id!r}, or it needs a login. Check the id, or "
            f"choose '{EMBEDDED}' or a local folder"
        ) from error
    except (HfHubHTTPError, OfflineModeIsEnabled) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(hub_failure(id, reason)) from error
    except Exception as error:  # the network library can raise anything
        raise ModelError(
            f"the model {id!r} is not on this machine, and the Hugging Face Hub cannot be "
            f"reached. Check the network, or choose '{EMBEDDED}', 'smollm2' or a local folder"
        ) from error


def hub_failure(name: str, reason: str) -> str:
    """The error text when a model of the Hub cannot be loaded."""
    return (
        f"the model {name!r} cannot be loaded from the Hub: {reason.rstrip('.')}. Check the id and "
        f"the network, or choose '{EMBEDDED}' or a local folder"
    )
