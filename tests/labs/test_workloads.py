"""Valid workloads, and how the ways group their requests."""

import pytest

from eab.errors import ConfigError
from eab.labs.batching import (
    MAX_NEW_TOKENS,
    MAX_PROMPT,
    MAX_REQUESTS,
    WAYS,
    ServingRequest,
    Workload,
)

ASKED = tuple(ServingRequest(f"prompt {number}", 8) for number in range(5))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"requests": ()}, "0 requests were given; choose from 1 to 32"),
        ({"requests": ASKED * 7}, "35 requests were given; choose from 1 to 32"),
        ({"requests": (ServingRequest("  ", 8),)}, "the prompt of request 1 has 2 characters"),
        (
            {"requests": (*ASKED, ServingRequest("x" * (MAX_PROMPT + 1), 8))},
            "the prompt of request 6",
        ),
        (
            {"requests": (ServingRequest("x", 0),)},
            "request 1 asks for 0 new tokens; choose from 1 to 256",
        ),
        (
            {"requests": (ServingRequest("x", MAX_NEW_TOKENS + 1),)},
            "request 1 asks for 257 new tokens",
        ),
        ({"slots": 0}, "0 slots were given; choose from 1 to 8"),
        ({"repeats": 10}, "10 repeats were given; choose from 1 to 9"),
        ({"max_paths": 9}, "9 paths were given; choose from 1 to 8"),
    ],
)
def test_an_invalid_workload_is_explained(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Workload(**({"requests": ASKED} | values))  # type: ignore[arg-type]


def test_the_largest_workload_is_allowed() -> None:
    largest = Workload((ServingRequest("x" * MAX_PROMPT, MAX_NEW_TOKENS),) * MAX_REQUESTS, 8, 9, 8)
    assert largest.config(largest.requests[0]).max_paths == 8


def test_the_ways_differ_in_how_they_group_requests() -> None:
    workload = Workload(ASKED, slots=2)
    assert {way: [[*group] for group in workload.groups(way)] for way in WAYS} == {
        "continuous": [[0, 1, 2, 3, 4]],
        "static batches": [[0, 1], [2, 3], [4]],
        "one by one": [[0], [1], [2], [3], [4]],
    }
