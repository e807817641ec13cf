"""The part of a text that is its answer, and when two answers are the same.

The part is all of the text, its first sentence, or a pattern's match. The first sentence ends where
no continuation can move its end. A text is read from its start. At each mark that may end a
sentence, `sentencex` sees the text up to the next word, and what it finds there stands, whatever
follows.

A rule that says which answers are the same is a function of the question and two texts. `exact` is
the default. No rule ignores a number or a negation: "15 dollars" is not "25 dollars", "is happy" is
not "is not happy".
"""

import re
import time
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NewType, Protocol, TypeAlias, cast, get_args

import regex
from sentencex import get_sentence_boundaries

from eab.errors import ConfigError, check_one_of
from eab.formatting import quoted

PartName: TypeAlias = Literal["text", "sentence", "after-thinking"]
PatternPart = NewType("PatternPart", str)  # PATTERN followed by a regular expression
Part: TypeAlias = PartName | PatternPart
GivenPart: TypeAlias = Part | re.Pattern[str]

TEXT: Final = "text"
SENTENCE: Final = "sentence"
AFTER_THINKING: Final = "after-thinking"
PARTS: Final = get_args(PartName)
PATTERN: Final = "regex:"
_FLAGS: Final = {"a": re.A, "i": re.I, "m": re.M, "s": re.S, "x": re.X}
LONGEST_PATTERN: Final = 500  # characters
MOST_SECONDS: Final = 2.0  # time limit for searching all texts of a run with one pattern


def check_part(part: str) -> Part:
    """Return `part` if it is valid; ConfigError if it is unknown or its pattern is wrong."""
    if isinstance(part, str) and part.startswith(PATTERN):
        _compiled(part.removeprefix(PATTERN))
    else:
        check_one_of(PARTS, part, "answers are grouped by", more=f", {PATTERN}PATTERN")
    return cast(Part, part)


def part_of(given: GivenPart) -> Part:
    """The part as a string; a compiled pattern becomes PATTERN with its flags."""
    if not isinstance(given, re.Pattern) or not isinstance(given.pattern, str):
        return check_part(given)
    return check_part(f"{PATTERN}{_with_flags(given)}")


def _with_flags(given: re.Pattern[str]) -> str:
    letters = "".join(letter for letter, flag in _FLAGS.items() if given.flags & flag)
    flags = f"(?{letters})" if letters else ""
    return f"{flags}{given.pattern}"


def reader(part: Part) -> Callable[[str], str | None]:
    """A function that finds the answer in a text, or None; ConfigError after MOST_SECONDS."""
    check_part(part)
    if not part.startswith(PATTERN):
        return lambda text: text
    searcher = Searcher(part.removeprefix(PATTERN), groups=1)

    def answer(text: str) -> str | None:
        match = searcher.search(text)
        return match[1] if match else None

    return answer


class Searcher:
    """A regular expression, and the time that is left for it: MOST_SECONDS for all texts.

    Args:
        groups: How many it must have; None: any number.
        end: When the time is over, by `time.monotonic`, if several share it.

    Attributes:
        looks_around: Whether what follows a match, or its absence, may undo the match.

    Raises:
        ConfigError: The pattern is wrong, has not this many groups, or is too long.
    """

    def __init__(self, pattern: str, groups: int | None = None, end: float | None = None) -> None:
        self._pattern = _compiled(pattern, groups)
        self._end = time.monotonic() + MOST_SECONDS if end is None else end
        self.looks_around = _LOOKS_AROUND.search(pattern) is not None

    @classmethod
    def of(cls, pattern: re.Pattern[str]) -> "Searcher":
        """For a compiled pattern, with its flags."""
        return cls(_with_flags(pattern))

    def search(self, text: str) -> Any:
        """The first match in the text, or None; ConfigError if no time is left."""
        left = max(0.001, self._end - time.monotonic())
        try:
            return self._pattern.search(text, timeout=left, concurrent=True)
        except TimeoutError as error:
            raise ConfigError(
                f"the pattern {quoted(self._pattern.pattern)} takes more than {MOST_SECONDS:g} s "
                "to search the texts; write one with fewer nested repeats"
            ) from error


# Anchors at an end, word boundaries, looking ahead or behind, and conditions
_LOOKS_AROUND: Final = re.compile(r"\$|\\[bBZzmMG]|\(\?(?:<?[=!]|\()")


def _compiled(pattern: str, groups: int | None = 1) -> Any:
    if len(pattern) > LONGEST_PATTERN:
        raise ConfigError(
            f"the pattern has {len(pattern):,} characters; at most {LONGEST_PATTERN} are allowed. "
            "Shorten it"
        )
    try:
        compiled = regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{quoted(pattern)} is not a regular expression ({error}); write one such as "
            r"answer is (\w+)"
        ) from error
    if groups is not None and compiled.groups != groups:
        raise ConfigError(
            f"the pattern {quoted(pattern)} has {compiled.groups} groups; it must have exactly "
            r"one, for the answer, as in: answer is (\w+). Write other groups as (?:...)"
        )
    return compiled


