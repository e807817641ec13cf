"""The sets of requests that the Batching page offers; their lengths decide the cost of each way."""

from typing import Final

from eab.labs.batching.results import ServingRequest

_SHORT: Final = (
    "The capital of France is",
    "My pet is a",
    "Grandma went to the market and bought some",
    "When I grow up I want to be a",
    "Ben has four apples. He",
    "The capital of Italy is",
    "What is three plus four? Three plus four is",
    "User: What is the capital of Italy?\nAssistant:",
)
_STORIES: Final = (
    "The sun was hot, so the children",
    "It was a dark night. The old man walked through the forest and",
    "Anna wanted to bake a cake. First she",
    "A fox and a rabbit were friends. One day the fox",
)


def _asked(*pairs: tuple[str, int]) -> tuple[ServingRequest, ...]:
    return tuple(ServingRequest(*pair) for pair in pairs)


CLASS: Final = "A class: eight short, two long"
PRESETS: Final = {
    CLASS: _asked(
        *((prompt, 16) for prompt in _SHORT[:2]),
        (_STORIES[0], 120),
        *((prompt, 16) for prompt in _SHORT[2:5]),
        (_STORIES[1], 120),
        *((prompt, 16) for prompt in _SHORT[5:]),
    ),
    "Mixed lengths": _asked(
        (_SHORT[0], 16),
        (_STORIES[0], 96),
        (_SHORT[1], 16),
        (_STORIES[1], 48),
        (_STORIES[2], 24),
        (_SHORT[2], 16),
        (_STORIES[3], 72),
        (_SHORT[3], 16),
    ),
    "All equal": _asked(*((prompt, 32) for prompt in (*_STORIES, *reversed(_STORIES)))),
}
