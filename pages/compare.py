"""Compare: two runs as one tree, or a run and independent samples with the same budget."""

from dataclasses import replace
from functools import partial

import streamlit as st

from app.server import model_cache
from app.state import compare, session
from app.state.compare import INDEPENDENT, SAMPLES, Side
from app.widgets import board
from app.widgets.elements import (
    csv_file,
    downloads,
    draw_chart,
    metrics,
    page_controls,
    plain,
    quoted,
    show_problems,
    start_button,
    stop_button,
)
from app.widgets.open_menu import upload
from eab.analysis.run_comparison import (
    Budget,
    independent_config,
    mean_tokens_per_text,
    same_prompt,
)
from eab.config import MAX_LABEL
from eab.errors import ConfigError
from eab.formatting import counted
from eab.labs.tuning.grid import WITHOUT_EFFECT
from eab.lessons import bundled_runs

# What to do, by whether only the samples are missing.
MISSING = {
    False: "Choose two runs that have ended.",
    True: "There are no independent samples of A's prompt yet. Press Sample to make them.",
}
BUDGETS: dict[str, Budget] = {"Tokens through the model": "tokens", "Number of texts": "texts"}


def choose(side: str, label: str, like: Side | None = None) -> Side | None:
    """Draw the choice of one side, and an upload if a run file is chosen; return the side."""
    options = compare.sources(with_independent=side == "b")
    source = st.selectbox(
        label,
        options,
        format_func=lambda source: compare.title_of(source, side),
        key=f"diff_{side}",
    )
    if source == compare.FILE:
        read_file = partial(compare.read_file, side=side)
        upload(f"Run file for {side.upper()}", "eab", f"diff_upload_{side}", read_file)
    return compare.side_of(source, side, like)


@session.errors_as_message()
def start(like: Side, budget: Budget) -> None:
    compare.start_sampling(like.run, budget)


def sampling(a: Side, active: bool) -> None:
    """Draw the choice of how the samples match A, and the buttons that start and stop them."""
    choice, left, right = st.columns([2, 1, 1], vertical_alignment="bottom")
    with choice:
        st.segmented_control(
            "Match by", list(BUDGETS), default=next(iter(BUDGETS)), key="diff_budget", required=True
        )
    budget = chosen_budget()
    count = independent_config(a.run, budget).max_paths
    missing = model_cache.missing(a.run.started.model.full_name)
    with left:
        label = f"Sample {counted(count, 'text')}"
        start_button(label, "diff_run", missing, on_start=start, args=(a, budget))
    with right:
        stop_button("diff_stop", SAMPLES.stop, active, "Stop sampling")


def chosen_budget() -> Budget:
    return BUDGETS[st.session_state.diff_budget or next(iter(BUDGETS))]


def out_of_date(a: Side, b: Side) -> str:
    """A sentence if B was sampled with another budget or other settings of A; else empty."""
    if choices["b"] != INDEPENDENT:
        return ""
    wanted, sampled = independent_config(a.run, chosen_budget()), b.run.started.config
    # A server may allow less KV memory; neither this nor a setting of forks changes a sample.
    same = (*WITHOUT_EFFECT["independent"], "kv_limit_mib")
    if replace(sampled, **{name: getattr(wanted, name) for name in same}) == wanted:
        return ""
    texts = f"{counted(sampled.max_paths, 'text')} instead of {wanted.max_paths}"
    why = texts if sampled.max_paths != wanted.max_paths else "other settings than A"
    return f"B is out of date, sample again: it has {why}."


