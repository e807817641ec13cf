"""Stopping in the middle of a forward pass: models ask in each layer, and while a server works."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


class Stopped(BaseException):
    """Ends a run, or a forward pass whose result nobody waits for.

    Like asyncio's CancelledError, it is no Exception: it is not a failure of the model.
    """


_requested: Final = ContextVar[Callable[[], bool]]("stop_requested", default=lambda: False)


@contextmanager
def stopping_when(requested: Callable[[], bool]) -> Iterator[None]:
    """Let passes in the block stop as soon as `requested()` is true, here or in a block around."""
    outer = _requested.get()
    token = _requested.set(lambda: requested() or outer())
    try:
        yield
    finally:
        _requested.reset(token)


def stop_if_requested() -> None:
    """Raise Stopped if the pass should stop."""
    if _requested.get()():
        raise Stopped
