"""The results below the board, once a run no longer changes: texts, charts, tables, downloads.

Each tab imports what it draws with (pandas, plotly, networkx) when it is opened, so that the board
does not wait for it.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import streamlit as st

from app.server import links
from app.server.links import MAX_PROMPT, Link
from app.state import tab
from app.state.tab import OpenRun
from app.widgets import board
from app.widgets.charts import downloads, draw
from app.widgets.markdown import plain
from eab import record, token_text
from eab.figures.captions import answers_sentence, cost_sentence, weight_sentence
from eab.run import Run
from eab.share.python_code import as_python

if TYPE_CHECKING:
    from pandas import DataFrame

_AS_TEXT: Final = "In a spreadsheet, import it as text."
_File: TypeAlias = tuple[str, str, Callable[[], str | bytes], str]


def show(opened: OpenRun, run: Run) -> None:
    """Draw all results of a run, in tabs; only the open tab is computed and sent."""
    st.fragment(_link)(opened)
    panels = {
        "Texts": _texts,
        "Answers": _answers,
        "Probability": _probability,
        "Tokens": _tokens,
        "Performance": _performance,
        "Export": _export,
    }
    tabs = st.tabs(list(panels), on_change="rerun", key="results")
    for page, panel in zip(tabs, panels.values(), strict=True):
        if page.open:
            with page:
                panel(opened, run)


def _link(opened: OpenRun) -> None:
    """A link to the run and to the cursor's step; made when the popover is opened."""
    popover = st.popover("Copy link", icon=":material/link:", on_change="rerun", key="copy_link")
    if not popover.open:
        return
    link = tab.link_to(opened, board.cursor(opened.key))
    with popover:
        st.code(f"{st.context.url or ''}?{links.to_query(link)}", language=None, wrap_lines=True)
        st.caption(_link_caption(link))


def _link_caption(link: Link) -> str:
    if len(link.prompt or "") > MAX_PROMPT:
        opens = (
            f"The prompt is longer than {MAX_PROMPT:,} characters, too long for a link. Download "
            "the run file instead."
        )
    elif link.run:
        opens = (
            "Opens this run while the server remembers it; after that, its prompt and settings: "
            "press Run to make it again."
        )
    elif link.saved or link.example:
        opens = "Opens this run with its settings."
    else:
        opens = (
            "Opens the prompt and settings of this run; press Run to make it again. The file "
            "itself is not in the link."
        )
    return opens if link.cursor is None else f"{opens} It opens at step {link.cursor}."


def _texts(_: OpenRun, run: Run) -> None:
    from eab.figures.tables import samples_table

    st.text(weight_sentence(run))
    table = samples_table(run)
    table["text"] = [plain(token_text.visible(text)) for text in table["text"]]
    table["weight"] = [f"{weight:.1%}" for weight in table["weight"]]
    st.table(table.set_index("path").round({"log_prob": 2, "mean_entropy": 2}))


def _answers(opened: OpenRun, run: Run) -> None:
    from eab.analysis.answers import group_answers
    from eab.figures.answers import DRAWN, answers_figure
    from eab.figures.tables import answers_table

    parts = {"First sentence": "sentence", "Whole text": "text"}
    chosen = st.segmented_control(
        "An answer is", list(parts), default="First sentence", key="answer_part", required=True
    )
    answers = group_answers(run, parts[chosen or "First sentence"])
    sentence = answers_sentence(answers, run.started.config.policy)
    if not answers.ranked:
        st.text(sentence)
        return
    draw("", sentence, answers_figure(answers), "answers", opened.key)
    st.caption(
        f"The chart shows at most {DRAWN} answers, the most probable ones. The bar contains the "
        "true probability of an answer for certain. The estimate is computed from the weights, and "
        "chance may put it outside the bar. Texts count as one answer if they differ only in case, "
        "spaces, punctuation and articles."
    )
    table = answers_table(answers)
    percent = st.column_config.NumberColumn(format="percent")
    st.dataframe(
        table.assign(answer=[token_text.visible(answer) for answer in table["answer"]]),
        hide_index=True,
        column_config=dict.fromkeys(("weight", "at_least", "at_most"), percent),
    )
    downloads([("Answers (CSV)", "answers.csv", lambda: table.to_csv(index=False))])


def _probability(opened: OpenRun, run: Run) -> None:
    from eab.figures.mass import mass_figure

    draw("", weight_sentence(run), mass_figure(run), "mass", opened.key)


def _tokens(_: OpenRun, run: Run) -> None:
    from eab.figures.tables import tokens_table

    st.text(
        "Every generated token of the tree, with its probability and the entropy (nats) of the "
        "distribution that it was drawn from."
    )
    st.dataframe(tokens_table(run), hide_index=True)


def _performance(_: OpenRun, run: Run) -> None:
    from eab.figures.tables import steps_table

    st.text(cost_sentence(run))
    st.dataframe(steps_table(run), hide_index=True)


def _export(opened: OpenRun, run: Run) -> None:
    columns = st.columns(4) * 2
    for column, (label, name, make, use) in zip(columns, _files(opened, run), strict=True):
        column.download_button(
            label, make, name, key=f"download-{name}", on_click="ignore", help=use, width="stretch"
        )
    st.caption(
        "The board's own buttons download its charts as SVG and PNG. The same run in Python:"
    )
    st.code(as_python(run.started), language="python")


def _files(opened: OpenRun, run: Run) -> list[_File]:
    """Label, file name, what makes the file, and what it is for."""
    from eab.figures.tables import samples_table, steps_table, tokens_table
    from eab.share.graphml import to_graphml
    from eab.share.html_page import to_html

    return [
        (
            "Run file",
            "run.eab",
            lambda: record.dumps(opened.events),
            "Opens here and with `eab replay`.",
        ),
        (
            "Replay (HTML)",
            "run.html",
            lambda: to_html(run),
            "The board as one page that needs no network and no Python.",
        ),
        ("Tree (GraphML)", "tree.graphml", lambda: to_graphml(run), "For Gephi, yEd, networkx."),
        (
            "Texts (CSV)",
            "texts.csv",
            partial(_as_csv, samples_table, run),
            f"One row per leaf. {_AS_TEXT}",
        ),
        *_table_files("Tokens", tokens_table, run, "One row per token"),
        *_table_files("Steps", steps_table, run, "One row per decode step"),
    ]


def _table_files(
    name: str, table: "Callable[[Run], DataFrame]", run: Run, rows: str
) -> list[_File]:
    file = name.lower()
    return [
        (f"{name} (CSV)", f"{file}.csv", partial(_as_csv, table, run), f"{rows}. {_AS_TEXT}"),
        (
            f"{name} (Parquet)",
            f"{file}.parquet",
            partial(_as_parquet, table, run),
            f"{rows}, with column types.",
        ),
    ]


def _as_csv(table: "Callable[[Run], DataFrame]", run: Run) -> str:
    return table(run).to_csv(index=False)


def _as_parquet(table: "Callable[[Run], DataFrame]", run: Run) -> bytes:
    return table(run).to_parquet(index=False)
