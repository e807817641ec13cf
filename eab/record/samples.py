"""Samples that others made: JSON lines with a sample each, or with a response of a server.

Read are a format of our own, and the responses of OpenAI and vLLM, of chats and of completions,
with any number of choices (docs/library.md describes all of them). A file is untrusted and may be
large: it is read twice, line by line. The first time, all is checked, and only the token ids are
kept; the second time, only the samples that are shown are read again.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from math import exp
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from eab import token_text
from eab.config import MAX_NEW_TOKENS
from eab.errors import ConfigError, EabError, RecordError
from eab.events import Message, fields
from eab.events.chat import read_messages, title_of
from eab.formatting import counted, human_bytes, quoted
from eab.record.prompt_lines import raise_if_wrong

MAX_LINE_BYTES: Final = 256 * 2**20
MAX_TOKENS: Final = MAX_NEW_TOKENS - 1  # per sample; its end is a step, too
MAX_ALL_TOKENS: Final = 200_000_000  # 4 bytes each
_FIRST_OWN: Final = 2**31  # the first id of tokens that have none in the file
CUT: Final = 2**32 - 2  # the id of the end of a sample that does not need a token for it
END: Final = 2**32 - 1  # and of one that needs a token
_PIECES: Final = re.compile(r"\s?\w{1,500}|\s?[^\w\s]|\s")
_BY_ID: Final = re.compile(r"token_id:(\d{1,9})")  # vLLM's return_tokens_as_token_ids
_MORE_THAN_ONE: Final = 1.01  # a sum of probabilities that rounding does not explain

_Id = Annotated[int, Meta(ge=0, lt=_FIRST_OWN)]
_Top: TypeAlias = "dict[fields.TokenText, fields.LogProb] | list[_Named] | None"


class _Named(msgspec.Struct):
    token: fields.TokenText
    logprob: fields.LogProb
    bytes: msgspec.Raw = msgspec.Raw(b"null")


class _ChatToken(_Named):
    top_logprobs: list[_Named] = []


class _LogProbs(msgspec.Struct):
    content: list[_ChatToken] | None = None  # of a chat; the others are of a completion
    tokens: list[fields.TokenText] | None = None
    token_logprobs: list[fields.LogProb | None] | None = None
    top_logprobs: list[dict[fields.TokenText, fields.LogProb] | None] | None = None


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    """A choice of a response, or a sample in a format of our own."""

    text: str | None = None
    message: _Said | None = None
    tokens: list[fields.TokenText | _Id] | None = None
    token_ids: list[_Id] | None = None
    logprobs: _LogProbs | list[fields.LogProb | None] | None = None
    top_logprobs: list[dict[fields.TokenText, fields.LogProb] | None] | None = None
    finish_reason: str | None = None
    reward: bool | Annotated[float, Meta(ge=-1e9, le=1e9)] | None = None
    label: fields.Word | None = None


class _Line(_Choice):
    prompt: fields.PromptText | Annotated[list[_Id], fields.PER_PROMPT] | None = None
    messages: list[Any] | None = None
    model: fields.ModelName = ""
    choices: list[_Choice] | None = None


class Tokenizer(Protocol):
    """What is needed of a model's tokenizer."""

    def encode(self, text: str) -> Sequence[int]:
        """The ids of the tokens of a text, without control tokens."""
        ...

    def text(self, token: int) -> str:
        """The exact text of a token."""
        ...

    def is_special(self, token: int) -> bool:
        """Whether it is a control token."""
        ...


