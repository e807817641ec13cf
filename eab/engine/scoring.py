"""How likely given texts are after a prompt: exactly, as a beginning, or not at all.

A text can be written in several ways: " yes" is one token or two, and "yes" is also the beginning
of the token "yesterday". So the probabilities here are those of characters, and not of one sequence
of tokens. A node is a sequence of tokens whose text begins the given text. After it, every token
completes the text, continues it or leaves it, with a known probability. The nodes are read from the
most probable one on; the probability of those that stay unread is the width of the bounds, which
are certain.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from eab import token_text
from eab.engine.branching.filters import penalties, processed
from eab.engine.branching.sampling import Predictions
from eab.engine.build import check_processors, encode, new_cache
from eab.engine.caches.base import KVCache
from eab.engine.generation import PREFILL_CHUNK
from eab.engine.models.base import LanguageModel
from eab.engine.request import Request
from eab.errors import ConfigError, PromptError
from eab.formatting import quoted

# When reading ends: how much of the text's probability may stay unread, but at least how much
UNREAD_SHARE: Final = 1e-4
UNREAD: Final = 1e-6
MAX_NODES: Final = 512  # read for one text, in addition to those of its usual tokens
_NODES_PER_PASS: Final = 32

Text: TypeAlias = str | Sequence[int]  # or the token ids that write it


class Bounds(NamedTuple):
    """A probability lies certainly between these two."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """One of the tokens into which the tokenizer divides a text."""

    id: int
    text: str
    log_prob: float  # after temperature and filters; minus infinity if a filter removes it
    model_log_prob: float  # before them


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A text, and how likely it is after the prompt.

    Attributes:
        tokens: Those into which the tokenizer divides it.
        exactly: The probability that the model writes this text and then ends.
        begins: The probability that what the model writes begins with this text.
    """

    text: str
    tokens: tuple[ScoredToken, ...]
    exactly: Bounds
    begins: Bounds

    @property
    def log_prob(self) -> float:
        """ln of the probability of its tokens; other tokens may write the same text."""
        return math.fsum(token.log_prob for token in self.tokens)


class Vocabulary:
    """The tokens of a model by their bytes."""

    def __init__(self, model: LanguageModel) -> None:
        tokens = range(model.card.vocab_size)
        self.stop_ids = [token for token in tokens if token in model.stop_ids]
        others = [token for token in tokens if token not in model.stop_ids]
        # Those that write nothing, such as a control token inside a text
        self.silent = [token for token in others if model.is_special(token)]
        written = [token for token in others if not model.is_special(token)]
        pairs = sorted((token_text.to_bytes(model.text(token)), token) for token in written)
        self._bytes = [raw for raw, _ in pairs]
        self._ids = [token for _, token in pairs]
        self.longest = max(map(len, self._bytes), default=0)  # bytes of a token

    def equal_to(self, raw: bytes) -> list[int]:
        """The tokens with exactly these bytes."""
        begin = bisect_left(self._bytes, raw)
        return self._ids[begin : bisect_left(self._bytes, raw + b"\0", begin)]

    def beginning_with(self, raw: bytes) -> list[int]:
        """The tokens whose bytes begin with these, or are these."""
        begin, kept = bisect_left(self._bytes, raw), raw.rstrip(b"\xff")
        after = kept[:-1] + bytes([kept[-1] + 1]) if kept else None
        end = len(self._bytes) if after is None else bisect_left(self._bytes, after, begin)
        return self._ids[begin:end]


@dataclass(order=True, slots=True)
class _Node:
    """A sequence of tokens whose text begins the given text."""

    minus_probability: float  # so that a heap has the most probable one first
    tokens: tuple[int, ...]
    written: int  # bytes of the given text


