"""Whether a checkpoint is complete: all weights of its model, and only safetensors."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eab.errors import ModelError
from eab.formatting import counted, quoted

_INDEX: Final = "model.safetensors.index.json"


def refuse_other_shards(folder: str) -> None:
    """Refuse a folder whose index names files that are not safetensors of this folder.

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
    """Refuse a model some of whose weights are not in its checkpoint; they would be random. `info`
    is the `output_loading_info` of transformers.
    """
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"the model {quoted(name)} is incomplete: {counted(len(missing), 'weight')} missing "
            f"in its files, such as {missing[0]}. Copy or download it again"
        )


def refuse_other_shapes(name: str, info: Mapping[str, Any]) -> None:
    """Refuse a checkpoint with weights of other shapes than its configuration says. `info` as in
    `refuse_missing_weights`.
    """
    others = sorted(info["mismatched_keys"])
    if others:
        weight, stored, expected = others[0]
        raise ModelError(
            f"config.json of the model {quoted(name)} contradicts its weights: {weight} is "
            f"{_shape_words(stored)} in the file and {_shape_words(expected)} by the "
            "configuration. Copy or download both again"
        )


def _shape_words(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
