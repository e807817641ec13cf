"""Compare: two runs as one tree, or a run beside independent sampling with the same budget."""

from collections.abc import Callable

import streamlit as st

from app.server import bundled_runs, model_cache
from app.state import diff, messages, polling, status
from app.state.diff import INDEPENDENT, Chosen
from app.widgets import board
from app.widgets.markdown import plain
from eab.analysis.diff import Budget, independent_config, mean_tokens_per_text, same_prompt
from eab.errors import EabError
from eab.token_text import visible

BUDGETS: dict[str, Budget] = {"Tokens through the model": "tokens", "Number of texts": "texts"}


def choose(side: str, label: str) -> Chosen | None:
    """The list of one side, and its upload if a file is wanted."""
    options = diff.sources(with_independent=side == "b")
    source = st.selectbox(label, options, format_func=diff.title_of, key=f"contrast_{side}")
    if source == diff.FILE:
        st.file_uploader(
            f"Run file for {side.upper()}",
            type=["eab"],
            key=f"contrast_upload_{side}",
            on_change=take_upload,
            args=(side,),
            max_upload_size=32,
        )
    return diff.chosen(source, side)


def take_upload(side: str) -> None:
    upload = st.session_state[f"contrast_upload_{side}"]
    messages.clear()
    if upload is None:
        return
    try:
        diff.take_file(upload.getvalue(), upload.name, side)
    except EabError as error:
        messages.notify(str(error))


def start(like: Chosen, budget: Budget) -> None:
    messages.clear()
    try:
        diff.start(like.run, budget)
    except EabError as error:
        messages.notify(str(error))


def sampling(a: Chosen, active: bool) -> None:
    """What the same budget means, and the buttons that make the samples."""
    named = st.segmented_control(
        "Same budget: the same",
        list(BUDGETS),
        default=next(iter(BUDGETS)),
        key="contrast_budget",
        required=True,
    )
    budget = BUDGETS[named or next(iter(BUDGETS))]
    count = independent_config(a.run, budget).max_paths
    prompt, tokens = len(a.run.started.prompt_tokens), a.run.tokens_through_model()
    why = {
        "tokens": f"A sent {tokens:,} tokens through the model, {prompt:,} of them the prompt. A text takes "
        f"{mean_tokens_per_text(a.run):.1f} on average (by A's weights), so they pay for {count} independent texts.",
        "texts": f"A has {count} texts; independent sampling makes as many.",
    }[budget]
    st.caption(
        f"{why} The prompt goes through once, and the texts share its rows: the best case for independent samples."
    )
    missing = model_cache.missing(a.run.started.model.name)
    left, right, _ = st.columns([2, 2, 4])
    left.button(
        f"Sample {count} texts",
        on_click=start,
        args=(a, budget),
        type="primary",
        icon=":material/play_arrow:",
        key="contrast_run",
        disabled=bool(missing),
        help=missing or None,
        width="stretch",
    )
    right.button(
        "Stop sampling",
        on_click=diff.stop,
        disabled=not active,
        key="contrast_stop",
        width="stretch",
    )


def picture(a: Chosen, b: Chosen) -> None:
    """One tree of both, and the table of what they took."""
    from eab.board.diff import diff_message
    from eab.figures.diff import NOTE, diff_rows, diff_table, takeaway_sentence
    from eab.figures.tables import text_table

    st.text(takeaway_sentence(a.run, b.run))
    if same_prompt(a.run, b.run):
        board.mount(diff_message(a.run, b.run, f"{a.key} {b.key}"), key="contrast")
    rows = diff_rows(a.run, b.run)
    st.table(text_table([tuple(row) for row in rows], ["", "A", "B", "B − A"]))
    st.caption(NOTE)
    take_home(lambda: diff_table(a.run, b.run).to_csv(index=False))


def take_home(make: Callable[[], str]) -> None:
    st.download_button(
        "CostModel (CSV)", make, "compared.csv", key="download-compared.csv", on_click="ignore"
    )


examples = {recording.file: recording for recording in bundled_runs.recordings()}
for side, default in (("a", examples["ball.eab"]), ("b", examples["original.eab"])):
    st.session_state.setdefault(f"contrast_{side}", diff.named_in_url(side, default))
choices = {side: st.session_state[f"contrast_{side}"] for side in ("a", "b")}
diff.note_in_url(choices)
live, going = diff.live_run(), diff.going(choices.values())

st.subheader("Where do two runs part?")
left, right = st.columns(2)
with left:
    a = choose("a", "A (solid line)")
with right:
    b = choose("b", "B (dashed line)")
for problem in messages.problems(live, live.state.ended if live is not None else None):
    st.error(plain(problem))
if a is not None and choices["b"] == INDEPENDENT:
    sampling(a, going is not None and going is live)
polling.watch(lambda: diff.going(choices.values()) or live, status.run_progress, going is not None)
if a is None or b is None:
    st.info("Choose two runs that are complete, or sample B.", icon=":material/info:")
else:
    st.caption(
        f"A: {plain(a.title)}. B: {plain(b.title)}. Prompt of A: “{plain(visible(a.run.started.prompt)[:120])}”"
    )
    picture(a, b)
polling.draw_fragments()
