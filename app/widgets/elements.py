"""What pages are made of, drawn the same way on each: texts, with technical terms underlined, each
once per page, and explained by the page; charts with their sentences, tables and downloads; what
every laboratory's page shows; how KV memory is allocated; texts as chips with one per token;
buttons and problems.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.streamlit_plotly_theme import GRAY_90

from app.state import session
from app.state.slot import Entry
from eab.assets import ASSETS
from eab.engine.caches.ledger import BLOCK_SIZE
from eab.figures.kv_schemes import (
    allocation_figure,
    allocation_sentence,
    allocation_steps_table,
    allocation_table,
    kv_allocation,
)
from eab.figures.tables import as_csv
from eab.formatting import excerpt, human_bytes
from eab.labs.measurement import Lab, LabBegan, Report, dumps, rows_table
from eab.run import RunState
from eab.run.events import RunStarted
from eab.token_text import visible

FILE: Final = ASSETS / "glossary.toml"
ANCHOR: Final = "#term-"
# Parts of the Markdown that are not changed: code, formulas, links, headings.
_KEPT: Final = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|\[[^\]]*\]\([^)]*\)|^#.*?$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Term:
    """A glossary term."""

    name: str
    text: str
    also: tuple[str, ...] = ()  # other forms of the term

    @property
    def id(self) -> str:
        """The term's id in links: lowercase letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())