@dataclass(slots=True)
class _Sum:
    """What is known of one text so far."""

    raw: bytes
    room: int  # the most tokens that the model's context has room for
    begins: float = 0.0
    exactly: float = 0.0
    unread: list[_Node] = field(default_factory=list)  # a heap
    too_long: list[_Node] = field(default_factory=list)
    read: int = 0

    def take(self) -> list[_Node]:
        """The next nodes to read; none if the bounds are narrow enough."""
        taken: list[_Node] = []
        more = -math.fsum(node.minus_probability for node in self.unread)
        enough = max(UNREAD, UNREAD_SHARE * self.begins)
        while more > enough and self.read < MAX_NODES and len(taken) < _NODES_PER_PASS:
            node = heappop(self.unread)
            more += node.minus_probability
            (taken if len(node.tokens) <= self.room else self.too_long).append(node)
            self.read += 1
        return taken

    def add(self, node: _Node, probs: Tensor, words: Vocabulary, usual: int | None) -> None:
        """Add what follows a node.

        Args:
            probs: The probabilities of the next token, (V,).
            usual: The next token, if the node that it leads to is added anyway.
        """
        probability, rest = -node.minus_probability, self.raw[node.written :]
        if rest:
            self.begins += probability * float(probs[words.beginning_with(rest)].sum())
        else:
            self.exactly += probability * float(probs[words.stop_ids].sum())
        following = [(0, words.silent)]
        ends = range(1, min(len(rest), words.longest) + 1)
        following += [(end, words.equal_to(rest[:end])) for end in ends]
        for length, tokens in following:
            for token, share in zip(tokens, probs[tokens].tolist(), strict=True):
                if share > 0 and token != usual:
                    then = (*node.tokens, token)
                    after = _Node(-probability * share, then, node.written + length)
                    heappush(self.unread, after)

    def bounds(self) -> tuple[Bounds, Bounds]:
        """Of the text exactly, and of the text as a beginning."""
        left = [*self.unread, *self.too_long]
        inside = [node for node in left if node.written < len(self.raw)]
        return _bounds(self.exactly, left), _bounds(self.begins, inside)


def _bounds(low: float, unread: Sequence[_Node]) -> Bounds:
    more = -math.fsum(node.minus_probability for node in unread)
    return Bounds(min(1.0, low), min(1.0, low + more))


class TextReader:
    """Computes what follows sequences of tokens after one prompt, whose rows they share."""

    def __init__(self, model: LanguageModel, request: Request, longest: int) -> None:
        """Compute the prompt.

        Args:
            longest: The most tokens of a text; PromptError if there is no room for them.
        """
        config = replace(request.config, max_new_tokens=1, cache="tree")
        self._model, self._config = model, config
        self._processors = (*penalties(config), *request.logits_processors)
        self._prompt = encode(model, replace(request, config=config))
        self.room = model.context - len(self._prompt)
        if longest > self.room:
            raise PromptError(
                f"the prompt has {len(self._prompt):,} tokens and a text {longest:,}, but the "
                f"context of {model.card.name} is {model.context:,} tokens; shorten one of them"
            )
        self._cache: KVCache = new_cache(model, config)
        switch = model.kv_shape.rope_switch
        self._long = 0 < switch < len(self._prompt) + longest
        self._root, self._next_path = 0, 1
        shape = model.kv_shape
        chunk = len(self._prompt) if shape.own and shape.own.whole_prompts else PREFILL_CHUNK
        for start in range(0, len(self._prompt), chunk):
            self._after_prompt = self._pass([0], [self._prompt[start : start + chunk]], [1])

    def _pass(
        self, paths: Sequence[int], tokens: Sequence[Sequence[int]], keep: Sequence[int]
    ) -> Tensor:
        """The logits after the last `keep` tokens of each path, (sum of keep, V)."""
        batch = self._cache.prepare(paths, tokens, keep)
        return self._model.forward([replace(batch, long=self._long)])

    def read(
        self, texts: Sequence[Sequence[int]], whole: bool = False
    ) -> tuple[Tensor, Predictions]:
        """What follows each of these texts of at least one token after the prompt: the model's
        logits, (N, V), and the processed predictions.

        Args:
            whole: With one text: also what follows the prompt and each of its tokens.
        """
        paths = range(self._next_path, self._next_path + len(texts) + 1)
        self._cache.fork(self._root, paths)
        self._root, self._next_path = paths[-1], paths.stop
        keep = [len(text) if whole else 1 for text in texts]
        logits = self._pass(paths[:-1], texts, keep)
        for path in paths[:-1]:
            self._cache.release(path)
        if whole:
            logits = torch.cat([self._after_prompt, logits])
            texts = [texts[0][:count] for count in range(len(logits))]
        scores = logits
        if self._processors:
            before = [[*self._prompt, *text] for text in texts]
            scores = processed(self._processors, logits, before)
        return logits, Predictions(scores, self._config)


