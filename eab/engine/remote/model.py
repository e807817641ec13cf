"""A language model on a server, behind the engine's interface.

A server returns the K most likely tokens and their ln p. With `0 < top_k <= K`, the processed
distribution consists of just these tokens. So entropies, draws, weights and bounds are exactly
those of the same settings on this machine, up to the rounding of the server's numbers.

A model is found by name, `llama.cpp:NAME` or `vllm:NAME`, and checked when connecting. NAME is one
that `eab.engine.models.loading` accepts, because tokenizer and configuration are read on this
machine: `embedded`, a folder, or a Hub id. For vLLM it is also the model's name there.
"""

import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from eab.config import SETTINGS, BranchingConfig
from eab.engine.branching.presets import START
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.server import ServerAnswer, ServerCache, ServerQuestion
from eab.engine.caches.shape import KVShape
from eab.engine.models import loading
from eab.engine.models.base import LanguageModel
from eab.engine.models.configuration import refuse_uneven_layers
from eab.engine.models.prompts import PromptEncoder, TokenTexts
from eab.engine.models.sources import EMBEDDED, OLLAMA
from eab.engine.models.stopping import stop_if_requested
from eab.engine.models.transformers_model import stop_ids_of
from eab.engine.remote.connection import DIALECTS, SECONDS, Connection, configured_address
from eab.engine.remote.dialects import (
    Continuation,
    Dialect,
    LlamaCpp,
    ServerModel,
    Vllm,
    bad_answer,
)
from eab.errors import ConfigError, ModelError, ServerError
from eab.formatting import quoted
from eab.run.events import ModelCard
from eab.run.events.chat import Prompt, markers_in
from eab.weight_formats import AS_LOADED, AUTO

TOPS: Final = (100, 20)  # most likely tokens to request: from a server of your own; vLLM's default
PROBE: Final = "A cat, 12 dogs\nand the sea: it's  blue."
MAX_DIFFERENCE: Final = 0.1  # nats, between two answers to the same text; servers may round


def harmless_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """A token that is a single letter; ModelError if there is none."""
    texts = TokenTexts(tokenizer)
    for letter in string.ascii_letters:
        token = tokenizer.convert_tokens_to_ids(letter)
        if isinstance(token, int) and texts[token] == letter:
            return token
    raise ModelError("the tokenizer has no token for a single letter; choose another model")


def check_tokenizer(
    server: Dialect, served: ServerModel, tokenizer: PreTrainedTokenizerBase, vocab_size: int
) -> None:
    """Check that the server's token ids mean the same as here; else ModelError."""
    if served.vocab_size not in (None, vocab_size):
        raise ModelError(
            f"the server's model has {served.vocab_size} tokens, but the model named here has "
            f"{vocab_size}; name the model that the server runs"
        )
    if server.tokenize(PROBE) != list(tokenizer.encode(PROBE)):
        raise ModelError(
            "the server's tokenizer differs from the one of the model named here; name the model "
            "that the server runs"
        )


def granted_tops(server: Dialect, probe: list[int], vocab_size: int) -> int:
    """How many of the most likely tokens the server returns; ModelError if too few."""
    refusal = ServerError()
    for top in TOPS:
        top = min(top, vocab_size)
        try:
            _continue(server, [probe], top)
            return top
        except ServerError as error:
            refusal = error
    raise ModelError(
        f"the server does not return the {TOPS[-1]} most likely tokens for a prompt of token "
        f"ids, which exact runs require: {refusal}"
    )


def check_numbers(server: Dialect, probe: list[int], top: int, vocab_size: int) -> None:
    """Check that texts are answered in order, with the model's own ln p; else ModelError."""
    texts = [probe, probe[:-1]]
    both = _continue(server, texts, top)
    alone = [_continue(server, [text], top, temperature=0.5)[0] for text in texts]
    if any(max(continuation.tops[0]) >= vocab_size for continuation in both):
        raise ModelError(
            f"the server returns tokens beyond the {vocab_size} of the model named here"
        )
    for together, other in zip(both, alone, strict=True):
        if _difference(together, other) > MAX_DIFFERENCE:
            raise ModelError(
                "the server's log-probabilities depend on the temperature, or on the other texts "
                "of the request; start it with raw log-probabilities (vLLM: --logprobs-mode "
                "raw_logprobs)"
            )


def _continue(
    server: Dialect, texts: list[list[int]], top: int, temperature: float = 0.0
) -> list[Continuation]:
    return server.continue_texts(texts, top, 1, temperature)


def _difference(continuation: Continuation, other: Continuation) -> float:
    ours, theirs = continuation.tops[0], other.tops[0]
    likeliest = sorted(ours, key=lambda token: -ours[token])[:2]
    return max(abs(ours[token] - theirs.get(token, -1e9)) for token in likeliest)


