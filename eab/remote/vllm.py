"""vLLM (docs.vllm.ai): `/v1/completions` with token ids as prompts."""

import re
from collections.abc import Sequence
from typing import Any, Final

from eab.caches.blocks import BLOCK_SIZE
from eab.caches.shape import ServerBlocks
from eab.errors import ServerError
from eab.formatting import listed
from eab.remote.connection import Connection
from eab.remote.dialect import (
    Continuation,
    ServerModel,
    answers_in_order,
    bad_answer,
    checked_tops,
    field_of,
)

_TOKEN: Final = re.compile(r"token_id:(\d{1,12})")
_BLOCK_SIZE: Final = re.compile(r'vllm:cache_config_info\{[^}]*\bblock_size="(\d{1,6})"')
# Sent with every request: the server would take what is left out from its generation config.
NEUTRAL: Final = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "logit_bias": {},
}


class Vllm:
    """A vLLM server; its log-probabilities are raw, the default of `--logprobs-mode`."""

    name = "vllm"

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model

    def served(self) -> ServerModel:
        """See Dialect.served. Texts share full blocks."""
        models = field_of(self._connection.get("/v1/models"), "data", list)
        names = [field_of(entry, "id", str) for entry in models]
        if self._model not in names:
            raise ServerError(
                f"the server runs {listed(names) or 'no model'}, not {self._model}; choose a model "
                "that it runs, or start it with --served-model-name"
            )
        context = field_of(models[names.index(self._model)], "max_model_len", int)
        return ServerModel(
            self._model, context, None, ServerBlocks(self._block_size(), shared=True)
        )

    def _block_size(self) -> int:
        """The block size in the server's metrics; the default if metrics are turned off."""
        try:
            match = _BLOCK_SIZE.search(self._connection.text("/metrics"))
        except ServerError:
            return BLOCK_SIZE
        return int(match[1]) if match else BLOCK_SIZE

    def tokenize(self, text: str) -> list[int]:
        body = {"model": self._model, "prompt": text, "add_special_tokens": True}
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
            "model": self._model,
            "prompt": [list(text) for text in texts],
            "max_tokens": length,
            "temperature": temperature,
            "logprobs": top,
            "ignore_eos": True,
            "return_tokens_as_token_ids": True,  # two tokens may have equal texts
        }
        answer = self._connection.post("/v1/completions", body)
        if field_of(answer, "model", str) != self._model:
            raise bad_answer("another model has answered")
        choices = answers_in_order(answer.get("choices"), len(texts))
        cached = _cached_tokens(answer) if len(texts) == 1 else None  # counts only the last text
        return [_read(choice, top, cached) for choice in choices]


def _read(choice: Any, top: int, cached: int | None) -> Continuation:
    named = field_of(choice, "logprobs", dict)
    tokens = [_token_id(name) for name in field_of(named, "tokens", list)]
    tops = field_of(named, "top_logprobs", list)
    if not tokens or len(tokens) != len(tops):
        raise bad_answer("it does not contain probabilities for every token")
    checked = []
    for entry in tops:
        if not isinstance(entry, dict):
            raise bad_answer("top_logprobs contains no objects")
        pairs = [(_token_id(name), log_prob) for name, log_prob in entry.items()]
        checked.append(checked_tops(pairs, top))
    return Continuation(checked, tokens, cached)


def _token_id(name: Any) -> int:
    match = _TOKEN.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise bad_answer("it names tokens by their text; the server is not vLLM, or an old version")
    return int(match[1])


def _cached_tokens(answer: Any) -> int | None:
    details = field_of(answer, "usage", dict).get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) and cached >= 0 else None