_START: Final = re.compile(r"\s*(?:1\.(?=\s))?")  # white space and a list number
_MARK: Final = regex.compile(
    r"\n|[\p{Sentence_Break=STerm}\p{Sentence_Break=ATerm}…]++[\p{Pe}\p{Pf}\p{Pi}\"'*_`]*+"
)
_FULL_STOP: Final = regex.compile(r"\p{Sentence_Break=ATerm}\W*+")
# What must be read after a mark: the next word after a full stop, which may have ended an
# abbreviation; the next character after any other mark.
_NEXT_WORD: Final = regex.compile(r"[^\S\n]*+(?:\n|(?<=\s)(?P<next>\S++)\s)")
_NEXT_CHARACTER: Final = regex.compile(r"[^\S\n]*+(?:\n|(?P<next>\S))")
_CLOSING_QUOTES: Final = "\"'”’»)」"  # one of each kind that the library pairs
_GOES_ON: Final = re.compile(r"\S")  # a full stop inside a number, a name or an address
_CYRILLIC: Final = regex.compile(r"\p{Cyrillic}")
_LONE: Final = re.compile("[\ud800-\udfff]")  # a byte that is no character


def first_sentence(text: str, whole: bool) -> tuple[int, int] | None:
    """Where the first sentence ends, and how many characters must be read to know it.

    Args:
        whole: Whether the text ends here; otherwise it may go on.

    Returns:
        None if it does not end before the end of the text.
    """
    start = _START.match(text)
    read = f"{text} " if whole else text  # at the end, the last word is complete
    for mark in _MARK.finditer(text, start.end() if start else 0):
        if mark[0] == "\n":
            return mark.start(), mark.end()
        is_full_stop = _FULL_STOP.search(mark[0]) is not None
        if is_full_stop and _GOES_ON.match(text, mark.end()):
            continue
        following = (_NEXT_WORD if is_full_stop else _NEXT_CHARACTER).match(read, mark.end())
        if following is None:
            return None
        if following["next"] is None or _is_boundary(
            read[: following.end("next")], following.start("next")
        ):
            return mark.end(), following.end()
    return None


def _is_boundary(text: str, place: int) -> bool:
    """Whether a sentence of the text ends at this place, also if a quotation or bracket that is
    open there is closed later.
    """
    text = _LONE.sub("\ufffd", text)
    language = "ru" if _CYRILLIC.search(text[:place]) else "en"
    return all(
        place in {found["end_index"] for found in get_sentence_boundaries(language, each)}
        for each in (f"{text} ", *(f"{text} x{close} " for close in _CLOSING_QUOTES))
    )


# "a" before these words is a name: a blood group, a grade, a note
_ARTICLE: Final = re.compile(
    r"\b(?:[Aa] (?!(?:flat|level|major|minor|minus|negative|plus|positive|sharp|star)\b)|[Aa]n |"
    r"[Tt]he )(?=[^\W\d_A-Z])"
)
_QUOTED: Final = re.compile(
    r"(?<![\w*])(?:([\"“”„«»‘’'`])(.+?)[\"“”„«»‘’'`]|\*\*(.+?)\*\*)(?![\w*])"
)
_OPEN_QUOTE: Final = re.compile(r"(?<!\w)[\"“„«](?=[^\W\d])")
# ! and ? after a digit or a single letter, also in brackets, are not closing: n!, (n-1)!, Nf3?
_SYMBOL: Final = r"(?:[\d⁰¹²³⁴-⁹]|(?<![^\W\d_]|['’])[A-Za-zΑ-ω])"
_CLOSING: Final = re.compile(
    rf"(?:(?<!{_SYMBOL})(?<!{_SYMBOL}\))(?<![!?])[!?][.,;:!?…。！？]*|[.,;:…。！？]+)$"
)
_LONG_WORD: Final = 8  # letters; in shorter words, changing one letter often gives another word
_FILLERS: Final = "it there is are be has have do does of answer"
_NEGATIONS: Final = (
    "no not never none neither nor nothing nobody cannot without dont doesnt didnt isnt arent "
    "wasnt werent cant wont hasnt havent hadnt couldnt wouldnt shouldnt"
)
_UNITS: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_AFTER_TENS: Final = re.compile(rf"(?<=ty)-(?=(?:{_UNITS.replace(' ', '|')})\b)")
_NUMBERS: Final = {word: number for number, word in enumerate(_UNITS.split())} | {
    word: 10 * number for number, word in enumerate(_TENS.split(), start=2)
}


class SameAnswer(Protocol):
    """A rule that says whether two texts are the same answer."""

    def __call__(self, question: str, one: str, other: str) -> bool:
        """Whether the two texts are the same answer to the question; symmetric in the two texts."""
        ...


