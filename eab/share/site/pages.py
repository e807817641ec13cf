"""Pages of the site without scripts: lessons, and techniques with their recorded measurements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Final, TypeAlias

from markdown_it import MarkdownIt

from eab.board import bundle
from eab.board.still import picture, tree_svg
from eab.figures.captions import tree_sentence
from eab.formatting import as_sentence
from eab.labs.batching import BATCHING
from eab.labs.bmc import LABS as BMC_LABS
from eab.labs.bmc import Experiment
from eab.labs.caches import BYTES, CACHES_LAB, PROCESSED
from eab.labs.drafts import DRAFTS, GAINS
from eab.labs.measurement import Lab, Report, TextTable
from eab.labs.quantization import FORMATS
from eab.labs.tuning.evaluation_report import EVALUATION
from eab.lessons import bundled_runs, lesson_files
from eab.lessons.lesson import (
    ExerciseSection,
    Lesson,
    QuestionSection,
    ReadingSection,
    Section,
)
from eab.lessons.lesson_files import numbers_in, with_numbers
from eab.lessons.measures import Sources, bundled_sources, parse, written
from eab.run import fold
from eab.run.record import SUFFIX
from eab.share.html_page import document

# The charts of lessons that a sentence stands for, by their names in eab.lessons.pictures
_CHARTS: Final[dict[str, tuple[Lab, Callable[[], Report]]]] = {
    "processed tokens": (PROCESSED, bundled_runs.caches),
    "bytes copied and held": (BYTES, bundled_runs.caches),
    "tokens per forward pass": (DRAFTS, bundled_runs.draft_lengths),
    "when drafts pay": (GAINS, bundled_runs.draft_lengths),
    "weight formats": (FORMATS, bundled_runs.formats),
}
_IN_THE_APP: Final = "The Learn page of the app has the charts and sliders, and checks the result."
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False})
_BODY: Final = """\
<header class="top"><a href="../index.html">EAB Explorer</a></header>
<main class="text">
<h1>{title}</h1>
{content}
</main>"""


Measured: TypeAlias = tuple[str, Lab, Callable[[], Report]]  # with what was asked


@dataclass(frozen=True, slots=True)
class Technique:
    """What was measured of a technique, and the lesson about it."""

    id: str
    title: str
    question: str
    lesson: str
    measured: tuple[Measured, ...]


def _bmc(question: str, name: Experiment) -> Measured:
    return question, BMC_LABS[name], partial(bundled_runs.bmc, name)


TECHNIQUES: Final = (
    Technique(
        "kv-caches",
        "KV caches",
        "What does a KV cache save?",
        "kv-cache",
        (("How long does a run take with each cache?", CACHES_LAB, bundled_runs.caches),),
    ),
    Technique(
        "growth",
        "Growth by spare rows (BMC)",
        "How far ahead should the cache allocate?",
        "growth",
        (
            _bmc("How much time does each r cost?", "growth"),
            _bmc("Is the predicted r* the best for other models, too?", "sizes"),
            _bmc("What if draft tokens are rejected?", "rejection"),
        ),
    ),
    Technique(
        "speculative-decoding",
        "Speculative decoding",
        "When do draft tokens save time?",
        "speculation",
        (("Which draft length is the fastest?", DRAFTS, bundled_runs.draft_lengths),),
    ),
    Technique(
        "batching",
        "Continuous batching",
        "Does a short request have to wait for a long one?",
        "batching",
        (("Does a short request have to wait for a long one?", BATCHING, bundled_runs.batching),),
    ),
    Technique(
        "quantization",
        "Weights in fewer bits",
        "What is lost when weights are rounded?",
        "quantization",
        (("How far does each format move the predictions?", FORMATS, bundled_runs.formats),),
    ),
    Technique(
        "answers",
        "Is the tree right about its answers?",
        "Does its entropy tell wrong answers from right ones?",
        "answers",
        (("How do trees compare with independent texts?", EVALUATION, bundled_runs.evaluation),),
    ),
)


def technique_page(technique: Technique) -> str:
    """A page about a technique: what it is, and what was measured."""
    lesson = lesson_files.named(technique.lesson)
    sources = _sources(lesson)
    parts = [
        _words(f"{lesson.summary}\n\n{lesson.introduction}", sources),
        f'<p><a href="../lessons/{lesson.id}.html">The lesson: {escape(lesson.title)}</a></p>',
    ]
    for question, lab, load in technique.measured:
        report = load()
        heading = f"<h2>{escape(question)}</h2>"
        parts += [heading, _paragraph(lab.answer(report)), _table(lab.table(report))]
        if report.began is not None:
            made = f"{report.began.model}, {report.began.dtype}, {report.began.machine}"
            parts.append(_paragraph(f"{lab.note} Recorded with {made}."))
    parts += ["<h2>The recorded run of the lesson</h2>", *_run(lesson, sources)]
    return _page(technique.title, [*parts, _next("techniques", TECHNIQUES, technique)])


def lesson_page(lesson: Lesson) -> str:
    """A lesson to read: its text, the run that it uses, and its question with a hidden answer."""
    sources = _sources(lesson)
    parts = [
        _words(f"{lesson.summary}\n\n{lesson.introduction}", sources),
        *_run(lesson, sources),
    ]
    before = ""
    for section in lesson.sections:
        parts += [f"<h2>{escape(section.title)}</h2>", _words(section.text, sources)]
        parts += _hidden(section, sources)
        chart = "" if isinstance(section, ReadingSection) else section.script.picture
        parts += _measured(chart) if chart != before else []
        before = chart
    parts += [
        f'<p><a href="../techniques/{one.id}.html">Measured: {escape(one.title)}</a></p>'
        for one in TECHNIQUES
        if one.lesson == lesson.id
    ]
    return _page(lesson.title, [*parts, _next("lessons", lesson_files.lessons(), lesson)])


def _run(lesson: Lesson, sources: Sources) -> list[str]:
    """The tree of the lesson's run, and where it can be replayed."""
    still = picture(tree_svg(sources.run), tree_sentence(sources.run))
    name = lesson.run.removesuffix(SUFFIX)
    return [
        f'<p class="wide" tabindex="0">{still}</p>',
        f'<p><a href="../index.html?run={name}">Open this run on the board</a></p>',
    ]


