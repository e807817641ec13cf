"""Finds where a named model is: in this project, in a package, in a folder or file, on the Hub, or
among the models that Ollama keeps on this machine. Lists those that can be opened without a
download. Imports no torch.

A manifest of Ollama lists the blobs of a model; one of them is its GGUF file. The layout:
https://github.com/ollama/ollama/blob/main/docs/faq.mdx and its server/manifest.go.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from huggingface_hub import scan_cache_dir, try_to_load_from_cache
from huggingface_hub.errors import CacheNotFound, HFValidationError

from eab.assets import ASSETS
from eab.engine.models.packaged import PACKAGED
from eab.errors import ModelError
from eab.formatting import quoted, shortened

EMBEDDED: Final = "embedded"
OLLAMA: Final = "ollama:"  # before names of its models
EMBEDDED_FOLDER: Final = ASSETS / "model"
# A smaller model with the same vocabulary, for draft tokens
EMBEDDED_DRAFT: Final = "embedded-draft"
BUNDLED: Final = {EMBEDDED: EMBEDDED_FOLDER, EMBEDDED_DRAFT: EMBEDDED_FOLDER.parent / "draft"}
_NAMED: Final = f"'{EMBEDDED}', '{next(iter(PACKAGED))}'"
NAMES: Final = f"{_NAMED}, a folder, a GGUF file, or an id on the Hugging Face Hub"
MAGIC: Final = b"GGUF"
MAX_HASHED: Final = 8 * 2**30  # bytes; larger weights are not read again to hash them
_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model is."""

    # `folder`: transformers' own files; `gguf`: a GGUF file; `hub`: not on this machine
    kind: Literal["folder", "gguf", "hub"]
    place: str  # the folder or the file, or the id on the Hub


def find_source(name: str) -> Source:
    """Where the model with this name is; ModelError if no model can have the name."""
    if name in BUNDLED:
        return _bundled(name)
    if name in PACKAGED:
        return _packaged(name)
    if name.startswith(OLLAMA):
        return Source("gguf", str(ollama_weights(name)))
    if not name.strip():
        raise ModelError(f"no model is named; give {NAMES}")
    place = os.path.expanduser(name)  # os.path functions accept any string without an error
    if os.path.isfile(place):
        return _file(name, place)
    if os.path.isdir(place):
        return _folder(name, place)
    try:
        here = try_to_load_from_cache(name, "config.json")
    except HFValidationError as error:  # no Hub id, so a folder must be meant
        raise ModelError(
            f"the model {quoted(name)} cannot be found: there is no such folder or file. Give "
            f"{NAMES}"
        ) from error
    return Source("folder" if isinstance(here, str) else "hub", name)


def folder_of(source: Source) -> str | None:
    """The folder that transformers opens for a model; None if it is not on this machine."""
    if os.path.isdir(source.place):
        return source.place
    config = try_to_load_from_cache(source.place, "config.json")
    return os.path.dirname(config) if isinstance(config, str) else None


