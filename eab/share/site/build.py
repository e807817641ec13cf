"""Writes the site: `index.html` with the recorded runs, a page for each lesson and technique, and
the story model for the browser.

The recorded runs are in `index.html` itself, so it also works when it is opened from the disk, and
without a network once it is loaded. All paths are relative, and no page asks another host for
anything; the content security policy of each page allows neither that nor other scripts.
"""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Final

from eab import token_text
from eab.board import bundle
from eab.board.still import thumbnail
from eab.lessons import bundled_runs
from eab.lessons.lesson_files import lessons
from eab.run import fold
from eab.run.record import SUFFIX
from eab.run.record.files import make_folder, save_whole
from eab.share.html_page import document, packed, policy_hash
from eab.share.live.files import FIRST_PROMPT, model_files, worker
from eab.share.site.pages import TECHNIQUES, lesson_page, technique_page

MODEL: Final = "model/"  # the folder of the story model
WORKER: Final = f"{MODEL}worker.js"
_BODY: Final = """\
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
        **{f"lessons/{lesson.id}.html": lesson_page(lesson) for lesson in lessons()},
        **{f"techniques/{one.id}.html": technique_page(one) for one in TECHNIQUES},
    }
    texts = pages | {WORKER: worker()}
    model = {f"{MODEL}{name}": data for name, data in model_files().items()}
    return {name: text.encode("utf-8") for name, text in texts.items()} | model


def index_page() -> str:
    """The first screen; its live panel expects the story model beside it."""
    style, script = bundle.stylesheet("page"), bundle.javascript("page")
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
    body = _BODY.format(
        live=f'data-worker="{WORKER}" data-model="{MODEL}" data-prompt="{FIRST_PROMPT}"',
        megabytes=f"{sum(map(len, model_files().values())) / 1e6:.1f}",
        gallery="".join(cards),
        title=escape(token_text.visible(runs[first].started.beginning)),
        shows=escape(recordings[0].description),
        first=first,
        run=data[first],
        script=script,
        lessons=_links({f"lessons/{one.id}": (one.title, one.summary) for one in lessons()}),
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
