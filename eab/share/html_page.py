"""A run as one HTML file: the same board as in the app, without Python, server or network.

Model output is untrusted. It is stored as JSON in a data block that contains no `<`, and reaches
the page only through `textContent`. The page's content security policy blocks all other scripts,
and loading anything from anywhere.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from os.path import commonprefix
from pathlib import Path
from typing import Any, Final

from eab import token_text
from eab.board import bundle
from eab.board.messages import Feed
from eab.events import Event
from eab.figures.captions import cost_sentence, origin_words, weight_sentence
from eab.figures.uncertainty import nats
from eab.formatting import counted
from eab.record.files import save_whole
from eab.run import RunState, fold

_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>EAB Explorer</title>
<style>{style}</style>
</head>
<body>
<main>
<h1 id="title">EAB Explorer</h1>
<div id="board"></div>
<p id="about">This page replays a recorded run; it needs JavaScript, but no network.</p>
<h2>Texts</h2>
<p id="texts-sentence"></p>
<div id="texts"></div>
</main>
<script type="application/json" id="run">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def save_html(run: RunState | Iterable[Event], path: Path | str) -> None:
    """Write the run as an HTML file; RecordError if it has not started or cannot be written."""
    save_whole(path, to_html(run).encode("utf-8"))


def to_html(run: RunState | Iterable[Event]) -> str:
    """The run as an HTML page; RecordError if it has not started."""
    state = run if isinstance(run, RunState) else fold(run)
    style, script, policy = _code()
    return _PAGE.format(
        policy=policy, style=style, script=script, data=_as_data_block(_page_data(state))
    )


def _as_data_block(value: Any) -> str:
    """JSON in ASCII that cannot close the element that contains it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _page_data(run: RunState) -> dict[str, Any]:
    return {
        "title": token_text.visible(run.started.beginning),
        "about": f"{_settings_sentence(run)} {cost_sentence(run)}",
        "texts": _texts(run),
        "message": Feed().message(run, "page", "replay", autoplay=True),
    }


def _settings_sentence(run: RunState) -> str:
    if run.started.imported:
        return origin_words(run.started)
    config, model = run.started.config, token_text.visible(run.started.model.name)
    what = {
        "": "A recorded run",
        "exact": "A what-if run (exact)",
        "approximate": "A what-if run (an approximation)",
    }
    return (
        f"{what[run.started.what_if]} of {model}: policy {config.policy}, forks from "
        f"{run.started.threshold_nats:.2f} nats into {counted(config.branch_factor, 'branch')}, at "
        f"most {counted(config.max_paths, 'path')} of {counted(config.max_new_tokens, 'token')}, "
        f"temperature {config.temperature:g}, seed {config.seed}."
    )


def _texts(run: RunState) -> dict[str, Any]:
    """A table of all texts, heaviest first; page.js decodes the front-coded texts."""
    samples = run.samples
    kept = run.started.kept_text
    texts = _front_coded([token_text.visible_join([kept, sample.text]) for sample in samples])
    rows = [
        [f"{sample.weight:.1%}", nats(sample.log_prob), sample.finish_reason] for sample in samples
    ]
    return {
        "sentence": weight_sentence(run),
        "columns": ["weight", "log probability (nats)", "end", "text"],
        "rows": rows,
        "texts": texts,
    }


def _front_coded(texts: list[str]) -> list[tuple[int, int, str]]:
    """The texts in alphabetical order as (index, length shared with the previous text, rest): texts
    of one tree often start alike.

    Lengths are in UTF-16 code units, as in JavaScript.
    """
    coded = []
    before = ""
    for place in sorted(range(len(texts)), key=texts.__getitem__):
        text = texts[place]
        common = commonprefix([before, text])  # noqa: RUF071 - of characters, not of paths
        coded.append((place, len(common.encode("utf-16-le")) // 2, text[len(common) :]))
        before = text
    return coded


@lru_cache(maxsize=1)
def _code() -> tuple[str, str, str]:
    """CSS, script, and a content security policy that allows only these two."""
    style = bundle.stylesheet() + (bundle.FOLDER / "page.css").read_text(encoding="utf-8")
    script = bundle.javascript("page")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src blob:"
    )
    return style, script, policy


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
