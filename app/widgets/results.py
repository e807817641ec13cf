"""Below the picture, once a run no longer changes: its texts, where the mass went, the steps, and
downloads.

Each tab imports what it draws with (pandas, plotly, networkx) when it is opened: the first picture
should not wait.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from app.server import links
from app.server.links import MAX_PROMPT, Link
from app.state import tab
from app.state.tab import Shown
from app.widgets import board
from app.widgets.charts import downloads, draw
from app.widgets.markdown import plain
from eab import record, token_text
from eab.figures.captions import answers_sentence, cost_sentence, weight_sentence
from eab.run import Run
from eab.share.python_code import as_python

if TYPE_CHECKING:
    from pandas import DataFrame


def show(shown: Shown, run: Run) -> None:
    """All results of one run, in tabs; only the open one is computed and sent."""
    st.fragment(_link)(shown)
    panels = {
        "Texts": _texts,
        "Answers": _answers,
        "Weights": _mass,
        "Tokens": _tokens,
        "Steps and bytes": _steps,
        "Take it home": _take_home,
    }
    tabs = st.tabs(list(panels), on_change="rerun", key="results")
    for page, panel in zip(tabs, panels.values(), strict=True):
        if page.open:
            with page:
                panel(shown, run)


def _link(shown: Shown) -> None:
    """A link to the run and to the step at which the cursor rests; made when it is asked for."""
    popover = st.popover("Copy link", icon=":material/link:", on_change="rerun", key="copy_link")
    if not popover.open:
        return
    link = tab.link_to(shown, board.cursor(shown.key))
    with popover:
        st.code(f"{st.context.url or ''}?{links.to_query(link)}", language=None, wrap_lines=True)
        st.caption(_what_a_link_holds(link))


def _what_a_link_holds(link: Link) -> str:
    cursor = "" if link.cursor is None else f" It opens at step {link.cursor}."
    if len(link.prompt or "") > MAX_PROMPT:
        return f"The prompt is longer than {MAX_PROMPT:,} characters, too long for a link: keep the run file.{cursor}"
    if link.run:
        return f"Opens this run while the server remembers it; later its settings, for Run to make it again.{cursor}"
    if link.saved or link.example:
        return f"Opens this run with its settings.{cursor}"
    return f"Opens the settings of this run, for Run to make it again; the file itself is not in a link.{cursor}"


def _texts(shown: Shown, run: Run) -> None:
    from eab.figures.tables import samples_table

    st.text(weight_sentence(run))
    table = samples_table(run)
    table["text"] = [plain(token_text.visible(text)) for text in table["text"]]
    table["weight"] = [f"{weight:.1%}" for weight in table["weight"]]
    st.table(table.set_index("path").round({"log_prob": 2, "mean_entropy": 2}))


def _answers(shown: Shown, run: Run) -> None:
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
    draw("", sentence, answers_figure(answers), "answers", shown.key)
    st.caption(
        f"Drawn: at most the {DRAWN} heaviest answers. The probability of an answer lies within its bar for certain; "
        "the estimate comes from the weights, and chance may carry it out of the bar. Texts are one answer if they "
        "differ in case, spaces, punctuation and articles only."
    )
    table = answers_table(answers)
    percent = st.column_config.NumberColumn(format="percent")
    st.dataframe(
        table.assign(answer=[token_text.visible(answer) for answer in table["answer"]]),
        hide_index=True,
        column_config=dict.fromkeys(("weight", "at_least", "at_most"), percent),
    )
    downloads([("Answers (CSV)", "answers.csv", lambda: table.to_csv(index=False))])


def _mass(shown: Shown, run: Run) -> None:
    from eab.figures.mass import mass_figure

    draw("", weight_sentence(run), mass_figure(run), "mass", shown.key)


def _tokens(shown: Shown, run: Run) -> None:
    from eab.figures.tables import tokens_table

    st.text(
        "Every generated token of the tree: probability, and the entropy (nats) of what it was drawn from."
    )
    st.dataframe(tokens_table(run), hide_index=True)


def _steps(shown: Shown, run: Run) -> None:
    from eab.figures.tables import steps_table

    st.text(cost_sentence(run))
    st.dataframe(steps_table(run), hide_index=True)


def _take_home(shown: Shown, run: Run) -> None:
    from eab.figures.tables import samples_table, steps_table, tokens_table
    from eab.share.graphml import to_graphml
    from eab.share.html_page import to_html

    rows = {
        "Tokens": ("one line per token", tokens_table),
        "Steps": ("one line per decode step", steps_table),
    }
    files: list[tuple[str, str, Callable[[], str | bytes], str]] = [
        (
            "Run file",
            "run.eab",
            lambda: record.dumps(shown.events),
            "opens here, in `eab replay`, anywhere",
        ),
        (
            "Replay (HTML)",
            "run.html",
            lambda: to_html(run),
            "the board as one page: no network, no Python",
        ),
        ("Tree (GraphML)", "tree.graphml", lambda: to_graphml(run), "for Gephi, yEd, networkx"),
        (
            "Texts (CSV)",
            "texts.csv",
            lambda: samples_table(run).to_csv(index=False),
            "one line per leaf; import as text",
        ),
    ]
    for name, (what, table) in rows.items():
        file = name.lower()
        files.append(
            (
                f"{name} (CSV)",
                f"{file}.csv",
                partial(_as_csv, table, run),
                f"{what}; import as text",
            )
        )
        files.append(
            (
                f"{name} (Parquet)",
                f"{file}.parquet",
                partial(_as_parquet, table, run),
                f"{what}, with types",
            )
        )
    columns = st.columns(4) * 2
    for column, (label, name, make, use) in zip(columns, files, strict=True):
        column.download_button(
            label, make, name, key=f"download-{name}", on_click="ignore", help=use, width="stretch"
        )
    st.caption(
        "The pictures above download as SVG and PNG from their own buttons. The same run in Python:"
    )
    st.code(as_python(run.started), language="python")


def _as_csv(table: "Callable[[Run], DataFrame]", run: Run) -> str:
    return table(run).to_csv(index=False)


def _as_parquet(table: "Callable[[Run], DataFrame]", run: Run) -> bytes:
    return table(run).to_parquet(index=False)
