"""When two texts count as the same answer: three rules behind one interface, and grouping by them.

A rule is a function of the question and two texts. `exact` is the default. No rule ignores a number
or a negation: "15 dollars" is not "25 dollars", "is happy" is not "is not happy".
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

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