@lru_cache(maxsize=1)
def terms() -> tuple[Term, ...]:
    """All glossary terms."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        Term(name, entry["text"], tuple(entry.get("also", ()))) for name, entry in entries.items()
    )


def linked(text: str, seen: set[str]) -> str:
    """Link the first occurrence of each term that is not in `seen`, and add its id to `seen`."""
    pieces, end = [], 0
    for kept in _KEPT.finditer(text):
        pieces += [_linked_words(text[end : kept.start()], seen), kept[0]]
        end = kept.end()
    return "".join([*pieces, _linked_words(text[end:], seen)])


def _linked_words(text: str, seen: set[str]) -> str:
    def link(match: "re.Match[str]") -> str:
        term = _by_form()[match[1].lower()]
        if term.id in seen:
            return match[0]
        seen.add(term.id)
        return f"[{match[0]}]({ANCHOR}{term.id})"

    return _pattern().sub(link, text)


@lru_cache(maxsize=1)
def _by_form() -> dict[str, Term]:
    return {form.lower(): term for term in terms() for form in (term.name, *term.also)}


@lru_cache(maxsize=1)
def _pattern() -> "re.Pattern[str]":
    forms = "|".join(re.escape(form) for form in sorted(_by_form(), key=len, reverse=True))
    return re.compile(rf"(?<![\w-])({forms})s?(?![\w-])", re.IGNORECASE)


FOLDER: Final = Path(__file__).parent / "static"
_SEEN: Final = "glossary_seen"  # ids of the terms on the page

_mount_terms: Final = st.components.v2.component(
    "eab_glossary",
    css=(FOLDER / "glossary.css").read_text(encoding="utf-8"),
    js=(FOLDER / "glossary.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def begin_page() -> None:
    """Forget which terms are on the page; must be the first call of every drawing."""
    st.session_state[_SEEN] = set()


def markdown(text: str) -> None:
    """Draw Markdown, with each term that is new on this page underlined."""
    st.markdown(linked(text, st.session_state.setdefault(_SEEN, set())))


def explain_terms() -> None:
    """Add the explanations of the terms to the page; must be the last call of every drawing."""
    seen: set[str] = st.session_state.setdefault(_SEEN, set())
    if seen:
        shown = [[term.id, term.name, term.text] for term in terms() if term.id in seen]
        _mount_terms(key="eab_glossary", data=shown)


_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&])")


def plain(text: str) -> str:
    """The text with every character escaped that has a meaning in Markdown, LaTeX or HTML."""
    return _MARKDOWN.sub(r"\\\1", text)


def draw_chart(
    title: str,
    sentence: str,
    figure: Any,
    name: str,
    key: str,
    white: bool = False,
    on_click: Callable[[int], None] | None = None,
) -> None:
    """Draw a chart.

    `sentence` is shown above the chart and read by screen readers. `name` is its file name. Another
    `key` makes the browser redraw it. `white` is for print (the camera then saves SVG). `on_click`
    gets the customdata of a marker.
    """
    from eab.figures.charts import for_print, in_ink

    if title:
        st.header(title)
    st.text(sentence)
    place = f"{name}-{key}-{white}"
    clicked: dict[str, Any] = (
        {"on_select": partial(_clicked, place, on_click), "selection_mode": "points"}
        if on_click is not None
        else {}
    )
    st.plotly_chart(
        for_print(figure) if white else in_ink(figure, GRAY_90),
        theme=None if white else "streamlit",
        key=place,
        alt=sentence,
        config={
            "toImageButtonOptions": {
                "format": "svg" if white else "png",
                "filename": name,
                "scale": 1 if white else 3,
            }
        },
        **clicked,
    )


def _clicked(key: str, on_click: Callable[[int], None]) -> None:
    for point in st.session_state[key].selection.points:
        data = point.get("customdata")
        number = data[0] if isinstance(data, list | tuple) and data else data
        if isinstance(number, int | float):
            on_click(int(number))
            return


def origin(began: LabBegan | RunStarted | str | None, live: bool, more: str = "") -> None:
    """Draw a caption with the origin of the results, given as text or by their first event."""
    if began is None:
        return
    if isinstance(began, str):
        where = began
    elif isinstance(began, RunStarted):
        card, prompt = began.model, f"Prompt: “{quoted(began.prompt)}”"
        where = f"{card.full_name}, {card.dtype}, on {card.device}"
        more = f"{more} {prompt}".strip()
    else:
        where = f"{began.model}, {began.dtype}, on {began.machine}"
    st.caption(f"{'Measured here' if live else 'Recorded'}: {plain(where)}. {more}".strip())


def quoted(prompt: str) -> str:
    """The start of a prompt, for a caption."""
    return plain(excerpt(visible(prompt), 90))


def white_background() -> bool:
    """Draw the switch for charts that are to be printed; return whether it is on."""
    help_text = "The camera button above each chart then saves it black on white, as SVG."
    return st.toggle("White background, for print", key="print_view", help=help_text)


def metrics(measures: Mapping[str, str], key: str) -> None:
    """Draw values under their titles, side by side; two per row on a phone."""
    with st.container(horizontal=True, key=f"metrics_{key}"):
        for title, value in measures.items():
            st.metric(title, value, width=150)


File: TypeAlias = tuple[str, str, Callable[[], str | bytes]]


def csv_file(label: str, name: str, table: Callable[..., Any], *arguments: Any) -> File:
    """A download of the table that this function returns for these arguments."""
    return f"{label} (CSV)", name, lambda: as_csv(table(*arguments))


def downloads(files: Sequence[File]) -> None:
    """Draw a row of download buttons; a file is made only when its button is clicked."""
    with st.container(horizontal=True):
        for label, name, make in files:
            st.download_button(label, make, name, key=f"download-{name}", on_click="ignore")


_mount_chips: Final[Callable[..., object]] = st.components.v2.component(
    "eab_chips",
    css=(FOLDER / "chips.css").read_text(encoding="utf-8"),
    js=(FOLDER / "chips.js").read_text(encoding="utf-8"),
)


def chips(tokens: Sequence[dict[str, str]], key: str) -> None:
    """Draw these tokens, as `eab.labs.drafts.chips` returns them."""
    _mount_chips(key=key, data={"chips": list(tokens)})


def answer(
    lab: Lab, shown: Entry[Report], white: bool = False, figure: Any = None, title: str = ""
) -> None:
    """Draw the answer above its chart; `figure` is for a laboratory that describes no chart."""
    from eab.labs.charts import chart_figure

    if lab.chart is not None:
        figure = chart_figure(lab.chart(shown.state))
    draw_chart(title, lab.answer(shown.state), figure, lab.name, shown.key, white)


def numbers(lab: Lab, shown: Entry[Report], files: Sequence[File] = ()) -> None:
    """Draw the table, and downloads of all rows."""
    from eab.figures.tables import text_table

    report = shown.state
    headings, *rows = lab.table(report) or [()]
    if rows:
        st.table(text_table(rows, headings))
        st.caption(lab.note)
    tables = [
        csv_file(name.capitalize(), f"{lab.name}-{name}.csv", rows_table, report, name, lab.units)
        for name in report.tables
    ]
    if report.began is not None:
        tables.append(("Report (JSON)", f"{lab.name}.json", lambda: dumps(report, lab.units)))
    downloads([*files, *tables])


BLOCK_SIZES: Final = (8, 16, 32, 128)
PAGING = """
An operating system gives memory to a process in *pages*, and a page table maps them.
**PagedAttention** (Kwon et al., [arXiv 2309.06180](https://arxiv.org/abs/2309.06180)) does this for
KV caches. Compare three schemes:

- **slabs**: each text reserves contiguous memory for its maximum length. In the systems before the
  paper, only 20 to 38% of the KV memory contained tokens.
- **blocks**: a text gets a new block of a few rows when its last block is full, and a block table
  maps its blocks. Texts with the same prefix share full blocks. The last block of each text is
  private and partly empty.
- **tree**: this program's cache shares single rows, and reserves spare rows for up to *r* steps.

All three get the same requests. Slabs and blocks are computed from the runs; the bytes of the tree
are those of its tensors.
"""


def kv_allocation_section(
    runs: Sequence[RunState],
    key: str,
    first_steps: Sequence[int] | None = None,
    white: bool = False,
) -> None:
    """Draw what runs of one model with rows in a tree cache reserve per scheme; see
    `kv_allocation`.
    """
    st.header("Slabs, blocks or rows")
    with st.expander("Slabs, blocks and rows explained"):
        markdown(PAGING)
    size = st.segmented_control(
        "Rows per block", BLOCK_SIZES, default=BLOCK_SIZE, key="block_size", required=True
    )
    if any(run.started.model.window_rows for run in runs):
        st.caption("Rows that sliding-window layers no longer read are counted, too.")
    if states := runs[0].started.model.state_bytes:
        each = human_bytes(states)
        st.caption(f"Only rows are counted, not the states of the paths ({each} each).")
    allocation = kv_allocation(runs, size or BLOCK_SIZE, first_steps)
    draw_chart(
        "",
        allocation_sentence(allocation),
        allocation_figure(allocation),
        "kv-allocation",
        f"{key}-{size}",
        white,
    )
    st.table(allocation_table(allocation))
    table = allocation_steps_table
    downloads([csv_file("Allocation", "kv-allocation.csv", table, allocation)])


def page_controls() -> DeltaGenerator:
    """A place for the controls above the answer of a page. A phone shows them only on request."""
    place = st.container(key="page_controls")
    place.toggle("Show the controls", key="show_controls")
    return place


def start_button(
    label: str,
    key: str,
    missing: str,
    help: str = "",
    active: bool = False,
    on_start: Callable[..., None] | None = None,
    args: tuple[Any, ...] = (),
    type: Literal["primary", "secondary"] = "primary",
) -> bool:
    """Draw Start, disabled while active or without the model; return whether it was pressed."""
    return st.button(
        label,
        on_click=on_start,
        args=args,
        type=type,
        icon=":material/play_arrow:",
        key=key,
        disabled=active or bool(missing),
        help=missing or help or None,
        width="stretch",
    )


def stop_button(
    key: str, on_stop: Callable[[], None], active: bool = True, label: str = "Stop"
) -> None:
    """Draw Stop, disabled while nothing is active."""
    st.button(label, on_click=on_stop, disabled=not active, key=key, width="stretch")


def show_problems(*shown: Entry[Any]) -> None:
    """Draw the problems of the last action and of these entries."""
    for problem in session.problems(*shown):
        st.error(plain(problem))
