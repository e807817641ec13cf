"""Samples that others made: JSON lines with a sample each, or with a response of a server.

A line has our own format, or is a response of OpenAI or vLLM, of a chat or a completion, with any
number of choices (docs/library.md). A file is untrusted and may be large, so it is read twice, line
by line: first all is checked, and only the token ids are kept; then samples that are shown are read
again.
"""

import re
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from eab import token_text
from eab.config import MAX_NEW_TOKENS
from eab.errors import ConfigError, EabError, RecordError
from eab.formatting import quoted
from eab.run.events import Message, fields
from eab.run.events.chat import read_messages, title_of
from eab.run.record.files import STANDARD_STREAM, raise_if_wrong
from eab.text_values import is_iterable

MAX_TOKENS: Final = MAX_NEW_TOKENS - 1  # per sample; its end is a step, too
_MAX_LINE: Final = 256 * 2**20  # bytes
_MAX_ALL_TOKENS: Final = 200_000_000  # 4 bytes each
_MAX_PROBLEMS: Final = 1000  # more than an error shows
_MORE_THAN_ONE: Final = 1.01  # a sum of probabilities that rounding does not explain
_FIRST_OWN: Final = 2**31  # the first id of tokens that have none in the file
CUT, END = 2**32 - 2, 2**32 - 1  # ids of the end of a sample that was cut, and of one that was not
_PIECES: Final = re.compile(r"\s?\w{1,500}|\s?[^\w\s]|\s")
_BY_ID: Final = re.compile(r"token_id:(\d{1,9})")  # vLLM's return_tokens_as_token_ids
_BOM: Final = b"\xef\xbb\xbf"  # some editors write it

_Id = Annotated[int, Meta(ge=0, lt=_FIRST_OWN)]
_Byte = Annotated[int, Meta(ge=0, le=255)]


class _Named(msgspec.Struct):
    token: fields.TokenText
    logprob: fields.LogProb
    bytes: msgspec.Raw = msgspec.Raw(b"null")


class _ChatToken(_Named):
    top_logprobs: list[_Named] = []


_Top: TypeAlias = dict[fields.TokenText, fields.LogProb]
_AnyTop: TypeAlias = _Top | list[_Named] | None


class _LogProbs(msgspec.Struct):
    content: list[_ChatToken] | None = None  # of a chat; the others are of a completion
    tokens: list[fields.TokenText] | None = None
    token_logprobs: list[fields.LogProb | None] | None = None
    top_logprobs: list[_Top | None] | None = None


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    """A choice of a response, or a sample in our own format."""

    text: str | None = None
    message: _Said | None = None
    tokens: list[fields.TokenText | _Id] | None = None
    token_ids: list[_Id] | None = None
    logprobs: _LogProbs | list[fields.LogProb | None] | None = None
    top_logprobs: list[_Top | None] | None = None
    finish_reason: str | None = None
    reward: bool | Annotated[float, Meta(ge=-1e9, le=1e9)] | None = None
    label: fields.Word | None = None


class _Line(_Choice):
    prompt: fields.PromptText | Annotated[list[_Id], fields.PER_PROMPT] | None = None
    messages: list[Any] | None = None
    model: fields.ModelName = ""
    choices: list[_Choice] | None = None


class Vocabulary:
    """The ids and texts of tokens; those without an id are numbered in order of appearance.

    Args:
        tokenizer: A tokenizer of transformers that splits texts. Without it, a text is split into
            words and signs, each with the space before it, and other white space.
        texts: The texts of its tokens: an `eab.engine.models.prompts.TokenTexts`.
    """

    def __init__(self, tokenizer: Any = None, texts: Any = None) -> None:
        self._tokenizer, self._of_model = tokenizer, texts
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {END: "", CUT: ""}

    def split(self, text: str) -> list[int]:
        """The ids of the tokens of a text."""
        if self._tokenizer is not None:
            return [*self._tokenizer.encode(text, add_special_tokens=False)]
        return [self.number(piece) for piece in _PIECES.findall(text)]

    def number(self, given: str | int, id: int | None = None) -> int:
        """The id of a token that is given by its text, its id, or both."""
        if isinstance(given, int):
            self.text(given)  # refuses it if it has none
            return given
        if id is None:
            if given in self._ids:
                return self._ids[given]
            by_id = _BY_ID.fullmatch(given)
            id = self.number(int(by_id[1])) if by_id else _FIRST_OWN + len(self._ids)
        self._ids.setdefault(given, id)
        self._texts.setdefault(id, given)
        return id

    def text(self, token: int) -> str:
        """The exact text of a token; ConfigError if it is not known."""
        if token not in self._texts:
            if self._of_model is None:
                raise ConfigError(f"token {token} has no text; give the model's tokenizer")
            self._texts[token] = self._of_model[token]
        return self._texts[token]

    def is_special(self, token: int) -> bool:
        """Whether it is a control token, which is not part of the text."""
        model = self._of_model if token < _FIRST_OWN else None
        return token in (END, CUT) or (model is not None and model.is_special(token))


