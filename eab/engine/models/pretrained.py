"""Models in transformers' own format: a config.json and safetensors, in a folder or on the Hub. A
checkpoint must be complete: it has all weights of its model, only in safetensors.
"""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from eab.engine.models.configuration import refuse_quantized
from eab.engine.models.model_size import limit_of_folder, read_config, refuse_absurd_size
from eab.engine.models.sources import EMBEDDED, Source, folder_of
from eab.errors import ModelError
from eab.formatting import counted, quoted

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
