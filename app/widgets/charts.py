"""Charts with their sentences, tables and downloads, drawn the same way on every page; what every
laboratory's page shows; how KV memory is allocated; and texts as chips with one per token.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import streamlit as st
from streamlit.elements.lib.streamlit_plotly_theme import GRAY_90

from app.state.slot import Entry
from app.widgets import glossary
from app.widgets.glossary import plain
from eab.engine.caches.blocks import BLOCK_SIZE
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

# The browser replaces this text colour by that of its theme, light or dark.


def draw(
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
    for column, (label, name, make) in zip(st.columns(len(files)), files, strict=True):
        column.download_button(
            label, make, name, key=f"download-{name}", on_click="ignore", width="stretch"
        )


FOLDER: Final = Path(__file__).parent / "static"
_mount: Final[Callable[..., object]] = st.components.v2.component(
    "eab_chips",
    css=(FOLDER / "chips.css").read_text(encoding="utf-8"),
    js=(FOLDER / "chips.js").read_text(encoding="utf-8"),
)


def chips(tokens: Sequence[dict[str, str]], key: str) -> None:
    """Draw these tokens, as `eab.labs.drafts.chips` returns them."""
    _mount(key=key, data={"chips": list(tokens)})


def answer(
    lab: Lab, shown: Entry[Report], white: bool = False, figure: Any = None, title: str = ""
) -> None:
    """Draw the answer above its chart; `figure` is for a laboratory that describes no chart."""
    from eab.labs.charts import chart_figure

    if lab.chart is not None:
        figure = chart_figure(lab.chart(shown.state))
    draw(title, lab.answer(shown.state), figure, lab.name, shown.key, white)


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
        glossary.markdown(PAGING)
    size = st.segmented_control(
        "Rows per block", BLOCK_SIZES, default=BLOCK_SIZE, key="block_size", required=True
    )
    if any(run.started.model.window_rows for run in runs):
        st.caption("Rows that sliding-window layers no longer read are counted, too.")
    if states := runs[0].started.model.state_bytes:
        each = human_bytes(states)
        st.caption(f"Only rows are counted, not the states of the paths ({each} each).")
    allocation = kv_allocation(runs, size or BLOCK_SIZE, first_steps)
    draw(
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