@dataclass(frozen=True, slots=True)
class Sample:
    """What its file says of a sample."""

    tokens: list[int]  # their ids; the last is END or CUT
    log_probs: Sequence[float | None]  # of all of them but this last one
    tops: Sequence[_AnyTop]  # before each of them, the most likely tokens; may be empty
    shown: int  # how many of them are its text; control tokens or a stop string follow
    was_cut: bool  # at a limit of tokens
    reward: float | str | None


class Found(NamedTuple):
    """Where a sample is."""

    key: bytes  # its token ids, four bytes each, so that sorting puts common beginnings together
    place: int  # of its line, in bytes
    choice: int
    reward: float | str | None


@dataclass(frozen=True, slots=True)
class PromptSamples:
    """All samples of one prompt."""

    prompt: str  # the text, or the title of the messages; empty if token_ids are given
    messages: tuple[Message, ...]
    token_ids: tuple[int, ...]
    model: str
    found: list[Found] = field(default_factory=list)


@contextmanager
def lines_of(samples: Any) -> Iterator[tuple[IO[bytes], str]]:
    """A file of JSON lines that can be read twice, and its name.

    Args:
        samples: A path, `-` for standard input, or samples: objects as in a file, texts, or
            responses of OpenAI's library.

    Raises:
        RecordError: The file cannot be read, or these are no samples.
    """
    with TemporaryFile() as copy:
        if not isinstance(samples, str | Path):
            if not is_iterable(samples):
                raise RecordError(f"the samples are {quoted(samples)}; give a path or a list")
            copy.writelines(map(_encoded, samples))
            yield copy, "the list of samples"
            return
        if samples == STANDARD_STREAM:
            copyfileobj(sys.stdin.buffer, copy)
            yield copy, "standard input"
            return
        try:
            file = Path(samples).open("rb")  # noqa: SIM115 - an error below is another one
        except OSError as error:
            raise RecordError(f"{samples} cannot be read: {error.strerror}") from error
        except ValueError as error:  # a null character in the name
            raise RecordError(f"{str(samples)!r} cannot be read: {error}") from error
        with file:
            if not file.seekable():
                copyfileobj(file, copy)
            yield (file if file.seekable() else copy), str(samples)


def _encoded(sample: Any) -> bytes:
    if hasattr(sample, "model_dump"):
        sample = sample.model_dump()
    try:
        return msgspec.json.encode({"text": sample} if isinstance(sample, str) else sample) + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"a sample is {quoted(sample)}, which is no JSON: {error}") from error


class SampleReader:
    """Reads samples from a file of JSON lines.

    Args:
        prompt: The prompt of lines that have none: a text or messages.
    """

    def __init__(self, file: IO[bytes], name: str, vocabulary: Vocabulary, prompt: Any) -> None:
        self.vocabulary = vocabulary
        self._file, self._name, self._prompt = file, name, prompt
        self._decoder = msgspec.json.Decoder(_Line)

    def find(self) -> list[PromptSamples]:
        """All samples, by prompt in order of appearance; one ConfigError for all bad lines."""
        groups: dict[Any, PromptSamples] = {}
        problems: list[str] = []
        number = place = tokens = 0
        while (raw := self._raw(place)) and len(problems) < _MAX_PROBLEMS:
            number += 1
            try:
                for group, found in self._samples_of(place, raw) if raw.strip() else ():
                    key = (group.prompt, group.messages, group.token_ids)
                    groups.setdefault(key, group).found.append(found)
                    tokens += len(found.key) // 4
            except EabError as error:
                problems.append(f"line {number}: {error}")
            if tokens > _MAX_ALL_TOKENS:
                raise ConfigError(f"{self._name} has over {_MAX_ALL_TOKENS:,} tokens; use a part")
            place += len(raw)
        raise_if_wrong(self._name, problems, "written")
        if not groups:
            raise ConfigError(f"{self._name} has no samples; write one per line")
        return [*groups.values()]

    def read(self, found: Found) -> Sample:
        """A sample that was found."""
        line = self._parsed(self._raw(found.place))
        return _sample((line.choices or [line])[found.choice], self.vocabulary)

    def _raw(self, place: int) -> bytes:
        try:
            self._file.seek(place)
            raw = self._file.readline(_MAX_LINE + 1)
        except OSError as error:
            raise RecordError(f"{self._name} cannot be read: {error.strerror}") from error
        if len(raw) > _MAX_LINE:
            raise RecordError(
                f"{self._name} has a line of more than {_MAX_LINE // 2**20} MiB; write one sample "
                "or response per line"
            )
        return raw

    def _parsed(self, raw: bytes) -> _Line:
        try:
            return self._decoder.decode(raw.removeprefix(_BOM))
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
        if line.choices == []:
            raise ConfigError("there are no choices")
        group = self._group(line)
        for number, choice in enumerate(line.choices or [line]):
            sample = _sample(choice, self.vocabulary)
            _check_probabilities(sample.tops)
            ids = array("I", sample.tokens)
            if sys.byteorder == "little":
                ids.byteswap()  # big-endian bytes are in the order of the ids
            yield group, Found(ids.tobytes(), place, number, sample.reward)

    def _group(self, line: _Line) -> PromptSamples:
        if line.prompt is not None and line.messages is not None:
            raise ConfigError("there are a prompt and messages; leave out one of them")
        given = line.messages if line.prompt is None else line.prompt
        given = self._prompt if given is None else given
        if not given:
            raise ConfigError("there is no prompt; write prompt or messages, or give one for all")
        if isinstance(given, str):
            return PromptSamples(given, (), (), line.model)
        if line.messages is None and isinstance(given[0], int):
            return PromptSamples("", (), tuple(map(self.vocabulary.number, given)), line.model)
        messages = read_messages(given)
        return PromptSamples(title_of(messages), messages, (), line.model)


