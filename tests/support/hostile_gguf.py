"""A tiny GGUF file for tests to damage, and checks of how it is refused."""

import copy
import time
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from raw_gguf import RawFile, raw_file
from tiny_models import tiny
from write_gguf import write

from eab.engine.models.loading import load_model, load_tokenizer
from eab.errors import ModelError

SECONDS = 20


def tiny_file() -> RawFile:
    """A valid file."""
    return copy.deepcopy(_written())


@lru_cache(maxsize=1)
def _written() -> RawFile:
    with TemporaryDirectory() as folder:
        model = tiny("LlamaConfig", seed=1, num_hidden_layers=1)
        return raw_file(write(model, Path(folder) / "a.gguf"))


def refusal(path: Path) -> str:
    """The message that refuses the file as a model, which must be short and come soon. As a
    tokenizer, the file is either read or refused in the same way.
    """
    start = time.monotonic()
    with pytest.raises(ModelError) as caught:
        load_model(str(path), "cpu")
    message = str(caught.value)
    for words in (message, tokenizer_refusal(path)):
        check_words(words)
    assert time.monotonic() - start < SECONDS
    return message


def tokenizer_refusal(path: Path) -> str:
    """The message that refuses the tokenizer and the configuration; empty if both are read."""
    try:
        load_tokenizer(str(path))
    except ModelError as error:
        return str(error)
    return ""


def check_words(message: str) -> None:
    """Check that a message is short and shows no internals such as a traceback."""
    assert len(message.encode()) < 1000
    assert not any(hint in message for hint in ("site-packages", "Traceback", 'File "'))
