"""A real llama.cpp server with the embedded model, a fake server that answers badly, and a vLLM
server if there is one.
"""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from bad_answers import DIALECTS, connected
from fake_server import FakeServer
from write_gguf import write_embedded

from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.remote import connection
from eab.engine.remote.model import RemoteModel, connect
from scripts.llama_server import llama_server

KEY = "a-secret-that-must-not-leak"


@pytest.fixture(scope="session")
def gguf_file(embedded: HuggingFaceModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "embedded.gguf"
    write_embedded(file)
    return file


@pytest.fixture(scope="session")
def llama_url(gguf_file: Path) -> Iterator[str]:
    """The address of a llama.cpp server that requires a key."""
    with llama_server(gguf_file, KEY) as (url, _):
        yield url


@pytest.fixture(scope="session")
def llama(llama_url: str) -> Iterator[RemoteModel]:
    """The embedded model on the llama.cpp server."""
    os.environ |= {connection.ADDRESS: llama_url, connection.KEY: KEY}
    model = connect("llama.cpp", "embedded")
    del os.environ[connection.ADDRESS], os.environ[connection.KEY]
    yield model
    model.close()


@pytest.fixture(scope="session")
def server(embedded: HuggingFaceModel) -> Iterator[FakeServer]:
    with FakeServer(embedded) as server:
        yield server


@pytest.fixture
def fake(
    server: FakeServer, embedded: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> FakeServer:
    """A server that answers as the test says; the operator's settings name it."""
    server.begin(embedded)
    monkeypatch.setenv(connection.ADDRESS, server.url)
    monkeypatch.setenv(connection.KEY, KEY)
    return server


@pytest.fixture(scope="session")
def once() -> Callable[[str], RemoteModel]:
    """once(dialect) -> the embedded model on the fake server, connected once in a session."""
    return cache(connected)


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(fake: FakeServer, dialect: str, once: Callable[[str], RemoteModel]) -> RemoteModel:
    """The embedded model on the fake server, in each dialect."""
    return once(dialect)


@pytest.fixture
def plain(fake: FakeServer, once: Callable[[str], RemoteModel]) -> RemoteModel:
    """The embedded model on the fake server, for tests where the dialect makes no difference."""
    return once("llama.cpp")


@pytest.fixture(scope="session")
def vllm() -> Iterator[RemoteModel]:
    """The embedded model on the vLLM server that EAB_VLLM_URL names."""
    url = os.environ.get("EAB_VLLM_URL", "")
    if not url:
        pytest.skip("EAB_VLLM_URL names no vLLM server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(connection.ADDRESS, url)
        patch.delenv(connection.KEY, raising=False)
        model = connect("vllm", "embedded")
    yield model
    model.close()
