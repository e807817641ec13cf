"""Loading models in advance."""

import time

import pytest

from app.server.model_cache import FREE, ModelCache
from eab.engine.models import machine


class Loads(ModelCache):
    """A cache that notes what it loads; the model "broken" cannot be loaded."""

    def __init__(self) -> None:
        self.names: list[str] = []
        super().__init__(self._note)

    def _note(self, name: str) -> None:  # type: ignore[override]
        self.names.append(name)
        if name == "broken":
            raise ValueError("this model cannot be loaded")


def test_models_are_loaded_in_advance_even_after_one_that_cannot_be() -> None:
    cache, end = Loads(), time.monotonic() + 60
    cache.warm_up(["broken", "other"])
    while len(cache.names) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert cache.names == ["broken", "other"]


def test_no_model_is_loaded_in_advance_without_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Loads()
    # Threads of other tests may ask, too.
    monkeypatch.setattr(machine, "free_memory", lambda: FREE - len(cache.names))
    cache._warm_up(["one", "other"])
    assert cache.names == ["one"]


def test_loading_in_advance_waits_until_the_process_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = iter([1.0, 1.5, 2.0, 2.001, 2.5])
    monkeypatch.setattr(time, "process_time", lambda: next(used))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    cache = Loads()
    cache._warm_up(["one"])
    assert (cache.names, list(used)) == (["one"], [2.5])