class Vocabulary:
    """The tokens of samples: their ids, texts, and which of them are control tokens.

    Tokens that have no id in the file are numbered in order of appearance. Without a tokenizer, a
    text is split into words and signs, each with the space before it, and other white space.
    """

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {END: "", CUT: ""}
        self._special = {END, CUT}

    def tokens(self, text: str) -> list[int]:
        """The ids of the tokens of a text."""
        if self._tokenizer is not None:
            return [*self._tokenizer.encode(text)]
        return [self.number(piece) for piece in _PIECES.findall(text)]

    def number(self, text: str, given: int | None = None) -> int:
        """The id of a token with this text: the given one, or one of our own."""
        if given is None:
            if text in self._ids:
                return self._ids[text]
            by_id = _BY_ID.fullmatch(text)
            given = int(by_id[1]) if by_id else _FIRST_OWN + len(self._ids)
            self._texts.setdefault(given, self.text(given) if by_id else text)
        self._ids.setdefault(text, given)
        self._texts.setdefault(given, text)
        return given

    def text(self, token: int) -> str:
        """The exact text of a token; ConfigError if it is not known."""
        if token not in self._texts:
            if self._tokenizer is None:
                raise ConfigError(
                    f"the token {token} has an id but no text; give the model's tokenizer"
                )
            self._texts[token] = self._tokenizer.text(token)
        return self._texts[token]

    def is_special(self, token: int) -> bool:
        """Whether it is a control token, which is not part of the text."""
        model = self._tokenizer if token < _FIRST_OWN else None
        return token in self._special or (model is not None and model.is_special(token))

    def note_special(self, tokens: Iterable[int]) -> None:
        """These are control tokens."""
        self._special.update(tokens)


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: what its file says of its tokens."""

    tokens: list[int]  # their ids; the last is END or CUT
    log_probs: Sequence[float | None]  # of all of them but this last one
    tops: Sequence[_Top]  # before each of them, the most likely tokens; may be empty
    was_cut: bool  # at a limit of tokens
    label: float | str | None


class Found(NamedTuple):
    """Where a sample is."""

    key: bytes  # its token ids, four bytes each, so that sorting puts common beginnings together
    place: int  # of its line
    choice: int
    label: float | str | None


@dataclass(frozen=True, slots=True)
class PromptSamples:
    """All samples of one prompt."""

    prompt: str  # the text, or the title of the messages
    messages: tuple[Message, ...]
    token_ids: tuple[int, ...]  # of the prompt, if it was given by them
    model: str
    found: list[Found] = field(default_factory=list)


class Lines(Protocol):
    """Lines that can be read again."""

    name: str

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """The place of each line, and the line."""
        ...

    def at(self, place: int) -> bytes:
        """The line at a place."""
        ...

    def close(self) -> None:
        """Nothing will be read any more."""
        ...


class FileLines:
    """The lines of a file; `-` or a pipe is read whole. RecordError if it cannot be read."""

    def __init__(self, path: Path | str, standard_input: Any = None) -> None:
        self.name = str(path) if standard_input is None else "standard input"
        try:
            file = standard_input or Path(path).open("rb")  # noqa: SIM115 - see close
            self._file = file if file.seekable() else BytesIO(file.read())
        except (OSError, ValueError) as error:  # ValueError: a null character
            raise RecordError(f"{self.name} cannot be read: {error}") from error

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        place = 0
        while line := self.at(place):
            yield place, line.removeprefix(b"\xef\xbb\xbf")  # some editors write a BOM
            place += len(line)

    def at(self, place: int) -> bytes:
        """See Lines."""
        try:
            self._file.seek(place)
            line: bytes = self._file.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            raise RecordError(f"{self.name} cannot be read: {error.strerror}") from error
        if len(line) > MAX_LINE_BYTES:
            raise RecordError(
                f"{self.name} has a line of more than {human_bytes(MAX_LINE_BYTES)}; write one "
                "sample or response per line"
            )
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class GivenLines:
    """Samples that a program has: objects as in a file, texts, or responses of OpenAI's library."""

    name = "the list of samples"

    def close(self) -> None:
        """See Lines."""

    def __init__(self, samples: Iterable[Any]) -> None:
        self._samples = [*samples]

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return ((place, self.at(place)) for place in range(len(self._samples)))

    def at(self, place: int) -> bytes:
        """See Lines."""
        sample = self._samples[place]
        if hasattr(sample, "model_dump"):
            sample = sample.model_dump()
        try:
            return msgspec.json.encode({"text": sample} if isinstance(sample, str) else sample)
        except (TypeError, ValueError, RecursionError) as error:
            raise RecordError(
                f"sample {place + 1} is {quoted(sample)}, which is no JSON: {error}"
            ) from error