@lru_cache(maxsize=4096)
def normalised(text: str) -> str:
    """The normal form of a text, in which equal answers are equal strings.

    Ignored are letter case, the amount of white space, closing punctuation (but no ! or ? after a
    digit or a single letter: n! is not n), quotation marks and bold type around words, and the
    articles a, an, the before a lower-case word. All else is kept. A text of punctuation alone is
    kept as it is.
    """
    plain = " ".join(unicodedata.normalize("NFC", text).replace("−", "-").split())
    words = plain.replace("’", "'") if plain.count("’") > plain.count("‘") else plain
    words = _OPEN_QUOTE.sub("", _QUOTED.sub(r"\2\3", _CLOSING.sub("", words)))
    return _ARTICLE.sub("", _CLOSING.sub("", words)).casefold().strip() or plain.casefold()


def exact(question: str, one: str, other: str) -> bool:
    """Equal after `normalised`."""
    return normalised(one) == normalised(other)


def spelling(question: str, one: str, other: str) -> bool:
    """Equal word for word, except for accents and for one letter in words of at least 8 letters.

    The first letter of a word must always match. Real words that differ by one letter
    ("stationary", "stationery") are mistaken for each other.
    """
    words, others = (_without_accents(normalised(text)).split() for text in (one, other))
    return len(words) == len(others) and all(map(_same_spelling, words, others))


def content(question: str, one: str, other: str) -> bool:
    """Equal in what they add to the question: "Paris" and "The capital of France is Paris".

    The rule compares the words that are neither in the question nor fillers such as "it is", with
    number words as digits. If both texts repeat words of the question, they must do so in the same
    order, but one may leave out some. Texts that add nothing must be equal after `normalised`.
    """
    if exact(question, one, other):
        return True
    asked = frozenset(_content_words(question))
    (new, repeated), (other_new, other_repeated) = (
        _split(_content_words(text), asked) for text in (one, other)
    )
    shorter, longer = sorted((repeated, other_repeated), key=len)
    return bool(new) and new == other_new and _is_subsequence(shorter, longer)


RULES: Final[dict[str, SameAnswer]] = {"exact": exact, "spelling": spelling, "content": content}


def grouped(question: str, texts: Sequence[str], same: SameAnswer = exact) -> list[int]:
    """The group number of each text, in order of appearance.

    A text joins the first group whose first text is the same answer, as in Kuhn et al., 2023; so
    put the heaviest texts first. Texts that are equal after `normalised` always share a group.
    """
    firsts: list[str] = []
    known: dict[str, int] = {}
    for text in texts:
        key = normalised(text)
        if key not in known:
            matches = (
                number
                for number, first in enumerate(firsts)
                if same is not exact and same(question, first, text)
            )
            known[key] = next(matches, len(firsts))
            if known[key] == len(firsts):
                firsts.append(text)
    return [known[normalised(text)] for text in texts]


def _without_accents(text: str) -> str:
    parts = unicodedata.normalize("NFD", text)
    return "".join(sign for sign in parts if unicodedata.category(sign) != "Mn")


def _same_spelling(word: str, other: str) -> bool:
    if word == other:
        return True
    shorter, longer = sorted((word, other), key=len)
    if len(shorter) < _LONG_WORD or len(longer) > len(shorter) + 1 or word[0] != other[0]:
        return False
    if not (word.isalpha() and other.isalpha()):
        return False
    start = next((at for at, sign in enumerate(shorter) if sign != longer[at]), len(shorter))
    return shorter[start + (len(shorter) == len(longer)) :] == longer[start + 1 :]


def _content_words(text: str) -> list[str]:
    """The words that are not fillers, with number words up to ninety-nine as digits."""
    fillers, tens = _FILLERS.split(), _TENS.split()
    words: list[str] = []
    after_tens = False
    for written in _AFTER_TENS.sub(" ", normalised(text)).split():
        word = _CLOSING.sub("", written) or written
        number = _NUMBERS.get(word)
        if number is None:
            words += [word] if word not in fillers else []
        elif after_tens and 0 < number < 10:
            words[-1] = str(int(words[-1]) + number)
        else:
            words.append(str(number))
        after_tens = written in tens
    return words


def _split(words: Sequence[str], asked: frozenset[str]) -> tuple[list[str], list[str]]:
    """The words that are not in the question, and the words that are.

    Numbers and negations always count as new.
    """
    negations = _NEGATIONS.split()
    is_new = [word not in asked or word in negations or not word.isalpha() for word in words]
    new = [word for word, fresh in zip(words, is_new, strict=True) if fresh]
    return new, [word for word, fresh in zip(words, is_new, strict=True) if not fresh]


def _is_subsequence(shorter: Sequence[str], longer: Sequence[str]) -> bool:
    rest = iter(longer)
    return all(word in rest for word in shorter)
