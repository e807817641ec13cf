"""Fixtures: a worker with the embedded model, shared by the tests of a file."""

import pytest

from app.server.model_cache import ModelCache
from app.server.worker import Worker
from eab.engine.models.loading import load_model
from eab.errors import ModelError


@pytest.fixture(scope="module")
def models() -> ModelCache:
    model = load_model()

    def load(name: str) -> object:
        if name == "missing":
            raise ModelError("there is no such model")
        return model

    return ModelCache(load)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def worker(models: ModelCache) -> Worker:
    return Worker(models)
