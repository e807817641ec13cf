"""A run as a file for elsewhere: its tree as a graph and as GraphML, the Python program that
reproduces it, and a page with the same board as in the app, without Python, server or network.

The page holds the run's events, from which it makes the messages of its board, also at another
threshold or growth step (eab/board/static/resimulate.js). On request it also holds the story model
(eab/share/live), and runs it on a prompt that is typed there.

Model output is untrusted. On the page it is stored as packed JSON in a data block, in letters and
digits, and shown only through `textContent`. The page's content security policy blocks all other
scripts, and loading anything from anywhere.
"""

import base64
import gzip
import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eab import token_text
from eab.board import javascript, stylesheet
from eab.board.messages import Feed
from eab.config import OWN, BranchingConfig
from eab.engine.branching.presets import START, starting_values
from eab.figures.captions import cost_sentence, file_stem, origin_words, weight_sentence
from eab.figures.uncertainty import nats
from eab.run import RunState, fold
from eab.run.events import Event, RunStarted, TextScored
from eab.run.events.chat import as_json
from eab.run.record.files import save_whole
from eab.run.record.run_file import encode
from eab.share.live import FIRST_PROMPT, model_files, worker
from eab.weight_formats import AS_LOADED, PLAIN

if TYPE_CHECKING:
    import networkx as nx


_ALWAYS: Final = frozenset(starting_values())
_PRINTED: Final = """\
for sample in run.samples:
    print(f"{sample.weight:.3f} {sample.text!r}")
"""


def tree_graph(run: RunState) -> "nx.DiGraph[int]":
    """The tree of a run: one node per path, and an edge to each child with its share of the weight.

    Nodes have text, weight, status, number of tokens and, if they fork, fork entropy (nats).
    """
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph(name=token_text.visible(run.started.prompt))
    for path in run.paths:
        text = token_text.visible_join(token.kept for token in path.tokens)
        graph.add_node(
            path.id, text=text, weight=path.weight, status=path.status, tokens=len(path.tokens)
        )
        if path.fork_entropy is not None:
            graph.nodes[path.id]["fork_entropy"] = path.fork_entropy
        if path.parent >= 0:
            graph.add_edge(path.parent, path.id, share=path.share)
    return graph


def to_graphml(run: RunState) -> bytes:
    """The tree as a GraphML file."""
    import networkx as nx

    buffer = io.BytesIO()
    nx.write_graphml_xml(tree_graph(run), buffer)
    return buffer.getvalue()


def as_python(started: RunStarted) -> str:
    """The program, with model, device, dtype, weights, every setting that differs from its default,
    and those that presets and sampling set.

    On the same kind of machine it gives the same events, except for the timings. An imported run
    can only be read from its file.
    """
    if started.imported:
        return f'import eab\n\nrun = eab.load("{file_stem(started)}.eab")\n{_PRINTED}'
    card = started.model
    given: dict[str, object] = {"device": card.device, "dtype": card.dtype}
    given |= {"weights": card.weights} if card.weights != AS_LOADED else {}
    given |= {"layout": card.layout} if card.layout != PLAIN else {}
    given |= {"draft": started.draft.name} if started.draft is not None else {}
    given |= {
        field.name: getattr(started.config, field.name)
        for field in fields(BranchingConfig)
        if field.name in _ALWAYS
        or getattr(started.config, field.name) != getattr(START, field.name)
    }
    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    tokens = started.continued_tokens
    more = f", continued={tokens!r}" if tokens else ""
    more += ", parse_special=True" if started.parse_special else ""
    text = as_json(started.messages) or started.prompt
    prompt = repr([*started.own_tokens] if started.by_token_ids else text)
    note = f"# The run used {started.own_parts}: add them.\n" if started.own_parts else ""
    return note + (
        "from eab import EntropyAdaptiveBranching\n\n"
        f"explorer = EntropyAdaptiveBranching(\n    {card.name!r},\n{arguments})\n"
        f"run = explorer.run({prompt}{more})\n"
        f"{_PRINTED}"
    )


# What the page cannot make from the events
_ONLY_HERE: Final = ("run", "mode", "autoplay", "cursor", "file", "labels", "deciding", "notes")