@torch.inference_mode()
def score(
    model: LanguageModel, request: Request, texts: Sequence[Text], words: Vocabulary
) -> list[ScoredText]:
    """How likely each of these texts is after the prompt of the request, by its settings.

    Args:
        texts: Texts, or token ids, which stand for the text that they write.

    Raises:
        PromptError: The prompt cannot be used, or the tokenizer cannot write a text.
        ConfigError: The model runs on a server, which does not name all probabilities.
        MemoryLimitError: The KV cache exceeded its limit.
    """
    if model.kv_shape.blocks is not None:
        raise ConfigError(
            f"{model.card.name} runs on a server, which names only its most likely tokens, so "
            "given texts cannot be scored; load the model on this machine"
        )
    check_processors(model, request)
    usual = [tokens_of(model, text) for text in texts]
    reader = TextReader(model, request, max(map(len, usual)))
    return [_score(model, reader, tokens, words) for tokens in usual]


def tokens_of(model: LanguageModel, text: Text) -> tuple[int, ...]:
    """The tokens into which the tokenizer divides a text that follows the prompt; PromptError if it
    cannot write the text.
    """
    if not isinstance(text, str):
        tokens = tuple(text)
        unknown = [token for token in tokens if not 0 <= token < model.card.vocab_size]
        if unknown or any(map(model.is_special, tokens)) or not tokens:
            raise PromptError(
                f"the text is {quoted(list(tokens))}; give at least one token id of "
                f"{model.card.name}, from 0 to {model.card.vocab_size - 1}, and no control tokens"
            )
        return tokens
    if not text:
        raise PromptError("a text to score is empty; write what the model might say")
    tokens = model.encode_following(text)
    written = token_text.exact(map(model.text, tokens))
    if written != text or any(map(model.is_special, tokens)):
        raise PromptError(
            f"the tokenizer of {model.card.name} cannot write {quoted(text)}; it would become "
            f"{quoted(written)}. Score that text, or give token ids"
        )
    return tokens


def _score(
    model: LanguageModel, reader: TextReader, tokens: tuple[int, ...], words: Vocabulary
) -> ScoredText:
    logits, predictions = reader.read([tokens], whole=True)
    probs = predictions.probabilities.double()
    own = logits.double().log_softmax(dim=-1)
    pieces = [token_text.to_bytes(model.text(token)) for token in tokens]
    known, node = _Sum(b"".join(pieces), reader.room), _Node(-1.0, (), 0)
    scored: list[ScoredToken] = []
    for index, token in enumerate(tokens):
        known.add(node, probs[index], words, token)
        share = float(probs[index, token])
        log_prob = math.log(share) if share > 0 else -math.inf
        scored.append(ScoredToken(token, model.text(token), log_prob, float(own[index, token])))
        written = node.written + len(pieces[index])
        node = _Node(node.minus_probability * share, tokens[: index + 1], written)
    known.add(node, probs[-1], words, None)
    while nodes := known.take():
        _, following = reader.read([node.tokens for node in nodes])
        for node, row in zip(nodes, following.probabilities.double(), strict=True):
            known.add(node, row, words, None)
    exactly, begins = known.bounds()
    return ScoredText(token_text.join(map(model.text, tokens)), tuple(scored), exactly, begins)
