"""A run on the page. The board is a Streamlit component, registered once, with one message feed per
browser tab. Below it, once the run no longer changes, are its results: texts, charts, tables,
downloads. Each tab of them imports the libraries it needs (pandas, plotly, networkx) only when it
is opened, so that the board does not wait for them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
import streamlit as st

from app.server import http, links
from app.server.links import Link
from app.state import session, tab
from app.state.tab import OpenRun
from app.widgets.elements import File, csv_file, downloads, draw_chart, plain
from eab import token_text
from eab.board.messages import Feed
from eab.config import AllocationStep
from eab.errors import ConfigError
from eab.figures.captions import (
    answers_sentence,
    cost_sentence,
    file_stem,
    has_bounds,
)
from eab.figures.uncertainty import forks_sentence, nats, uncertainty_sentence
from eab.run import RunState, record
from eab.share.exports import as_python, to_graphml

_FILES: Final = http.component()
_mount: Final[Callable[..., object]] = st.components.v2.component(
    "eab_board", js=_FILES["js"], css=_FILES.get("css")
)

_KEY: Final = "board"


@dataclass(frozen=True)
class Offers:
    """What the user can ask of the page on the board; None or empty: not offered."""

    # called with the run's key, a path's id, the index of a token in it, and the candidate to use
    # instead of the token; -1 keeps the token
    grow: Callable[[str, int, int, int], None] | None = None
    # called with the run's key to continue all texts that were cut, by `more_tokens`
    go_on: Callable[[str], None] | None = None
    more_tokens: int = 0
    # called with the run's key, a threshold in nats and a growth step (None: as recorded), after
    # the threshold line was dragged or another growth step chosen
    what_if: Callable[[str, float | None, AllocationStep | None], None] | None = None
    # called with the run's key and the threshold in nats at which to run the model
    run_at: Callable[[str, float], None] | None = None
    # called with the run's key and the rules that label its texts from now on
    label: Callable[[str, list[dict[str, Any]]], None] | None = None
    # called with the run's key, and the share to which it is explored, a text to read, or whether
    # to make it with more seeds
    extend: Callable[[str, float, str, bool], None] | None = None
    repeat: bool = False  # whether it can be made with more seeds
    link: Link | None = None  # a link to the run, without the cursor
    # switches between a grown run in the tree of its source and the grown run alone
    graft: Callable[[], None] | None = None
    grafted: bool = False  # whether the tree of the source is shown
    # whether the tour starts by itself on the first visit; None if there is no tour
    tour: bool | None = None

    def as_message(self) -> dict[str, Any]:
        """JSON values; see Offers in eab/board/static/types.d.ts."""
        link = self.link
        return {
            "grow": self.grow is not None,
            "go_on": self.more_tokens,
            "what_if": self.what_if is not None,
            "run_at": self.run_at is not None,
            "tour": self.tour,
            "label": self.label is not None,
            "extend": self.extend is not None,
            "repeat": self.repeat,
            "graft": self.grafted if self.graft is not None else None,
            "link": None
            if link is None
            else {"query": links.to_query(link), "words": links.what_it_opens(link)},
        }


def message(
    run: RunState | None,
    key: str,
    mode: Literal["live", "replay"],
    autoplay: bool,
    cursor: int | None = None,
) -> dict[str, Any]:
    """The next message for this tab's board; see `eab.board.messages.Feed.message`."""
    return _feed().message(run, key, mode, autoplay, cursor)


NOTHING: Final = Offers()
# What the browser sends with each request, in the order of the arguments of the offer
_ASKED: Final[dict[str, tuple[str, ...]]] = {
    "grow": ("run", "path", "token", "candidate"),
    "go_on": ("run",),
    "what_if": ("run", "threshold", "r"),
    "run_at": ("run", "threshold"),
    "label": ("run", "rules"),
    "extend": ("run", "until", "text", "repeat"),
    "graft": (),
}


def mount(message: dict[str, Any], offers: Offers = NOTHING, key: str = _KEY) -> None:
    """Mount a board with this message on the page."""

    def called(name: str) -> Callable[[], None]:
        """What to do when the browser asks for this."""

        def on_change() -> None:
            call, asked = getattr(offers, name), st.session_state[key][name]
            if call is not None:
                call(*(asked[field] for field in _ASKED[name]))

        return on_change

    _mount(
        key=key,
        # As bytes, because Streamlit would encode a value twice, and more slowly.
        data=msgspec.json.encode(message | {"offers": offers.as_message()}),
        on_missed_change=lambda: _feed().resend(st.session_state[key]["missed"]["since"]),
        **{f"on_{name}_change": called(name) for name in _ASKED},
    )


def _feed() -> Feed:
    feed: Feed = st.session_state.setdefault("board_feed", Feed())
    return feed


