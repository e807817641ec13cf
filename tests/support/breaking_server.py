"""The explorer with a model that breaks once, in the middle of two runs, in a way that ends a thread."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from app import serve
from app.server import model_cache

PASSES = 10  # of two runs together, before it breaks


class Panic(BaseException):
    """As compiled code raises it: nothing on the way takes it."""


def load(name: str) -> Any:
    """The model, which breaks once."""
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