class SampleReader:
    """Reads samples from lines.

    Args:
        prompt: The prompt of lines that have none: a text or messages.
    """

    def __init__(self, lines: Lines, vocabulary: Vocabulary, prompt: Any = None) -> None:
        self._lines, self.vocabulary, self._prompt = lines, vocabulary, prompt
        self._decoder = msgspec.json.Decoder(_Line)

    def find(self) -> list[PromptSamples]:
        """All samples, by prompt in order of appearance; one ConfigError for all bad lines."""
        groups: dict[Any, PromptSamples] = {}
        problems: list[str] = []
        tokens = 0
        for number, (place, raw) in enumerate(self._lines, start=1):
            try:
                for group, found in self._samples_of(place, raw) if raw.strip() else ():
                    key = (group.prompt, group.messages, group.token_ids)
                    groups.setdefault(key, group).found.append(found)
                    tokens += len(found.key) // 4
            except EabError as error:
                problems.append(f"line {number}: {error}")
            if tokens > MAX_ALL_TOKENS:
                raise ConfigError(
                    f"{self._lines.name} has more than {MAX_ALL_TOKENS:,} tokens; import a part"
                )
        raise_if_wrong(self._lines.name, problems, "written")
        if not groups:
            raise ConfigError(f"{self._lines.name} has no samples; write one per line")
        return [*groups.values()]

    def read(self, found: Found) -> Sample:
        """A sample that was found."""
        line = self._parsed(self._lines.at(found.place).removeprefix(b"\xef\xbb\xbf"))
        return _sample((line.choices or [line])[found.choice], self.vocabulary)

    def _parsed(self, raw: bytes) -> _Line:
        try:
            return self._decoder.decode(raw)
        except UnicodeDecodeError as error:
            raise ConfigError(f"it is not UTF-8 text ({error.reason}); save it as UTF-8") from error
        except msgspec.ValidationError as error:
            words = str(error).replace("`", "")
            raise ConfigError(words[0].lower() + words[1:]) from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(
                f"it is not JSON ({error}); each line must be a whole object, such as "
                '{"prompt": "Hello", "text": " world"}'
            ) from error

    def _samples_of(self, place: int, raw: bytes) -> Iterator[tuple[PromptSamples, Found]]:
        line = self._parsed(raw)
        group = self._group(line)
        for number, choice in enumerate([line] if line.choices is None else line.choices):
            sample = _sample(choice, self.vocabulary)
            _check_probabilities(sample)
            ids = array("I", sample.tokens)
            ids.byteswap()  # big-endian bytes are in the order of the ids
            yield group, Found(ids.tobytes(), place, number, sample.label)

    def _group(self, line: _Line) -> PromptSamples:
        if line.prompt is not None and line.messages is not None:
            raise ConfigError("there are a prompt and messages; leave out one of them")
        given = line.messages if line.prompt is None else line.prompt
        given = self._prompt if given is None else given
        if not given:
            raise ConfigError("there is no prompt; write prompt or messages, or give one for all")
        if isinstance(given, str):
            return PromptSamples(given, (), (), line.model)
        if isinstance(given[0], int):
            return PromptSamples("", (), tuple(given), line.model)
        messages = read_messages(given)
        return PromptSamples(title_of(messages), messages, (), line.model)


