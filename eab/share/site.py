"""Writes the site: `index.html` with the recorded runs, a page for each lesson and technique, and
the story model for the browser. The pages of lessons and techniques have no scripts.

The recorded runs are in `index.html` itself, so it also works when it is opened from the disk, and
without a network once it is loaded. All paths are relative, and no page asks another host for
anything; the content security policy of each page allows neither that nor other scripts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Final, TypeAlias

from markdown_it import MarkdownIt

from eab import token_text
from eab.board import STATIC, javascript, stylesheet
from eab.board.still import picture, thumbnail, tree_svg
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
from eab.run.record.files import make_folder, save_whole
from eab.share.exports import document, packed, policy_hash
from eab.share.live import FIRST_PROMPT, model_files, worker

MODEL: Final = "model/"  # the folder of the story model
WORKER: Final = f"{MODEL}worker.js"
_INDEX: Final = """\
<header class="top">
<h1>EAB Explorer</h1>
<p>Watch a language model write. Where it hesitates, the text branches.</p>
<nav aria-label="On this page">
<a href="#lessons">Lessons</a><a href="#techniques">Techniques</a>
</nav>
</header>
<main>
<div id="live" {live}>
<p>A small story model writes here, in your browser; the first run fetches its {megabytes} MB. Chat
models, a GPU, batching and other policies need <a href="#program">two commands</a>.</p>
</div>
<nav id="gallery" aria-label="Recorded runs">{gallery}</nav>
<h2 id="title">{title}</h2>
<p id="shows">{shows}</p>
<div id="board"></div>
<p id="about">This page needs JavaScript.</p>
<script type="text/plain" id="run-{first}">{run}</script>
<script type="module" async>{script}</script>
<h2 id="texts-title">Texts</h2>
<div id="texts" tabindex="0"></div>
<div class="lists">
<section><h2 id="lessons">Lessons</h2>{lessons}</section>
<section><h2 id="techniques">Techniques, measured</h2>{techniques}</section>
<section><h2 id="program">What the program does besides</h2>
<p>Chat models, a GPU, runs in one batch, and other branching policies need the program:</p>
<pre>pip install "eab-explorer[app]"
eab app</pre>
</section>
</div>
</main>
{runs}"""


def write_site(folder: Path) -> None:
    """Write all files of the site; RecordError if the folder cannot be written."""
    make_folder(folder)
    for name, data in site_files().items():
        make_folder((folder / name).parent)
        save_whole(folder / name, data)


def site_files() -> dict[str, bytes]:
    """The files of the site by their relative paths."""
    pages = {
        "index.html": index_page(),
        **{f"lessons/{lesson.id}.html": lesson_page(lesson) for lesson in lesson_files.lessons()},
        **{f"techniques/{one.id}.html": technique_page(one) for one in TECHNIQUES},
    }
    texts = pages | {WORKER: worker()}
    model = {f"{MODEL}{name}": data for name, data in model_files().items()}
    return {name: text.encode("utf-8") for name, text in texts.items()} | model


def index_page() -> str:
    """The first screen; its live panel expects the story model beside it."""
    style, script = stylesheet("page"), javascript("page")
    recordings = bundled_runs.recordings()
    runs = {
        recording.file.removesuffix(SUFFIX): fold(bundled_runs.events_of(recording))
        for recording in recordings
    }
    data = {name: packed(run, name) for name, run in runs.items()}
    first, *others = data
    cards = (
        _card(name, recording, thumbnail(run))
        for recording, (name, run) in zip(recordings, runs.items(), strict=True)
    )
    body = _INDEX.format(
        live=f'data-worker="{WORKER}" data-model="{MODEL}" data-prompt="{FIRST_PROMPT}"',
        megabytes=f"{sum(map(len, model_files().values())) / 1e6:.1f}",
        gallery="".join(cards),
        title=escape(token_text.visible(runs[first].started.beginning)),
        shows=escape(recordings[0].description),
        first=first,
        run=data[first],
        script=script,
        lessons=_links(
            {f"lessons/{one.id}": (one.title, one.summary) for one in lesson_files.lessons()}
        ),
        techniques=_links(
            {f"techniques/{one.id}": (one.title, one.question) for one in TECHNIQUES}
        ),
        runs="\n".join(_block(name, data[name]) for name in others),
    )
    policy = (
        f"script-src {policy_hash(script)}; form-action 'none'; img-src blob:; worker-src 'self'; "
        "connect-src 'self'"
    )
    return document("EAB Explorer", style, body, policy)


def _card(name: str, recording: bundled_runs.Recording, picture: str) -> str:
    title, teaches = escape(recording.title), escape(recording.teaches)
    address = f'href="?run={name}" data-run="{name}" title="{escape(recording.description)}"'
    return f"<a {address}>{picture}<b>{title}</b>{teaches}</a>"


def _links(pages: Mapping[str, tuple[str, str]]) -> str:
    """A list of pages, by address without ending: what is a link, and what follows it."""
    lines = (
        f'<li><a href="{address}.html">{escape(title)}</a> – {escape(words)}</li>'
        for address, (title, words) in pages.items()
    )
    return f"<ol>{''.join(lines)}</ol>"


def _block(name: str, data: str) -> str:
    return f'<script type="text/plain" id="run-{name}">{data}</script>'


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
_PAGE: Final = """\
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
    style = (STATIC / "page.css").read_text(encoding="utf-8")  # without the board's
    body = _PAGE.format(title=escape(title), content="\n".join(parts))
    return document(f"{escape(title)} - EAB Explorer", style, body, "img-src data:")
