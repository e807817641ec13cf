"""Checks that a checkpoint is complete: it has all weights of its model, only in safetensors."""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

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
