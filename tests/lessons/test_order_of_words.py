"""A lesson uses a technical word only after it, or an earlier lesson, has introduced it in bold."""

import re
from collections.abc import Iterator

from app.widgets.elements import terms
from eab.lessons.lesson import ExerciseSection, QuestionSection, ReadingSection
from eab.lessons.lesson_files import lessons

NO_WORDS = re.compile(r"\{\{.*?\}\}|`[^`]*`", re.DOTALL)  # numbers of the run, and code
# Of two meanings: a weight of the model, a value on a scale. Explained in other words: the rest.
EXCEPT = {"scale", "forked", "logits", "continuous batching", "static batch"}


def course() -> str:
    """What a reader reads, in order, without titles and references."""
    return "\n\n".join(text for lesson in lessons() for text in _texts(lesson))


def _texts(lesson: object) -> Iterator[str]:
    yield lesson.introduction
    for section in lesson.sections:
        if not isinstance(section, ReadingSection):
            yield section.text
        if isinstance(section, QuestionSection | ExerciseSection):
            yield section.explanation


def first_use(word: str, text: str) -> int:
    forms = re.escape(word).replace(r"\ ", r"\s+")
    found = re.search(rf"\b{forms}(s|es|ed|ing)?\b", text, re.IGNORECASE)
    return len(text) if found is None else found.start()


def test_every_technical_word_is_introduced_where_it_is_used_first() -> None:
    text = NO_WORDS.sub("0", course())
    bold = {" ".join(words.split()).lower() for words in text.split("**")[1::2]}
    bold -= {"0", "what you will see:"}
    known = {form.lower() for term in terms() for form in (term.name, *term.also)}
    for word in sorted((known | bold) - EXCEPT):
        at = first_use(word, text)
        assert text[at - 2 : at] == "**" or at == len(text), text[at - 60 : at + 60]