def _next(folder: str, pages: Sequence[Lesson | Technique], page: Lesson | Technique) -> str:
    """A link to the page that follows, and after the last one to the list of all."""
    if page is pages[-1]:
        return f'<p><a href="../index.html#{folder}">All {folder}</a></p>'
    following = pages[pages.index(page) + 1]
    link = f'<a href="../{folder}/{following.id}.html">{escape(following.title)}</a>'
    return f"<p>Next: {link}</p>"


def _hidden(section: Section, sources: Sources) -> list[str]:
    """The answer to a question, or what an exercise shows, behind words to press."""
    if isinstance(section, QuestionSection):
        value = section.quantity.value(sources)
        ranges = "".join(f"<li>{escape(each)}</li>" for each in section.ranges())
        said = "" if value is None else f"**{written(value, section.quantity.unit)}.** "
        return [
            f"<p>Guess first:</p><ul>{ranges}</ul>",
            _details("Show the answer", _words(said + section.explanation, sources)),
        ]
    if isinstance(section, ExerciseSection):
        shows = _details("What it shows", _words(section.explanation, sources))
        return [_paragraph(_IN_THE_APP), *([shows] if section.explanation else [])]
    return []


def _measured(chart: str) -> list[str]:
    """What a lesson's chart shows, in a sentence, behind words to press."""
    if chart not in _CHARTS:
        return []
    lab, load = _CHARTS[chart]
    return [_details("What was measured", _paragraph(lab.answer(load())))]


def _details(words: str, content: str) -> str:
    return f"<details><summary>{words}</summary>{content}</details>"


def _sources(lesson: Lesson) -> Sources:
    return bundled_sources(fold(bundled_runs.events_of(bundled_runs.named(lesson.run))))


def _words(text: str, sources: Sources) -> str:
    """Markdown with the numbers of the recordings, as HTML."""
    values = {name: parse(name).in_words(sources) for name in numbers_in(text)}
    return str(_MARKDOWN.render(with_numbers(text, values)))


def _paragraph(text: str) -> str:
    return f"<p>{escape(as_sentence(text.strip()))}</p>"


def _table(table: TextTable) -> str:
    if not table:
        return ""
    head, *rows = table
    lines = (f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    heads = "".join(_cells([cell], "th" if cell else "td") for cell in head)
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cells(row: Sequence[str], kind: str) -> str:
    return "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row)


def _page(title: str, parts: Sequence[str]) -> str:
    style = (bundle.FOLDER / "page.css").read_text(encoding="utf-8")  # without the board's
    body = _BODY.format(title=escape(title), content="\n".join(parts))
    return document(f"{escape(title)} - EAB Explorer", style, body, "img-src data:")