_DOCUMENT: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
_BODY: Final = """\
<main>
{panel}<h1 id="title">EAB Explorer</h1>
<div id="board"></div>
<p id="about">This page replays a recorded run; it needs JavaScript, but no network.</p>
<h2 id="texts-title">Texts</h2>
<div id="texts"></div>
</main>
<script type="text/plain" id="run">{data}</script>
{model}<script type="module">{script}</script>"""
_PANEL: Final = f"""\
<div id="live" data-prompt="{FIRST_PROMPT}">
<p>The bundled story model continues a prompt here, in this browser.</p>
</div>
"""


def save_html(run: RunState | Iterable[Event], path: Path | str, live: bool = False) -> None:
    """Write the run as an HTML file; RecordError if it has not started or cannot be written."""
    save_whole(path, to_html(run, live).encode("utf-8"))


def to_html(run: RunState | Iterable[Event], live: bool = False) -> str:
    """The run as an HTML page; RecordError if it has not started.

    Args:
        live: Add the story model, which then runs on the page: 10 MB more.
    """
    state = run if isinstance(run, RunState) else fold(run)
    script = javascript("page")
    body = _BODY.format(
        script=script,
        data=packed(state),
        panel=_PANEL * live,
        model=_story_model() if live else "",
    )
    policy = f"script-src {policy_hash(script)}; img-src blob:" + "; worker-src blob:" * live
    return document("EAB Explorer", stylesheet("page"), body, policy)


def document(title: str, style: str, body: str, policy: str) -> str:
    """An HTML page that loads and sends nothing, except for what its policy allows.

    Args:
        title: As HTML.
        policy: Directives of the content security policy, besides that for `style`.
    """
    policy = f"default-src 'none'; base-uri 'none'; style-src {policy_hash(style)}; {policy}"
    return _DOCUMENT.format(policy=policy, title=title, style=style, body=body)


def packed(run: RunState, key: str = "page") -> str:
    """All that a page shows of the run: JSON (PageData in eab/board/static/types.d.ts), gzipped and
    in base64.

    Args:
        key: Names the run on its board.
    """
    message = Feed().message(run, key, "replay", autoplay=True)
    if _page_can_make_message(run):
        message = {name: message[name] for name in _ONLY_HERE if name in message}
    what_if = f"What-if run, {run.started.what_if}: " if run.started.what_if else ""
    shown = {
        "title": token_text.visible(run.started.beginning),
        "about": f"{what_if}{origin_words(run.started)} {cost_sentence(run)}",
        "texts": _texts(run),
        "message": message,
    }
    begun = json.dumps(shown, separators=(",", ":"), allow_nan=False).encode("ascii")[:-1]
    return _zipped(b'%b,"events":%b}' % (begun, _events(run)))


def packed_events(run: RunState) -> str:
    """The events of a run, packed in the same way; none if it cannot be recomputed."""
    return _zipped(_events(run))


def _events(run: RunState) -> bytes:
    events = run.events if run.started.can_be_recomputed else []
    return b"[%b]" % b",".join(map(encode, events))


def _zipped(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, mtime=0)).decode("ascii")


@lru_cache(maxsize=1)
def _story_model() -> str:
    """The data blocks of the story model and its worker."""
    parts = {"worker.js": worker().encode("utf-8")} | model_files()
    blocks = (
        f'<script type="text/plain" data-file="{name}">{_zipped(data)}</script>\n'
        for name, data in parts.items()
    )
    return "".join(blocks)


def _page_can_make_message(run: RunState) -> bool:
    """Whether `eab/board/static/messages.js` knows all that this run has."""
    started, kv = run.started, run.last_kv
    only_rows = started.config.cache == "tree" and not started.model.own_memory
    on_server = kv is not None and kv.block_size > 0
    is_plain = started.can_be_recomputed and not started.config.policy.startswith(OWN)
    read_later = any(isinstance(event, TextScored) for event in run.events)
    return is_plain and only_rows and not on_server and not read_later


def _texts(run: RunState) -> dict[str, Any]:
    """A table of all texts, heaviest first."""
    kept = run.started.kept_text
    return {
        "sentence": weight_sentence(run),
        "columns": ["weight", "log probability (nats)", "end", "text"],
        "rows": [
            [
                f"{sample.weight:.1%}",
                nats(sample.log_prob),
                sample.finish_reason,
                token_text.visible_join([kept, sample.text]),
            ]
            for sample in run.samples
        ],
    }


def policy_hash(text: str) -> str:
    """Names a script or style in a content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
