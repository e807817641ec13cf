"""The interface of both kinds of server, and checks for each value in an answer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from eab.caches.shape import ServerBlocks
from eab.errors import ServerError
from eab.formatting import quoted

MAX_LOG_PROB: Final = 1e-3  # rounding may raise ln 1 slightly above 0


@dataclass(frozen=True, slots=True)
class ServerModel:
    """What a server says about the model that it runs."""

    model: str  # its name on the server
    context: int  # number of positions that it can read
    vocab_size: int | None  # number of tokens; None if the server does not say
    blocks: ServerBlocks  # how it keeps KV rows


@dataclass(frozen=True, slots=True)
class Continuation:
    """How a server continues one text."""

    tops: Sequence[Mapping[int, float]]  # before each token, the most likely tokens and ln p
    tokens: Sequence[int]
    cached: int | None  # tokens of the text that came from its cache, if known


class Dialect(Protocol):
    """The protocol of one kind of server."""

    name: str  # the prefix before the colon in a model's name

    def served(self) -> ServerModel:
        """Ask which model the server runs; ServerError if that fails or its kind is another."""
        ...

    def tokenize(self, text: str) -> list[int]:
        """The server's token ids for a text; ServerError if there is no good answer."""
        ...

    def continue_texts(
        self,
        texts: Sequence[Sequence[int]],
        top: int,
        length: int,
        temperature: float = 0.0,
    ) -> list[Continuation]:
        """Continue several texts of token ids by `length` tokens each, in one request.

        Each continuation has at least its first prediction, but perhaps not all of them. The
        temperature applies to the server's own draws; 0 takes the most likely token.

        Raises:
            ServerError: There is no good answer.
            Stopped: Nobody waits for the answer.
        """
        ...


def bad_answer(what: str) -> ServerError:
    """The error for an answer that cannot be used."""
    return ServerError(f"the server's answer cannot be used: {what}", 0.0)


def field_of(value: Any, name: str, kind: type) -> Any:
    """A field of a JSON object; ServerError if it is missing or of another type."""
    field = value.get(name) if isinstance(value, dict) else None
    if not isinstance(field, kind) or (kind is not bool and isinstance(field, bool)):
        raise bad_answer(f"{name} is {quoted(field)}")
    return field


def answers_in_order(entries: Any, count: int) -> list[Any]:
    """The answers to `count` texts, sorted by `index`; ServerError unless each has one."""
    if not isinstance(entries, list) or len(entries) != count:
        raise bad_answer(f"it has no list of {count} continuations")
    by_index = {field_of(entry, "index", int): entry for entry in entries}
    if sorted(by_index) != list(range(count)):
        raise bad_answer("a continuation is missing")
    return [by_index[index] for index in range(count)]


def checked_tops(pairs: Sequence[tuple[Any, Any]], top: int) -> dict[int, float]:
    """The `top` most likely tokens and their ln p; ServerError if they are not valid."""
    log_probs: dict[int, float] = {}
    for token, log_prob in pairs:
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise bad_answer(f"a token is {quoted(token)}")
        if isinstance(log_prob, bool) or not isinstance(log_prob, int | float):
            raise bad_answer(f"a log-probability is {quoted(log_prob)}")
        if math.isnan(log_prob) or log_prob > MAX_LOG_PROB:
            raise bad_answer(f"a log-probability is {quoted(log_prob)}")
        log_probs[token] = float(log_prob)
    if len(log_probs) < top:
        raise bad_answer(f"it returns {len(log_probs)} tokens, but {top} were requested")
    if sum(map(math.exp, log_probs.values())) > 1.01:
        raise bad_answer("the probabilities add up to more than 1")
    return log_probs
