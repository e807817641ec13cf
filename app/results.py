"""Below the picture, once a run no longer changes: its texts, where the mass went, the steps, and downloads.

Each tab imports what it draws with (pandas, plotly, networkx) when it is opened: the first picture should not wait.
"""

from collections.abc import Callable
from dataclasses import fields

import streamlit as st

from app.session import Shown
from app.words import plain
from eab import record, token_text
from eab.config import BranchingConfig
from eab.events import RunStarted
from eab.figures.sentences import answers_sentence, cost_sentence, weight_sentence


def show(shown: Shown) -> None:
    """All results of one run, in tabs; only the open one is computed and sent."""
    panels = {
        "Texts": _texts,
        "Answers": _answers,
        "Weights": _mass,
        "Tokens": _tokens,
        "Steps and bytes": _steps,
        "Take it home": _take_home,
    }
    tabs = st.tabs(list(panels), on_change="rerun", key="results")
    for tab, panel in zip(tabs, panels.values(), strict=True):
        if tab.open:
            with tab:
                panel(shown)


def _texts(shown: Shown) -> None:
    from eab.figures.tables import samples_table

    run = shown.state
    st.text(weight_sentence(run))
    table = samples_table(run)
    table["text"] = [plain(token_text.visible(text)) for text in table["text"]]
    table["weight"] = [f"{weight:.1%}" for weight in table["weight"]]
    st.table(table.set_index("path").round({"log_prob": 2, "mean_entropy": 2}))


def _answers(shown: Shown) -> None:
    from eab.answers import group_answers
    from eab.figures.answers import DRAWN, answers_figure
    from eab.figures.tables import answers_table

    parts = {"First sentence": "sentence", "Whole text": "text"}
    chosen = st.segmented_control(
        "An answer is", list(parts), default="First sentence", key="answer_part", required=True
    )
    answers = group_answers(shown.state, parts[chosen or "First sentence"])
    sentence = answers_sentence(answers, shown.state.started.config.policy if shown.state.started else "")
    st.text(sentence)
    if not answers.ranked:
        return
    st.plotly_chart(answers_figure(answers), key=f"answers-{shown.key}", alt=sentence)
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
    st.download_button(
        "Answers (CSV)", lambda: table.to_csv(index=False), "answers.csv", key="download-answers.csv", on_click="ignore"
    )


def _mass(shown: Shown) -> None:
    from eab.figures.mass import mass_figure

    sentence = weight_sentence(shown.state)
    st.text(sentence)
    st.plotly_chart(mass_figure(shown.state), key=f"mass-{shown.key}", alt=sentence)


def _tokens(shown: Shown) -> None:
    from eab.figures.tables import tokens_table

    st.text("Every generated token of the tree: probability, and the entropy (nats) of what it was drawn from.")
    st.dataframe(tokens_table(shown.state), hide_index=True)


def _steps(shown: Shown) -> None:
    from eab.figures.tables import steps_table

    st.text(cost_sentence(shown.state))
    st.dataframe(steps_table(shown.state), hide_index=True)


def _take_home(shown: Shown) -> None:
    from eab.figures.graph import to_graphml
    from eab.figures.tables import samples_table, tokens_table
    from eab.offline import to_html

    run = shown.state
    assert run.started is not None
    columns = st.columns(5)
    files: list[tuple[str, str, Callable[[], str | bytes], str]] = [
        ("Run file", "run.eab", lambda: record.dumps(shown.events), "opens here, in `eab replay`, anywhere"),
        ("Replay (HTML)", "run.html", lambda: to_html(run), "the board as one page: no network, no Python"),
        (
            "Texts (CSV)",
            "texts.csv",
            lambda: samples_table(run).to_csv(index=False),
            "one line per leaf; import as text",
        ),
        (
            "Tokens (CSV)",
            "tokens.csv",
            lambda: tokens_table(run).to_csv(index=False),
            "one line per token; import as text",
        ),
        ("Tree (GraphML)", "tree.graphml", lambda: to_graphml(run), "for Gephi, yEd, networkx"),
    ]
    for column, (label, name, make, use) in zip(columns, files, strict=True):
        column.download_button(label, make, name, key=f"download-{name}", on_click="ignore", help=use, width="stretch")
    st.caption("The pictures above download as SVG and PNG from their own buttons. The same run in Python:")
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
    taken = started.prompt_tokens[len(started.prompt_tokens) - started.continued :]
    continued = f", continued={taken!r}" if taken else ""
    return (
        "from eab import EntropyAdaptiveBranching\n\n"
        f"eab = EntropyAdaptiveBranching({started.model.name!r}{arguments})\n"
        f"for sample in eab.generate({started.prompt!r}{continued}):\n"
        '    print(f"{sample.weight:.3f} {sample.text!r}")\n'
    )