if TYPE_CHECKING:
    from pandas import DataFrame

    from eab.analysis.answer_rules import Part, PartName
    from eab.analysis.answers import Answers

_MOST_LABELS: Final = 6  # as on the board
_AS_TEXT: Final = "In a spreadsheet, import it as text."
_SAME_ANSWER: Final = {"exact": "Equal", "spelling": "Similar spelling", "content": "Same content"}
_SAME_ANSWER_HELP: Final = (
    "Equal: only case, spaces, closing punctuation, quotes and articles may differ. Similar "
    "spelling: also accents, and one letter in long words. Same content: words of the "
    "prompt may be missing, and numbers may be written as words."
)
_ENDED_BY: Final = {"stop": "the model", "length": "length limit", "unfinished": "not ended"}
_Helped: TypeAlias = tuple[File, str]  # a file and its help text


def show_results(opened: OpenRun, run: RunState) -> None:
    """Draw all results of a run, in tabs; only the open tab is computed and sent."""
    panels = {
        "Texts": _texts,
        "Answers": _answers,
        "Tokens": _tokens,
        "Performance": _performance,
        "Export": _export,
    }
    tabs = st.tabs(list(panels), on_change="rerun", key="results")
    for page, panel in zip(tabs, panels.values(), strict=True):
        if page.open:
            with page:
                panel(opened, run)


def _texts(_: OpenRun, run: RunState) -> None:
    from eab.figures.tables import readable, samples_table

    table = samples_table(run)
    for name in ("log_prob", "mean_entropy"):
        table[name] = table[name].map(nats)
    kept = run.started.kept_text
    table["text"] = [plain(token_text.visible_join([kept, text])) for text in table["text"]]
    if "reward" in table:
        rewards = ["" if sample.reward is None else str(sample.reward) for sample in run.samples]
        table["reward"] = [plain(token_text.visible(reward)) for reward in rewards]
    table["weight"] = [f"{weight:.1%}" for weight in table["weight"]]
    strings = {"stop": "the model or a stop string"} if run.started.config.stop else {}
    table["end"] = table["end"].map(_ENDED_BY | strings)
    table["path"] = [str(path) for path in table["path"].astype(object).fillna("–")]
    st.table(readable(table).set_index("path"))


def _answers(opened: OpenRun, run: RunState) -> None:
    from eab.analysis.answer_rules import RULES
    from eab.analysis.answers import group_answers, marks_of_answers
    from eab.figures.answers import DRAWN, answers_figure
    from eab.figures.tables import answers_table

    left, right = st.columns(2)
    with left:
        part = _answer_part()
    rule = right.segmented_control(
        "The same answer",
        list(_SAME_ANSWER),
        default="exact",
        format_func=_SAME_ANSWER.__getitem__,
        key="same_answer",
        required=True,
        help=_SAME_ANSWER_HELP,
    )
    try:
        answers = group_answers(run, part, RULES[rule or "exact"])
    except ConfigError as error:  # from the visitor's own pattern
        st.error(plain(str(error)))
        return
    sentence = answers_sentence(answers)
    if not answers.ranked:
        st.text(sentence)
        return
    stem = file_stem(run.started)
    if has_bounds(answers):
        draw_chart("", sentence, answers_figure(answers), f"{stem}-answers", opened.key)
        most = f"The chart shows the {DRAWN} most probable answers. "
        st.caption(
            f"{most if len(answers.ranked) > DRAWN else ''}The bar is certain to contain the "
            "true probability of an answer. The estimate is computed from the weights; a large "
            "one can stand for answers that were not seen, so answers are in the order of what is "
            "certain. Texts count as one answer if they differ only in case, spaces, closing "
            "punctuation, quotes and articles."
        )
    else:
        st.text(sentence)
    table = answers_table(answers)
    _data(table.assign(answer=[token_text.visible(answer) for answer in table["answer"]]))
    downloads([csv_file("Answers", f"{stem}-answers.csv", answers_table, answers)])
    if tab.can_label():
        marks = [mark._asdict() for mark in marks_of_answers(run, answers, _MOST_LABELS)]
        st.button(
            "Label the tree with these answers",
            key="label_answers",
            on_click=session.errors_as_message()(tab.label),
            args=(opened.key, marks),
            help=f"The {_MOST_LABELS} most likely answers become labels, which replace those of "
            "the tree: each text gets the colour of its answer, from the token on that decides it.",
        )
    _uncertainty(run, answers)