def _sample(choice: _Choice, vocabulary: Vocabulary) -> Sample:
    said = choice.message.content if choice.message is not None else choice.text
    texts, log_probs, tops = _named_tokens(choice)
    ids = choice.token_ids
    named = texts if texts is not None else ids
    if named is None and said is None:
        raise ConfigError("there is no text, nor tokens")
    for name, values in {"token_ids": ids, "logprobs": log_probs, "top_logprobs": tops}.items():
        if values and len(values) != len(named or ()):
            raise ConfigError(f"there are {len(named or ())} tokens, but {len(values)} {name}")
    if texts is not None and ids:
        tokens = [*map(vocabulary.number, texts, ids)]
    else:
        tokens = vocabulary.split(said or "") if named is None else [*map(vocabulary.number, named)]
    if len(tokens) > MAX_TOKENS:
        raise ConfigError(
            f"it has {len(tokens):,} tokens, but a run at most {MAX_TOKENS:,}; cut it"
        )
    control = 0 if named is None else _control_at_end(tokens, said, vocabulary)
    was_cut = choice.finish_reason == "length"
    end = CUT if was_cut or control else END
    reward = choice.label if choice.reward is None else float(choice.reward)
    log_probs = log_probs or [None] * len(tokens)
    return Sample([*tokens, end], log_probs, tops or (), len(tokens) - control, was_cut, reward)


_Parts: TypeAlias = tuple[
    Sequence[str | int] | None, Sequence[float | None] | None, Sequence[_AnyTop] | None
]


def _named_tokens(choice: _Choice) -> _Parts:
    """The tokens that a sample names, their ln p, and the most likely tokens before each."""
    given = choice.logprobs
    if not isinstance(given, _LogProbs):
        return choice.tokens, given, choice.top_logprobs
    if given.content is None:
        return given.tokens, given.token_logprobs, given.top_logprobs
    tops = [token.top_logprobs for token in given.content]
    return [*map(_exact, given.content)], [token.logprob for token in given.content], tops


def _exact(named: _Named) -> str:
    """The text of a token; its bytes matter where they are only a part of a character."""
    if "\ufffd" not in named.token and "\\x" not in named.token:
        return named.token
    try:
        raw = msgspec.json.decode(named.bytes, type=list[_Byte] | None)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the bytes of {quoted(named.token)} are no bytes") from error
    return named.token if raw is None else token_text.from_bytes(bytes(raw))


def _control_at_end(tokens: Sequence[int], said: str | None, vocabulary: Vocabulary) -> int:
    """How many tokens at the end are not part of the text: they are control tokens, have no text,
    or come after the text that the sample gives.
    """
    texts = [*map(vocabulary.text, tokens)]
    whole = "".join(texts)
    more = len(whole) - len(said) if said is not None and whole.startswith(said) else 0
    count = 0
    for token, text in zip(reversed(tokens), reversed(texts), strict=True):
        more -= len(text)
        if more < 0 and not vocabulary.is_special(token):
            break
        count += 1
    return count


def pairs_of(top: _AnyTop, vocabulary: Vocabulary) -> list[tuple[int, float]]:
    """The ids of the most likely tokens at a place, and their ln p, most likely first."""
    named = top.items() if isinstance(top, Mapping) else [(_exact(x), x.logprob) for x in top or ()]
    found = {vocabulary.number(text): log_prob for text, log_prob in named}
    return sorted(found.items(), key=lambda pair: -pair[1])


def _check_probabilities(tops: Sequence[_AnyTop]) -> None:
    for place, top in enumerate(tops, start=1):
        known = top.values() if isinstance(top, Mapping) else [one.logprob for one in top or ()]
        if (total := sum(map(exp, known))) > _MORE_THAN_ONE:
            raise ConfigError(
                f"the probabilities before token {place} add up to {total:.3f}, more than 1"
            )
