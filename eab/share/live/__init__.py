"""The story model for a page: the script of its worker, its weights and tokenizer as they are, and
`model.json`, which says what the page must know, with the hash of each file. Imports no torch.

The weights are float16 in the checkpoint, and are computed with in float32, here as in the browser,
so the page makes the same tokens as the program.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from eab.assets import ASSETS
from eab.board import javascript
from eab.engine.branching.presets import START
from eab.run.events import ModelCard

FIRST_PROMPT: Final = "Grandma went to the market and bought some"
MANIFEST: Final = "model.json"
_MODEL: Final = ASSETS / "model"
_FILES: Final = ("model.safetensors", "tokenizer.json")
_SHAPE: Final = (
    *("num_hidden_layers", "head_dim", "hidden_size", "intermediate_size", "rms_norm_eps"),
)


def worker() -> str:
    """The script of the worker, with all that it needs; `static/worker.js` says its messages."""
    return javascript("worker", Path(__file__).parent / "static")


@lru_cache(maxsize=1)
def model_files() -> dict[str, bytes]:
    """The files that the live page fetches, 8.7 MB, by name."""
    files = {name: (_MODEL / name).read_bytes() for name in _FILES}
    manifest = json.dumps(_manifest(files), separators=(",", ":"))
    return {MANIFEST: manifest.encode(), **files}


def _manifest(files: dict[str, bytes]) -> dict[str, Any]:
    model = json.loads((_MODEL / "config.json").read_bytes())
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return {
        "card": msgspec.to_builtins(_card(model, hashes["model.safetensors"])),
        "context": model["max_position_embeddings"],
        "stop_ids": [model["eos_token_id"]],
        "shape": {name: model[name] for name in _SHAPE}
        | {"rope_theta": model["rope_parameters"]["rope_theta"]},
        "files": {
            name: {"bytes": len(data), "sha256": hashes[name]} for name, data in files.items()
        },
        "settings": msgspec.to_builtins(START),
    }


def _card(model: dict[str, Any], sha256: str) -> ModelCard:
    layers, heads, size = (
        model[name] for name in ("num_hidden_layers", "num_key_value_heads", "head_dim")
    )
    return ModelCard(
        name="embedded",
        family=model["model_type"],
        vocab_size=model["vocab_size"],
        layers=layers,
        kv_heads=heads,
        head_dim=size,
        dtype="float32",
        device="cpu",
        row_bytes=2 * 4 * layers * heads * size,
        sha256=sha256,
        own_decoder=True,
    )