def _answer_part() -> "Part":
    from eab.analysis.answer_rules import AFTER_THINKING, PATTERN, SENTENCE, TEXT, PatternPart

    parts: dict[str, PartName] = {
        "First sentence": SENTENCE,
        "Whole text": TEXT,
        "After thinking": AFTER_THINKING,
    }
    chosen = st.segmented_control(
        "An answer is",
        [*parts, "Pattern"],
        default="First sentence",
        key="answer_part",
        required=True,
        help=(
            "After thinking: the text after the last end of thinking, such as </think>, or the "
            "whole text if there is none. A thought that is not closed has no answer yet. "
            "Pattern: the match of a regular expression's group."
        ),
    )
    if chosen != "Pattern":
        return parts[chosen or "First sentence"]
    pattern = st.text_input(
        "Regular expression with one group", r"answer is (\w+)", key="answer_pattern"
    )
    return PatternPart(f"{PATTERN}{pattern}")


def _uncertainty(run: RunState, answers: "Answers") -> None:
    from eab.analysis.uncertainty import attribute_to_forks, uncertainty
    from eab.figures.tables import forks_table, uncertainty_table

    st.subheader("Uncertainty and the forks that cause it")
    stem = file_stem(run.started)
    scores, forks = uncertainty(run, answers), attribute_to_forks(run, answers)
    st.text(f"{uncertainty_sentence(scores)} {forks_sentence(run, forks)}")
    table, shares = uncertainty_table(scores), forks_table(run, forks)
    if forks and run.started.config.policy != "independent":
        _data(shares)
    with st.expander("All estimators"):
        _data(table.assign(nats=table["nats"].map(nats)))
    downloads(
        [
            csv_file("Forks", f"{stem}-forks.csv", forks_table, run, forks),
            csv_file("Uncertainty", f"{stem}-uncertainty.csv", uncertainty_table, scores),
        ]
    )


def _tokens(_: OpenRun, run: RunState) -> None:
    from eab.figures.tables import tokens_table

    st.text(
        "Every generated token of the tree, with its probability and the entropy (nats) of the "
        "distribution from which it was drawn."
    )
    _data(tokens_table(run))


def _performance(_: OpenRun, run: RunState) -> None:
    from eab.figures.tables import steps_table

    st.text(cost_sentence(run))
    _data(steps_table(run))


def _data(table: "DataFrame") -> None:
    """Draw a table with readable headings and a format for each unit."""
    from eab.figures.tables import readable

    table = readable(table)
    formats = {name: _format(name) for name in table.columns if table[name].dtype.kind == "f"}
    st.dataframe(
        table,
        hide_index=True,
        column_config={
            name: st.column_config.NumberColumn(format=pattern) for name, pattern in formats.items()
        },
    )


def _format(heading: str) -> str:
    """How Streamlit formats the numbers of a column of floats."""
    if "nats" in heading:
        return "%.2f"
    if "(KiB)" in heading:
        return "localized"  # with commas
    return "%.1f" if "(ms)" in heading else "percent"


def _export(opened: OpenRun, run: RunState) -> None:
    columns = st.columns(3) * 3
    stem = file_stem(run.started)
    for column, ((label, name, make), use) in zip(columns, _files(opened, run), strict=True):
        column.download_button(
            label,
            make,
            f"{stem}{name}",
            key=f"download-{name}",
            on_click="ignore",
            help=use,
            width="stretch",
        )
    st.caption(
        "The buttons on the board download its charts as SVG and PNG. The same run in Python:"
    )
    st.code(as_python(run.started), language="python")


def _files(opened: OpenRun, run: RunState) -> list[_Helped]:
    from eab.figures.tables import samples_table, steps_table, tokens_table
    from eab.share.exports import to_html

    return [
        (
            ("Run file", ".eab", lambda: record.dumps(opened.details.events)),
            "Opens here and with `eab replay`.",
        ),
        (
            ("Replay (HTML)", ".html", lambda: to_html(run)),
            "The board as an HTML page that works without network and Python.",
        ),
        (
            (
                "Replay with the story model, +10 MB (HTML)",
                "-live.html",
                lambda: to_html(run, True),
            ),
            "The same page, on which the story model also continues other prompts.",
        ),
        (("Tree (GraphML)", ".graphml", lambda: to_graphml(run)), "For Gephi, yEd, networkx."),
        (csv_file("Texts", "-texts.csv", samples_table, run), f"One row per leaf. {_AS_TEXT}"),
        *_table_files("Tokens", tokens_table, run, "One row per token"),
        *_table_files("Steps", steps_table, run, "One row per decode step"),
    ]


def _table_files(
    name: str, table: "Callable[[RunState], DataFrame]", run: RunState, rows: str
) -> list[_Helped]:
    file = name.lower()
    parquet: File = (
        f"{name} (Parquet)",
        f"-{file}.parquet",
        lambda: table(run).to_parquet(index=False),
    )
    return [
        (csv_file(name, f"-{file}.csv", table, run), f"{rows}. {_AS_TEXT}"),
        (parquet, f"{rows}, with column types."),
    ]