def _sample(choice: _Choice, vocabulary: Vocabulary) -> Sample:
    said = choice.message.content if choice.message is not None else choice.text
    tokens, log_probs, tops = _named_tokens(choice, vocabulary)
    if tokens is None:
        if said is None:
            raise ConfigError("there is no text, nor tokens")
        tokens = vocabulary.tokens(said)
    for name, values in {"log-probabilities": log_probs, "lists of likely tokens": tops}.items():
        if values and len(values) != len(tokens):
            raise ConfigError(f"there are {counted(len(tokens), 'token')} and {len(values)} {name}")
    if len(tokens) > MAX_TOKENS:
        raise ConfigError(
            f"the sample has {len(tokens):,} tokens; a run has at most {MAX_TOKENS:,}. Cut it"
        )
    _note_special_end(tokens, said, vocabulary)
    was_cut = choice.finish_reason == "length"
    has_end = was_cut or (bool(tokens) and vocabulary.is_special(tokens[-1]))
    label = choice.label if choice.reward is None else float(choice.reward)
    tokens.append(CUT if has_end else END)
    return Sample(tokens, log_probs or [None] * (len(tokens) - 1), tops, was_cut, label)


_Parts: TypeAlias = "tuple[list[int] | None, Sequence[float | None], Sequence[_Top]]"


def _named_tokens(choice: _Choice, vocabulary: Vocabulary) -> _Parts:
    """The ids of a sample's tokens, None if it has none; their ln p and the most likely tokens,
    where they are given.
    """
    given, ids = choice.logprobs, choice.token_ids
    texts: Sequence[str | int] | None = choice.tokens
    log_probs: Sequence[float | None] = given if isinstance(given, list) else ()
    tops: Sequence[_Top] = choice.top_logprobs or ()
    if isinstance(given, _LogProbs) and given.content is not None:
        texts = [_exact(token) for token in given.content]
        log_probs = [token.logprob for token in given.content]
        tops = [token.top_logprobs for token in given.content]
    elif isinstance(given, _LogProbs) and given.tokens is not None:
        texts, log_probs, tops = given.tokens, given.token_logprobs or (), given.top_logprobs or ()
    if texts is None:
        if ids is not None:
            for token in ids:
                vocabulary.text(token)  # refuses it if it has none
        return ids, log_probs, tops
    if ids is not None and len(ids) != len(texts):
        raise ConfigError(f"there are {counted(len(texts), 'token')} and {len(ids)} token ids")
    number = vocabulary.number
    if ids is not None:
        return [number(str(text), id) for text, id in zip(texts, ids, strict=True)], log_probs, tops
    tokens = [number(text) if isinstance(text, str) else text for text in texts]
    for token in tokens:
        vocabulary.text(token)
    return tokens, log_probs, tops


def _exact(named: _Named) -> str:
    """The text of a token; its bytes matter where they are only a part of a character."""
    if "\ufffd" not in named.token and "\\x" not in named.token:
        return named.token
    try:
        raw = msgspec.json.decode(named.bytes, type=list[Annotated[int, Meta(ge=0, le=255)]] | None)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the bytes of {quoted(named.token)} are no bytes") from error
    return named.token if raw is None else token_text.from_bytes(bytes(raw))


def _note_special_end(tokens: Sequence[int], said: str | None, vocabulary: Vocabulary) -> None:
    """Tokens at the end that are not part of the text said, or have no text, are control tokens."""
    texts = [vocabulary.text(token) for token in tokens]
    whole = "".join(texts)
    more = len(whole) - len(said) if said is not None and whole.startswith(said) else 0
    for token, text in zip(reversed(tokens), reversed(texts), strict=True):
        more -= len(text)
        if more < 0:
            return
        vocabulary.note_special([token])


def pairs_of(top: _Top, vocabulary: Vocabulary) -> list[tuple[int, float]]:
    """The ids of the most likely tokens at a place, and their ln p, most likely first."""
    if not top:
        return []
    named = top.items() if isinstance(top, Mapping) else ((_exact(one), one.logprob) for one in top)
    found = {vocabulary.number(text): log_prob for text, log_prob in named}
    return sorted(found.items(), key=lambda pair: -pair[1])


def _check_probabilities(sample: Sample) -> None:
    for place, top in enumerate(sample.tops):
        if top:
            known = top.values() if isinstance(top, Mapping) else [one.logprob for one in top]
            if (total := sum(map(exp, known))) > _MORE_THAN_ONE:
                raise ConfigError(
                    f"the probabilities before token {place + 1} add up to {total:.3f}, more than 1"
                )