_SERVERS_OWN: Final = ("cache", "attention")  # settings that a server decides itself


class RemoteModel(LanguageModel):
    """A LanguageModel on a server that returns the `top` most likely tokens."""

    def __init__(
        self,
        server: Dialect,
        connection: Connection,
        name: str,
        tokenizer: PreTrainedTokenizerBase,
        config: PreTrainedConfig,
        generation: Any = None,
    ) -> None:
        """Check what the server can do; ModelError if the engine needs more."""
        self._server, self._connection, self._tokenizer = server, connection, tokenizer
        self._texts, self._encode = TokenTexts(tokenizer), PromptEncoder(tokenizer)
        text_config = config.get_text_config()
        vocab_size = int(text_config.vocab_size)
        served = server.served()
        check_tokenizer(server, served, tokenizer, vocab_size)
        probe = list(tokenizer.encode(PROBE))
        self.top = granted_tops(server, probe, vocab_size)
        check_numbers(server, probe, self.top, vocab_size)
        self.context = served.context
        self.stop_ids = stop_ids_of(generation, text_config, tokenizer)
        dtype = text_config.dtype if isinstance(text_config.dtype, torch.dtype) else torch.float16
        shape = _kv_shape(text_config, dtype)
        self.kv_shape = replace(shape, blocks=served.blocks)
        self.card = ModelCard(
            name=f"{server.name}:{name}",
            family=str(text_config.model_type),
            vocab_size=vocab_size,
            layers=shape.layers,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=str(dtype).removeprefix("torch."),
            device=f"{server.name} server",
            row_bytes=shape.row_bytes,
            thinking=markers_in(str(tokenizer.chat_template)),
        )

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def encode(
        self, prompt: Prompt, config: BranchingConfig = START, parse_special: bool = False
    ) -> tuple[int, ...]:
        """The tokens of a prompt; ConfigError if the settings need more than the server returns."""
        if not 0 < config.top_k <= self.top:
            raise ConfigError(
                f"top_k is {config.top_k}, but the server returns only the {self.top} most "
                f"likely tokens; choose a top_k from 1 to {self.top}"
            )
        if config.repetition_penalty != 1.0:
            raise ConfigError(
                f"repetition_penalty is {config.repetition_penalty:g}, which needs the logits of "
                f"all tokens, but the server returns only the {self.top} most likely ones; leave "
                "it at 1"
            )
        for name in _SERVERS_OWN:
            if (given := getattr(config, name)) != SETTINGS[name].default:
                raise ConfigError(
                    f"{name} is {given}, but {self.card.name} has its own KV cache; leave {name} "
                    f"at {SETTINGS[name].default}"
                )
        return self._encode(self.card.name, prompt, config, parse_special)

    def text(self, token: int) -> str:
        return self._texts[token]

    def is_special(self, token: int) -> bool:
        return self._texts.is_special(token)

    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        """Send one request for the texts of all batches, or none if all answers are known.

        The logits are ln p for the most likely tokens, and minus infinity for the others.

        Raises:
            ServerError: There was no good answer, even after a retry.
            ModelError: A batch belongs to a cache on this machine.
        """
        caches = [_server_cache(batch) for batch in batches]
        asked = [
            [question for question in cache.questions if question.answer is None]
            for cache in caches
        ]
        received = iter(self._ask(caches, asked) if any(asked) else ())
        rows: list[Mapping[int, float]] = []
        for cache, questions in zip(caches, asked, strict=True):
            earlier: dict[int, list[Continuation]] = {}  # for all known tokens except the last
            answers, sent, cached = [], 0, 0
            for question in questions:
                texts = _texts_of(question)
                *earlier[question.path], last = continuations = [next(received) for _ in texts]
                answers.append(
                    ServerAnswer(len(question.tokens), last.tokens[: len(last.tops) - 1], last.tops)
                )
                sent += sum(map(len, texts))
                cached += sum(continuation.cached or 0 for continuation in continuations)
            cache.note_answers(answers, sent, cached)
            for question in cache.questions:
                wanted = [continuation.tops[0] for continuation in earlier.get(question.path, ())]
                wanted += _predictions(question)
                rows += [_most_likely(top, cache.top_k) for top in wanted]
        return self._logits(rows)

    def _length(self, questions: Sequence[ServerQuestion]) -> int:
        """The number of tokens to request per text; all texts of a request have the same."""
        longest = max(len(question.tokens) for question in questions)
        return 1 + min(max(question.ahead for question in questions), self.context - longest - 1)

    def _ask(
        self,
        caches: Sequence[ServerCache],
        asked: Sequence[Sequence[ServerQuestion]],
    ) -> list[Continuation]:
        """Ask the server these questions of each cache; retry once if that may help."""
        questions = [question for own in asked for question in own]
        texts = [text for question in questions for text in _texts_of(question)]
        top = max(cache.top_k for cache, own in zip(caches, asked, strict=True) if own)
        length = self._length(questions)
        try:
            return self._ask_once(texts, top, length)
        except ServerError as error:
            if error.retry_after is None:
                raise
            self._connection.pause(error.retry_after)
        return self._ask_once(texts, top, length)

    def _ask_once(self, texts: list[list[int]], top: int, length: int) -> list[Continuation]:
        stop_if_requested()
        continuations = self._server.continue_texts(texts, top, length)
        if any(
            max(top) >= self.card.vocab_size
            for continuation in continuations
            for top in continuation.tops
        ):
            raise bad_answer("it returns a token that the model does not have")
        return continuations

    def _logits(self, rows: Sequence[Mapping[int, float]]) -> Tensor:
        logits = torch.full((len(rows), self.card.vocab_size), -torch.inf)
        for row, top in enumerate(rows):
            logits[row, torch.tensor([*top])] = torch.tensor([*top.values()])
        return logits


