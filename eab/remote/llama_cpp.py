"""The llama.cpp server (github.com/ggml-org/llama.cpp, tools/server), through `/completion`."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from eab.caches.shape import ServerBlocks
from eab.remote.connection import Connection
from eab.remote.dialect import (
    Continuation,
    ServerModel,
    answers_in_order,
    bad_answer,
    checked_tops,
    field_of,
)

_FIELDS: Final = [
    "index",
    "model",
    "tokens",
    "tokens_evaluated",
    "timings",
    "completion_probabilities",
]
CERTAIN: Final = 1e6  # added to a logit, so that this token is always chosen
# Sent with every request: the server would take what is left out from its own start options.
NEUTRAL: Final = {
    "samplers": ["temperature"],
    "mirostat": 0,  # it would replace the samplers
    "dynatemp_range": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "grammar": "",
    "post_sampling_probs": False,
}


class LlamaCpp:
    """A llama.cpp server.

    Its log-probabilities are those before sampling. The server omits them for incomplete characters
    and for some end tokens. So if one token is requested, the server is made to choose `harmless`,
    a whole character. If it runs ahead, the continuation stops before the first token without them.
    """

    name = "llama.cpp"

    def __init__(self, connection: Connection, harmless: int) -> None:
        self._connection, self._harmless = connection, harmless
        self._model = ""

    def served(self) -> ServerModel:
        """See Dialect.served. Each slot keeps the rows of its own text, and shares none."""
        model = field_of(self._connection.get("/v1/models"), "data", list)[:1]
        meta = field_of(model[0] if model else None, "meta", dict)
        settings = field_of(self._connection.get("/props"), "default_generation_settings", dict)
        self._model = field_of(model[0], "id", str)
        return ServerModel(
            self._model,
            field_of(settings, "n_ctx", int),
            field_of(meta, "n_vocab", int),
            ServerBlocks(1, shared=False),
        )

    def tokenize(self, text: str) -> list[int]:
        body = {"content": text, "add_special": True, "parse_special": False}
        tokens: list[int] = field_of(self._connection.post("/tokenize", body), "tokens", list)
        return tokens

    def continue_texts(
        self,
        texts: Sequence[Sequence[int]],
        top: int,
        length: int,
        temperature: float = 0.0,
    ) -> list[Continuation]:
        body: dict[str, Any] = NEUTRAL | {
            "prompt": [list(text) for text in texts],
            "n_predict": length,
            "n_probs": top,
            "cache_prompt": True,
            "return_tokens": True,
            "temperature": temperature,
            "ignore_eos": True,
            "response_fields": _FIELDS,
        }
        if length == 1:
            body["logit_bias"] = [[self._harmless, CERTAIN]]
        answer = self._connection.post("/completion", body)
        entries = [answer | {"index": 0}] if isinstance(answer, dict) else answer
        answers = answers_in_order(entries, len(texts))
        return [self._read(entry, text, top) for entry, text in zip(answers, texts, strict=True)]

    def _read(self, answer: Any, text: Sequence[int], top: int) -> Continuation:
        if field_of(answer, "model", str) != self._model:
            raise bad_answer("another model has answered")
        if field_of(answer, "tokens_evaluated", int) != len(text):
            raise bad_answer("it read a different number of tokens than was sent")
        tokens = field_of(answer, "tokens", list)
        named = answer.get("completion_probabilities") or []
        if not isinstance(named, list):
            raise bad_answer("completion_probabilities is not a list")
        pairs = zip(tokens, named, strict=False)
        whole = list(takewhile(lambda pair: pair[0] == field_of(pair[1], "id", int), pairs))
        if not whole:
            raise bad_answer("it contains no probabilities")
        return Continuation(
            [_tops(entry, top) for _, entry in whole],
            [token for token, _ in whole],
            field_of(field_of(answer, "timings", dict), "cache_n", int),
        )


def _tops(entry: Any, top: int) -> dict[int, float]:
    named = field_of(entry, "top_logprobs", list)
    return checked_tops(
        [(field_of(entry, "id", int), entry.get("logprob")) for entry in named], top
    )
