"""Models that other programs keep here are found and opened; damaged ones are left out."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from command_line import eab
from hostile_gguf import tiny_file

from eab.engine.models import sources
from eab.engine.models.loading import load_model
from eab.engine.models.sources import InstalledModel, installed_models
from eab.errors import ModelError

USUAL = "registry.ollama.ai/library"
WEIGHTS = "application/vnd.ollama.image.model"


def add_to_ollama(folder: Path, place: str, weights: bytes) -> Path:
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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without models."""
    for name, folder in (
        ("HOME", tmp_path),
        ("USERPROFILE", tmp_path),
        ("OLLAMA_MODELS", tmp_path / "ollama"),
        ("EAB_MODELS", tmp_path / "models"),
        ("HF_HUB_CACHE", tmp_path / "hub"),  # for processes that tests start; for this one:
    ):
        monkeypatch.setenv(name, str(folder))
    scan = sources.scan_cache_dir
    monkeypatch.setattr(sources, "scan_cache_dir", lambda: scan(tmp_path / "hub"))
    return tmp_path


@pytest.fixture
def blob(tmp_path: Path) -> bytes:
    """The bytes of a GGUF model."""
    return tiny_file().write(tmp_path / "a.gguf").read_bytes()


def others() -> list[InstalledModel]:
    return [model for model in installed_models() if model.keeper != "this project"]


def test_models_of_ollama_are_named_as_ollama_names_them(home: Path, blob: bytes) -> None:
    [embedded] = installed_models()
    assert (embedded.name, embedded.keeper) == ("embedded", "this project")
    add_to_ollama(home / "ollama", f"{USUAL}/llama3.2/1b", blob)
    add_to_ollama(home / "ollama", f"{USUAL}/tiny/latest", blob)
    add_to_ollama(home / "ollama", "registry.ollama.ai/someone/tiny/q4", blob)
    add_to_ollama(home / "ollama", "hf.co/someone/tiny-GGUF/Q8_0", blob)
    add_to_ollama(home / "ollama", "localhost:5000/library/tiny/latest", blob)
    expected = {
        "ollama:hf.co/someone/tiny-GGUF:Q8_0",
        "ollama:llama3.2:1b",
        "ollama:localhost:5000/library/tiny:latest",
        "ollama:someone/tiny:q4",
        "ollama:tiny:latest",
    }
    assert set(others()) == {InstalledModel(name, len(blob), "Ollama") for name in expected}
    for name in expected:
        assert sources.ollama_weights(name).read_bytes() == blob
    for name in ("ollama:tiny", "ollama:localhost:5000/library/tiny"):
        assert sources.ollama_weights(name).read_bytes() == blob
    model = load_model("ollama:tiny", "cpu")
    assert (model.card.name, model.card.family, model.card.layers) == ("ollama:tiny", "llama", 1)
    add_to_ollama(home / "ollama", f"{USUAL}/tiny/latest", b"\x00" * 100)
    with pytest.raises(ModelError, match=r"is not a GGUF file: it begins with other bytes"):
        load_model("ollama:tiny", "cpu")


@pytest.mark.parametrize("name", ["ollama:", "ollama:big", "ollama:tiny:7b", "ollama:../../x"])
def test_a_model_that_ollama_lacks_is_refused_with_those_that_it_has(name, home, blob):
    with pytest.raises(ModelError, match=r"Ollama has no model .*; it has no model"):
        load_model(name, "cpu")
    for number in range(30):
        add_to_ollama(home / "ollama", f"{USUAL}/tiny/{number:02d}{'x' * 200}", blob)
    with pytest.raises(ModelError, match=r"it has ollama:tiny:00x.* and 22 more") as caught:
        load_model(name, "cpu")
    assert len(str(caught.value).encode()) < 1000


