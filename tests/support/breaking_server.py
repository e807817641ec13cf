"""The explorer with a model that fails once, in the middle of two runs, so that its thread ends."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from app import serve
from app.server import model_cache

PASSES = 10  # passes shared by two runs before the failure


class Panic(BaseException):
    """An exception as compiled code raises it: `except Exception` does not catch it."""


def load(name: str) -> Any:
    """The model of this name, with one forward pass that raises Panic."""
    model: Any = loaded(name)
    forward, passes = model.forward, count()

    def breaking(batches: Sequence[Any]) -> Any:
        if len(batches) == 2 and next(passes) == PASSES:
            raise Panic
        return forward(batches)

    model.forward = breaking
    return model


if __name__ == "__main__":
    loaded, model_cache._load = model_cache._load, load
    serve.main()
