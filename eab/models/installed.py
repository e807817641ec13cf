"""Lists the models that can be opened on this machine without a download. Imports no torch."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from eab.errors import ModelError
from eab.models import ollama
from eab.models.packaged import PACKAGED
from eab.models.sources import EMBEDDED, find_source, is_gguf, parts_of_gguf, weight_files

_LM_STUDIO: Final = (".lmstudio/models", ".cache/lm-studio/models")
_HUB: Final = "Hugging Face Hub"
_MOST: Final = 500  # models per program


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model that can be opened."""

    name: str
    bytes: int
    keeper: str  # what stores it: this project or another program


def installed_models() -> list[InstalledModel]:
    """The models that this project, Ollama, LM Studio and the Hub's cache have on this machine."""
    ours = [_of_this_project(name) for name in (EMBEDDED, *PACKAGED) if _is_here(name)]
    return [*ours, *_of_ollama(), *_of_lm_studio(), *_of_the_hub()]


def _is_here(name: str) -> bool:
    return name not in PACKAGED or PACKAGED[name].is_here


def _of_this_project(name: str) -> InstalledModel:
    with suppress(ModelError, OSError):
        return InstalledModel(name, _size(list(weight_files(find_source(name)))), "this project")
    return InstalledModel(name, 0, "this project")


def _of_ollama() -> Iterator[InstalledModel]:
    for name, weights in ollama.models():
        yield InstalledModel(name, _size([weights]), "Ollama")


def _of_lm_studio() -> Iterator[InstalledModel]:
    """GGUF files two folders deep: PUBLISHER/MODEL/FILE.gguf."""
    for folder in (Path.home() / place for place in _LM_STUDIO):
        yield from _gguf_models(sorted(folder.glob("*/*/*.gguf")), "LM Studio")


def _gguf_models(files: Sequence[Path], keeper: str) -> Iterator[InstalledModel]:
    """The models in these files. A split model counts once; vision parts are left out."""
    for file in files[:_MOST]:
        first = "-of-" not in file.name or "-00001-of-" in file.name
        if first and is_gguf(str(file)) and not file.name.startswith("mmproj"):
            yield InstalledModel(str(file), _size(list(parts_of_gguf(file))), keeper)


def _of_the_hub() -> Iterator[InstalledModel]:
    """Models in the Hub's cache that have safetensors weights, and its GGUF files."""
    with suppress(CacheNotFound, OSError, ValueError):
        for repo in sorted(scan_cache_dir().repos, key=lambda repo: repo.repo_id)[:_MOST]:
            files = [file.file_path for revision in repo.revisions for file in revision.files]
            names = {file.name for file in files}
            has_weights = any(name.endswith(".safetensors") for name in names)
            if repo.repo_type == "model" and "config.json" in names and has_weights:
                yield InstalledModel(repo.repo_id, repo.size_on_disk, _HUB)
            yield from _gguf_models(sorted(file for file in files if file.suffix == ".gguf"), _HUB)


def _size(files: list[Path]) -> int:
    size = 0
    for file in files:
        with suppress(OSError):  # it may have been deleted
            size += os.path.getsize(file)
    return size