def is_gguf(path: str) -> bool:
    """Whether the file starts with the magic number of GGUF, whatever its name."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def parts_of_gguf(path: Path) -> tuple[Path, ...]:
    """The files of a GGUF model, given the first; its name contains their number."""
    match = _PART.search(path.name)
    if match is None or int(match[1]) != 1:
        return (path,)
    stem, count = path.name[: match.start()], int(match[2])
    names = [f"{stem}-{part:05d}-of-{count:05d}.gguf" for part in range(1, 1 + count)]
    return tuple(path.with_name(name) for name in names)


def weight_files(source: Source) -> Sequence[Path]:
    """The weight files of a model that are on this machine."""
    if source.kind == "gguf":
        return parts_of_gguf(Path(source.place))
    folder = folder_of(source)
    return sorted(Path(folder).glob("*.safetensors")) if folder is not None else []


def weights_sha256(source: Source) -> str:
    """The SHA-256 of all weight files of a model; empty if there are none, or if they exceed
    MAX_HASHED bytes.
    """
    files, digest = weight_files(source), hashlib.sha256()
    if not files or sum(file.stat().st_size for file in files) > MAX_HASHED:
        return ""
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
    return digest.hexdigest()


def _bundled(name: str) -> Source:
    if not BUNDLED[name].is_dir():
        raise ModelError(
            f"the model {name!r} is missing at {BUNDLED[name]}; install the project from a checkout"
        )
    return Source("folder", str(BUNDLED[name]))


def _packaged(name: str) -> Source:
    if not PACKAGED[name].is_here:
        raise ModelError(
            f"the model {name!r} is not on this machine yet; get it with `eab models get {name}`, "
            "or on the page under Model"
        )
    return Source("gguf", str(PACKAGED[name].file))


def _file(name: str, place: str) -> Source:
    if not is_gguf(place):
        raise ModelError(
            f"the file {quoted(name)} is not a GGUF model; give a .gguf file, or the folder of a "
            "model with its config.json"
        )
    return Source("gguf", place)


def _folder(name: str, place: str) -> Source:
    """The source in a folder: transformers' files, or one GGUF model, which may be split."""
    if os.path.isfile(os.path.join(place, "config.json")):
        return Source("folder", place)
    files = sorted(path for path in Path(place).glob("*.gguf") if is_gguf(str(path)))
    firsts = [path for path in files if "-of-" not in path.name or "-00001-of-" in path.name]
    if len(firsts) == 1:
        return Source("gguf", str(firsts[0]))
    if firsts:
        raise ModelError(
            f"the folder {quoted(name)} contains {len(firsts)} GGUF models; give one of the "
            f"files, such as {quoted(firsts[0].name)}"
        )
    raise ModelError(
        f"the folder {quoted(name)} contains no model: neither a config.json nor a GGUF file"
    )


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
    packaged = [name for name, model in PACKAGED.items() if model.is_here]
    ours = map(_of_this_project, (EMBEDDED, *packaged))
    return [*ours, *_of_ollama(), *_of_lm_studio(), *_of_the_hub()]


def _of_this_project(name: str) -> InstalledModel:
    with suppress(ModelError, OSError):
        return InstalledModel(name, _size(list(weight_files(find_source(name)))), "this project")
    return InstalledModel(name, 0, "this project")


def _of_ollama() -> Iterator[InstalledModel]:
    for name, weights in ollama_models():
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


_WEIGHTS: Final = "application/vnd.ollama.image.model"
_DIGEST: Final = re.compile(r"sha256[:-][0-9a-f]{64}")
_MOST_NAMED: Final = 8  # models listed in a message
_MAX_MANIFEST: Final = 2**20  # bytes
_USUAL: Final = ("registry.ollama.ai", "library")  # default host and owner, which names omit


def ollama_folder() -> Path:
    """Where Ollama keeps its models."""
    return Path(os.environ.get("OLLAMA_MODELS", "").strip() or Path.home() / ".ollama" / "models")


def ollama_models() -> Iterator[tuple[str, Path]]:
    """The models that Ollama has: names with the prefix `ollama:`, and their weights."""
    manifests = ollama_folder() / "manifests"
    for manifest in sorted(manifests.glob("*/*/*/*")):
        *place, tag = manifest.relative_to(manifests).parts
        for usual in _USUAL:
            place = place[1:] if place[0] == usual else place
        weights = _ollama_blob(manifest)
        if weights is not None and weights.is_file():
            yield f"{OLLAMA}{'/'.join(place)}:{tag}", weights


def ollama_weights(name: str) -> Path:
    """The GGUF file of a model such as `ollama:llama3.2:1b`; the default tag is `latest`.
    ModelError if Ollama does not have it.
    """
    last = name.removeprefix(OLLAMA).rpartition("/")[2]  # the host part may contain a port
    wanted = name if ":" in last else f"{name}:latest"
    known = dict(ollama_models())
    if wanted not in known:
        named = ", ".join(shortened(known_name, 60) for known_name in list(known)[:_MOST_NAMED])
        more = f" and {len(known) - _MOST_NAMED:,} more" if len(known) > _MOST_NAMED else ""
        have = f"{named}{more}" if known else "no model"
        raise ModelError(
            f"Ollama has no model {quoted(name)} in {quoted(str(ollama_folder()))}; it has {have}"
        )
    return known[wanted]


def _ollama_blob(manifest: Path) -> Path | None:
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