def manifest(*digests: object) -> str:
    return json.dumps({"layers": [{"mediaType": WEIGHTS, "digest": one} for one in digests]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"layers": null}',
        '{"layers": [3]}',
        '{"layers": ' + "[" * 100_000,
        manifest(),
        manifest(3),
        manifest("sha256:" + "0" * 64),  # a missing blob
        manifest("../../secret"),
        manifest(f"sha256:{'0' * 64}/../../../secret"),
        manifest(f"sha256:{'0' * 64}\n"),
    ],
    ids=lambda text: text[:60],
)
def test_a_damaged_manifest_is_left_out(text: str, home: Path, blob: bytes) -> None:
    (home / "secret").write_bytes(blob)
    (home / "ollama" / "blobs" / f"sha256-{'0' * 64}").mkdir(parents=True)
    add_to_ollama(home / "ollama", f"{USUAL}/tiny/latest", blob)
    add_manifest(home / "ollama", f"{USUAL}/evil/latest", text)
    add_to_ollama(home / "ollama", f"{USUAL}/large/latest", blob)
    [large] = (home / "ollama" / "manifests").glob("*/*/large/*")
    large.write_text(" " * 2**21 + large.read_text())
    assert [model.name for model in others()] == ["ollama:tiny:latest"]
    with pytest.raises(ModelError, match="it has ollama:tiny:latest"):
        load_model("ollama:evil", "cpu")


def test_lm_studio_models_are_found_and_split_ones_counted_once(home: Path, blob: bytes) -> None:
    folder = home / ".lmstudio" / "models" / "someone" / "tiny-GGUF"
    folder.mkdir(parents=True)
    for name in ("tiny-Q8_0", "mmproj-tiny", "big-00001-of-00002", "big-00002-of-00002"):
        (folder / f"{name}.gguf").write_bytes(blob)
    (folder / "damaged.gguf").write_bytes(b"<html>")
    (folder / "a-folder.gguf").mkdir()
    (folder / "readme.md").write_text("no model")
    older = home / ".cache" / "lm-studio" / "models" / "someone" / "old"
    older.mkdir(parents=True)
    (older / "old.gguf").write_bytes(blob)
    assert others() == [
        InstalledModel(str(folder / "big-00001-of-00002.gguf"), 2 * len(blob), "LM Studio"),
        InstalledModel(str(folder / "tiny-Q8_0.gguf"), len(blob), "LM Studio"),
        InstalledModel(str(older / "old.gguf"), len(blob), "LM Studio"),
    ]
    assert load_model(others()[1].name, "cpu").card.layers == 1


def test_hub_cache_models_need_weights_in_safetensors_or_gguf(home: Path, blob: bytes) -> None:
    files = {"config.json": b"{}", "model.safetensors": b"x" * 1000}
    add_to_hub_cache(home / "hub", "someone/whole", files)
    add_to_hub_cache(home / "hub", "someone/pickled", {"config.json": b"{}", "model.bin": b"x"})
    add_to_hub_cache(home / "hub", "someone/weights-only", {"model.safetensors": b"x"})
    (home / "hub" / "models--damaged").mkdir()
    (home / "hub" / "a-file").write_text("")
    assert others() == [InstalledModel("someone/whole", 1002, "Hugging Face Hub")]
    add_to_hub_cache(home / "hub", "someone/packed", {"tiny.gguf": blob, "notes.gguf": b"text"})
    [found] = [one for one in others() if one.name.endswith("tiny.gguf")]
    assert (Path(found.name).read_bytes(), found.bytes) == (blob, len(blob))
    shutil.rmtree(home / "hub")
    (home / "hub").write_text("")
    assert others() == []


def test_the_command_lists_all_models_with_names_to_copy(home: Path, blob: bytes) -> None:
    add_to_ollama(home / "ollama", f"{USUAL}/x/1b", blob)  # `:x:` is an emoji code for rich
    long = home / ".lmstudio" / "models" / "someone" / f"[bold]{'long-name-' * 12}"
    long.mkdir(parents=True)
    (long / "tiny.gguf").write_bytes(blob)
    files = {"config.json": b"{}", "model.safetensors": b"x"}
    add_to_hub_cache(home / "hub", "someone/whole", files)
    out = eab("models", env=os.environ | {"COLUMNS": "100"})
    assert (out.returncode, out.stderr) == (0, "")
    lines = out.stdout.splitlines()
    for name, keeper in (
        ("embedded", "this project"),
        ("ollama:x:1b", "Ollama"),
        ("someone/whole", "Hugging Face Hub"),
    ):
        assert any(line.startswith(name) and line.rstrip().endswith(keeper) for line in lines)
    width = max(line.index("LM Studio") for line in lines if "LM Studio" in line)
    folded = "".join(line[:width].split("  ")[0].strip() for line in lines)
    assert str(long / "tiny.gguf") in folded
    assert (
        "SmolLM2 135M (93 MB, Apache-2.0) can be downloaded: eab models get smollm2" in lines[-2:]
    )