def _server_cache(batch: ForwardBatch) -> ServerCache:
    if not isinstance(batch.cache, ServerCache):
        raise ModelError("this needs a model on this machine, but the chosen one is on a server")
    return batch.cache


def _kv_shape(config: PreTrainedConfig, dtype: torch.dtype) -> KVShape:
    """What the server stores per token; ModelError if the layers differ."""
    refuse_uneven_layers(config)
    heads = config.num_attention_heads
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    return KVShape(
        layers=int(config.num_hidden_layers),
        kv_heads=kv_heads,
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        dtype=dtype,
        device=torch.device("cpu"),
        group=heads // kv_heads,
    )


def _texts_of(question: ServerQuestion) -> list[list[int]]:
    """The texts whose next token is asked for: the last `known` prefixes of the tokens."""
    end = len(question.tokens)
    return [question.tokens[:last] for last in range(end - question.known + 1, end + 1)]


def _predictions(question: ServerQuestion) -> list[Mapping[int, float]]:
    """The predictions after a question's known tokens; the last one fills up the count."""
    assert question.answer is not None
    tops = [*question.answer.tops[question.at :][: question.ahead + 1]]
    return tops + tops[-1:] * (question.ahead + 1 - len(tops))


def _most_likely(top: Mapping[int, float], count: int) -> Mapping[int, float]:
    """The `count` most likely tokens; another run in the same request may have asked for more."""
    return top if len(top) <= count else dict(nlargest(count, top.items(), key=itemgetter(1)))


_PREFIX: Final = re.compile(r"([A-Za-z][\w.+-]+):(.*)", re.DOTALL)  # one letter: a Windows drive


def load_model(
    name: str = EMBEDDED,
    device: str = AUTO,
    dtype: str = AUTO,
    weights: str = AS_LOADED,
    layout: str = AUTO,
) -> LanguageModel:
    """Load a model and its tokenizer, or connect to the server that runs it.

    Args:
        name: As in `eab.engine.models.loading.load_model`, or after `llama.cpp:` or `vllm:`.
        device, dtype, weights, layout: As there; a server decides them itself.

    Raises:
        ModelError: Says what is missing.
    """
    is_local = os.path.exists(os.path.expanduser(name)) or name.startswith(OLLAMA)
    match = None if is_local else _PREFIX.fullmatch(name)
    if match is None:
        return loading.load_model(name, device, dtype, weights, layout)
    if match[1] not in DIALECTS:
        raise ModelError(
            f"there is no kind of server {quoted(match[1])}. Give llama.cpp: or vllm: and the "
            "name of a model. The server must accept prompts as token ids and return the "
            "log-probabilities of the most likely tokens. EAB_REMOTE sets its address"
        )
    if (device, dtype, weights, layout) != (AUTO, AUTO, AS_LOADED, AUTO):
        raise ModelError(
            f"{quoted(name)} runs on a server, which has its own device and number formats; "
            "leave out device, dtype, weights and layout"
        )
    return connect(match[1], match[2])


def connect(dialect: str, name: str, seconds: float = SECONDS) -> RemoteModel:
    """Connect to the server that the operator has set, and check what it can do. ModelError if
    something is missing.
    """
    address = configured_address()
    tokenizer, config, generation = loading.load_tokenizer(name)
    connection = Connection(address, seconds)
    server: Dialect = (
        Vllm(connection, name)
        if dialect == Vllm.name
        else LlamaCpp(connection, harmless_token(tokenizer))
    )
    try:
        return RemoteModel(server, connection, name, tokenizer, config, generation)
    except BaseException:
        connection.close()
        raise
