"""Models that Ollama keeps on this machine, such as `ollama:llama3.2:1b`. Imports no torch.

A manifest lists the blobs of a model; one of them is its GGUF file. The layout:
https://github.com/ollama/ollama/blob/main/docs/faq.mdx and its server/manifest.go.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from eab.errors import ModelError
from eab.formatting import quoted, shortened

PREFIX: Final = "ollama:"
VARIABLE: Final = "OLLAMA_MODELS"  # Ollama's own variable for its folder
_WEIGHTS: Final = "application/vnd.ollama.image.model"
_DIGEST: Final = re.compile(r"sha256[:-][0-9a-f]{64}")
_MOST_NAMED: Final = 8  # models listed in a message
_MAX_MANIFEST: Final = 2**20  # bytes
_USUAL: Final = ("registry.ollama.ai", "library")  # default host and owner, which names omit


def ollama_folder() -> Path:
    """Where Ollama keeps its models."""
    return Path(os.environ.get(VARIABLE, "").strip() or Path.home() / ".ollama" / "models")


def models() -> Iterator[tuple[str, Path]]:
    """The models that Ollama has: names with the prefix `ollama:`, and their weights."""
    manifests = ollama_folder() / "manifests"
    for manifest in sorted(manifests.glob("*/*/*/*")):
        *place, tag = manifest.relative_to(manifests).parts
        for usual in _USUAL:
            place = place[1:] if place[0] == usual else place
        weights = _weights(manifest)
        if weights is not None and weights.is_file():
            yield f"{PREFIX}{'/'.join(place)}:{tag}", weights


def weights_of(name: str) -> Path:
    """The GGUF file of a model such as `ollama:llama3.2:1b`; the default tag is `latest`.
    ModelError if Ollama does not have it.
    """
    last = name.removeprefix(PREFIX).rpartition("/")[2]  # the host part may contain a port
    wanted = name if ":" in last else f"{name}:latest"
    known = dict(models())
    if wanted not in known:
        named = ", ".join(shortened(known_name, 60) for known_name in list(known)[:_MOST_NAMED])
        more = f" and {len(known) - _MOST_NAMED:,} more" if len(known) > _MOST_NAMED else ""
        have = f"{named}{more}" if known else "no model"
        raise ModelError(
            f"Ollama has no model {quoted(name)} in {quoted(str(ollama_folder()))}; it has {have}"
        )
    return known[wanted]


def _weights(manifest: Path) -> Path | None:
    """The blob with the weights of a manifest; None if there is none."""
    try:
        with manifest.open("rb") as file:
            layers: Any = json.loads(file.read(_MAX_MANIFEST))["layers"]
        [digest] = [layer["digest"] for layer in layers if layer["mediaType"] == _WEIGHTS]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        return None
    return ollama_folder() / "blobs" / digest.replace(":", "-")
