"""Below the picture, once a run no longer changes: its texts, where the mass went, the steps, and downloads."""

from collections.abc import Callable
from dataclasses import fields

import streamlit as st

from app.session import Shown
from eab import record
from eab.config import BranchingConfig
from eab.events import RunStarted
from eab.figures.graph import to_graphml
from eab.figures.mass import mass_figure, mass_sentence
from eab.figures.tables import samples_table, steps_table, tokens_table
from eab.report import cost_sentence


def show(shown: Shown) -> None:
    """All results of one run, in tabs."""
    texts, mass, tokens, steps, take_home = st.tabs(
        ["Texts", "Probability mass", "Tokens", "Steps and bytes", "Take it home"]
    )
    run = shown.state
    with texts:
        st.text(mass_sentence(run))
        weight = st.column_config.ProgressColumn("weight", format="percent", min_value=0, max_value=1)
        st.dataframe(samples_table(run), hide_index=True, column_config={"weight": weight}, alt=mass_sentence(run))
    with mass:
        st.text(mass_sentence(run))
        st.plotly_chart(mass_figure(run), key=f"mass-{shown.key}", alt=mass_sentence(run))
    with tokens:
        st.text("Every generated token of the tree: probability, and the entropy (nats) of what it was drawn from.")
        st.dataframe(tokens_table(run), hide_index=True)
    with steps:
        st.text(cost_sentence(run))
        st.dataframe(steps_table(run), hide_index=True)
    with take_home:
        _downloads(shown)


def _downloads(shown: Shown) -> None:
    run = shown.state
    assert run.started is not None
    columns = st.columns(4)
    files: list[tuple[str, str, Callable[[], str | bytes], str]] = [
        ("Run file", "run.eab", lambda: record.dumps(shown.events), "opens here, in `eab replay`, anywhere"),
        ("Texts (CSV)", "texts.csv", lambda: samples_table(run).to_csv(index=False), "one line per leaf"),
        ("Tokens (CSV)", "tokens.csv", lambda: tokens_table(run).to_csv(index=False), "one line per token"),
        ("Tree (GraphML)", "tree.graphml", lambda: to_graphml(run), "for Gephi, yEd, networkx"),
    ]
    for column, (label, name, make, use) in zip(columns, files, strict=True):
        column.download_button(label, make, name, key=f"download-{name}", on_click="ignore", help=use, width="stretch")
    st.caption("The pictures above download as SVG from their own toolbar. The same run in Python:")
    st.code(as_python(run.started), language="python")


def as_python(started: RunStarted) -> str:
    """The lines that repeat this run, with the settings that differ from the defaults."""
    default = BranchingConfig()
    settings = {
        field.name: getattr(started.config, field.name)
        for field in fields(BranchingConfig)
        if getattr(started.config, field.name) != getattr(default, field.name)
    }
    arguments = "".join(f", {name}={value!r}" for name, value in settings.items())
    return (
        "from eab import EntropyAdaptiveBranching\n\n"
        f"eab = EntropyAdaptiveBranching({started.model.name!r}{arguments})\n"
        f"for sample in eab.generate({started.prompt!r}):\n"
        '    print(f"{sample.weight:.3f} {sample.text!r}")\n'
    )
