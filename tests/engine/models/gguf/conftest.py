"""A readable GGUF file for tests to damage, and the reason why it is then refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_gguf import refusal, tiny_file
from raw_gguf import RawFile


@pytest.fixture
def raw() -> RawFile:
    return tiny_file()


@pytest.fixture
def refused(raw: RawFile, tmp_path: Path) -> Callable[..., str]:
    """refused() -> why the file is refused as it is now."""
    return lambda **more: refusal(raw.write(tmp_path / "a.gguf", **more))
