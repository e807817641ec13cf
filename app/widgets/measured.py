"""What every laboratory's page shows: the answer, its chart, a table, and downloads; and how KV
memory is allocated: slabs, blocks and tree rows for the same runs, with their waste.
"""

from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from app.state.slot import Entry
from app.widgets import glossary
from app.widgets.charts import File, csv_file, downloads, draw
from eab.analysis.kv_allocation import kv_allocation
from eab.caches.blocks import BLOCK_SIZE
from eab.formatting import human_bytes
from eab.labs.measurement import Lab, Report, dumps, rows_table
from eab.run import RunState


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
    from eab.figures import kv_allocation as figures

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
        figures.CAPTION,
        figures.allocation_figure(allocation),
        "kv-allocation",
        f"{key}-{size}",
        white,
    )
    st.table(figures.allocation_table(allocation))
    table = figures.allocation_steps_table
    downloads([csv_file("Allocation", "kv-allocation.csv", table, allocation)])
