"""What is served: requests with prompts and lengths, in one of three ways; and the sets of
requests that the Batching page offers, whose lengths decide the cost of each way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, get_args

from eab.config import BranchingConfig
from eab.errors import ConfigError
from eab.formatting import counted
from eab.timing import MIN_REPEATS

Way = Literal["continuous", "static batches", "one by one"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)
TITLES: Final[dict[Way, str]] = {
    "continuous": "Continuous batching",
    "static batches": "Static batches",
    "one by one": "One by one",
}
MAX_REQUESTS, MAX_NEW_TOKENS, MAX_PATHS, MAX_SLOTS, MAX_REPEATS = 32, 256, 8, 8, 9
MAX_PROMPT: Final = 2000  # characters
NEVER_FORKS: Final = 20.0  # nats


class ServingRequest(NamedTuple):
    """A request: a prompt, and the maximum number of new tokens."""

    prompt: str
    new_tokens: int


def request_name(number: int) -> str:
    """The name of the run of a request; the first has number 0."""
    return f"request {number + 1}"


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that arrive at the same time, and how they are served."""

    requests: tuple[ServingRequest, ...]
    slots: int = 4  # the most requests in a batch
    repeats: int = MIN_REPEATS  # how often each way is measured
    max_paths: int = 1  # path limit of each request; with 1, no path forks
    seed: int = 1  # the same for all requests

    def __post_init__(self) -> None:
        for what, value, most in (
            ("requests", len(self.requests), MAX_REQUESTS),
            ("slots", self.slots, MAX_SLOTS),
            ("repeats", self.repeats, MAX_REPEATS),
            ("paths", self.max_paths, MAX_PATHS),
        ):
            if not 1 <= value <= most:
                raise ConfigError(f"{value} {what} were given; choose from 1 to {most}")
        for number, asked in enumerate(self.requests, start=1):
            if not asked.prompt.strip() or len(asked.prompt) > MAX_PROMPT:
                raise ConfigError(
                    f"the prompt of request {number} has "
                    f"{counted(len(asked.prompt), 'character')}; "
                    f"write from 1 to {MAX_PROMPT:,}, not only spaces"
                )
            if not 1 <= asked.new_tokens <= MAX_NEW_TOKENS:
                raise ConfigError(
                    f"request {number} asks for {asked.new_tokens} new tokens; "
                    f"choose from 1 to {MAX_NEW_TOKENS}"
                )

    def serves_like(self, other: "Workload") -> bool:
        """Whether the other workload differs at most in its repeats."""
        return replace(self, repeats=other.repeats) == other

    def config(self, request: ServingRequest) -> BranchingConfig:
        """The settings of this request."""
        forks: dict[str, Any] = {} if self.max_paths > 1 else {"entropy_threshold": NEVER_FORKS}
        return BranchingConfig(
            max_new_tokens=request.new_tokens,
            max_paths=self.max_paths,
            temperature=0.8,
            seed=self.seed,
            **forks,
        )

    def groups(self, way: Way) -> Iterator[Sequence[int]]:
        """Request numbers in groups; each group waits until the previous group has ended."""
        numbers = range(len(self.requests))
        size = {"continuous": len(numbers), "static batches": self.slots, "one by one": 1}[way]
        for first in range(0, len(numbers), size):
            yield numbers[first : first + size]


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
