"""Model folders as Ollama and the cache of the Hugging Face Hub lay them out."""

import hashlib
import json
from pathlib import Path
from typing import Any

WEIGHTS = "application/vnd.ollama.image.model"


def add_to_ollama(folder: Path, place: str, weights: bytes | Any) -> Path:
    """Add a model at `place`, which is HOST/OWNER/NAME/TAG, and return its blob."""
    digest = hashlib.sha256(weights).hexdigest()
    blob = folder / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(weights)
    layers = [
        {"mediaType": WEIGHTS, "digest": f"sha256:{digest}", "size": len(weights)},
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'0' * 64}"},
    ]
    add_manifest(folder, place, json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def add_manifest(folder: Path, place: str, text: str) -> None:
    manifest = folder / "manifests" / place
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(text)


def add_to_hub_cache(folder: Path, id: str, files: dict[str, bytes]) -> None:
    """Add a repository with one revision that has these files."""
    repository, commit = folder / f"models--{id.replace('/', '--')}", "0" * 40
    snapshot = repository / "snapshots" / commit
    for name, data in files.items():
        snapshot.mkdir(parents=True, exist_ok=True)
        (repository / "blobs").mkdir(exist_ok=True)
        blob = repository / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (snapshot / name).symlink_to(blob)
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