def how_matched(a: Side) -> None:
    """Draw what the number of independent samples follows from, and what they see on average."""
    from eab.analysis.run_comparison import average_seen

    count = independent_config(a.run, chosen_budget()).max_paths
    measures = {
        "Tokens of A": f"{a.run.tokens_needed:,}",
        "Texts of A": f"{len(a.run.leaves()):,}",
        "Tokens per text": f"{mean_tokens_per_text(a.run):.1f}",
        "Independent texts": f"{count:,}",
    }
    metrics(measures, "budget")
    shared = a.run.started.model.shares_rows
    texts = (
        "the texts share its KV cache" if shared else "each text begins with a copy of its memory"
    )
    words = (
        f"The prompt of independent texts is processed once, and {texts}: the best case for them."
    )
    if (seen := average_seen(a.run, count)) is not None:
        words += f" On average over all seeds, they see {seen[0]:.1%} to {seen[1]:.1%}."
    st.caption(words)


def labels(a: Side, b: Side) -> None:
    """Draw how likely the labels of either run, and the word that was typed, are in both."""
    from eab.figures.answers import (
        common_rules,
        comparison_figure,
        comparison_sentence,
        label_pairs,
        pairs_table,
    )

    rules = common_rules(a.run, b.run, st.session_state.diff_word.strip())
    if not rules:
        return
    try:
        pairs = label_pairs(a.run, b.run, rules)
    except ConfigError as error:  # from a pattern of a run file
        st.error(plain(str(error)))
        return
    key, figure = f"{a.key} {b.key} {rules}", comparison_figure(pairs)
    draw_chart("", comparison_sentence(pairs), figure, "labels", key)
    downloads([csv_file("Labels", "labels.csv", pairs_table, pairs)])


def results(a: Side, b: Side) -> None:
    from eab.board.messages import diff_message
    from eab.figures.run_comparison import NOTE, diff_rows, diff_table, takeaway_sentence
    from eab.figures.tables import text_table

    late = out_of_date(a, b)
    if late:
        st.warning(late, icon=":material/history:")
    st.text(takeaway_sentence(a.run, b.run))
    labels(a, b)
    if same_prompt(a.run, b.run):
        board.mount(diff_message(a.run, b.run, f"{a.key} {b.key}"), key="diff")
    st.caption(
        f"A: {plain(a.title)} · B: {plain(b.title)} · Prompt of A: “{quoted(a.run.started.prompt)}”"
    )
    st.header("Results and costs of both runs")
    rows = diff_rows(a.run, b.run)
    st.table(text_table([tuple(row) for row in rows], ["Measure", "A", "B", "B compared with A"]))
    if choices["b"] == INDEPENDENT and not late:
        how_matched(a)
    st.caption(NOTE)
    label, name, make = csv_file("Costs", "compared.csv", diff_table, a.run, b.run)
    st.download_button(label, make, name, key=f"download-{name}", on_click="ignore")


examples = {recording.file: recording for recording in bundled_runs.recordings()}
defaults: dict[str, compare.Source] = {"a": examples[bundled_runs.COMPARED], "b": INDEPENDENT}
if "diff_a" not in st.session_state:
    chosen = compare.sources_in_url(defaults)
    st.session_state.update({f"diff_{side}": source for side, source in chosen.items()})
choices = {side: st.session_state[f"diff_{side}"] for side in ("a", "b")}
compare.note_in_url(choices)
samples, active = SAMPLES.current(), compare.active(choices.values())

st.title("Where do two runs diverge?")
with page_controls():
    left, right, asked = st.columns([3, 3, 2])
    with left:
        a = choose("a", "A (solid line)")
    with right:
        b = choose("b", "B (dashed line)", a)
    asked.text_input(
        "How likely is it to contain",
        key="diff_word",
        max_chars=MAX_LABEL,
        placeholder="a word, in A and in B",
        help="The probability that a text contains this, ignoring case: an estimate and certain "
        "bounds, for both runs. Labels of run files are compared, too.",
    )
    show_problems(samples)
    if a is not None and choices["b"] == INDEPENDENT:
        sampling(a, active is not None and active is samples.live)
    session.watch(lambda: compare.active(choices.values()), active is not None)
if a is None or b is None:
    st.info(MISSING[choices["b"] == INDEPENDENT and a is not None], icon=":material/info:")
else:
    results(a, b)
session.draw_fragments()
