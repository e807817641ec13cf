"""The two kinds of server, behind one interface that checks each value in an answer.

The llama.cpp server (github.com/ggml-org/llama.cpp, tools/server) is asked through `/completion`,
vLLM (docs.vllm.ai) through `/v1/completions`, both with token ids as prompts.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, Protocol

from eab.engine.caches.ledger import BLOCK_SIZE
from eab.engine.caches.shape import ServerBlocks
from eab.engine.remote.connection import Connection
from eab.errors import ServerError
from eab.formatting import listed, quoted

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
LLAMA_CPP_NEUTRAL: Final = {
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
        body: dict[str, Any] = LLAMA_CPP_NEUTRAL | {
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


_TOKEN: Final = re.compile(r"token_id:(\d{1,12})")
_BLOCK_SIZE: Final = re.compile(r'vllm:cache_config_info\{[^}]*\bblock_size="(\d{1,6})"')
# Sent with every request: the server would take what is left out from its generation config.
VLLM_NEUTRAL: Final = {
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
        body: dict[str, Any] = VLLM_NEUTRAL | {
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
