"""Speculative decoding: texts with and without draft tokens, and when these save time."""

from dataclasses import replace
from typing import Final

import streamlit as st

from app.state import session
from app.state.slot import DRAFT_LENGTHS, Entry
from app.widgets import controls, elements, model_choice
from app.widgets.elements import chips, origin, show_problems, white_background
from eab.config import BranchingConfig, DrafterName
from eab.labs import drafts
from eab.labs.drafts import DRAFTS, GAINS
from eab.labs.jobs import comparison_job
from eab.labs.measurement import Report
from eab.labs.variants import draft_length_variants, variants_sentence
from eab.lessons import bundled_runs

ONE_TEXT, WHOLE_TREE = "One text", "Whole tree"
DRAFTERS: Final[tuple[DrafterName, ...]] = ("model", "prompt-lookup", "sibling-lookup")
NEVER_FORKS: Final = 20.0  # nats
WHEN_IT_PAYS = (
    "Drafting pays where the text repeats what stands before it, as in an edit, and not where "
    "every word is new, as in an open story."
)
HOW_IT_WORKS = """
A forward pass of the model can process many tokens at once, but a decode step yields only one new
token, because the token after it is not known yet. So a cheap **drafter** proposes the next few
tokens, the *draft tokens*. One forward pass of the model verifies all of them: at each position it
computes the token that the model draws. Draft tokens are accepted up to the first one that differs.
The model's token replaces it, and later draft tokens are discarded.

- **model**: a draft model of 0.9 million parameters, distilled from the large one (4.2 million).
  Both draw with the same random numbers.
- **prompt-lookup**: the tokens that followed the same two or three tokens earlier in this text. It
  costs almost nothing.
- **sibling-lookup**: the same, but also searches the other paths of the tree.

The text is the same with and without draft tokens: a draft token is accepted only if the model
draws the same token at this position. Draft tokens are written into spare rows of the KV cache; the
rows of rejected ones are freed without copying.
"""


@session.errors_as_message()
def run() -> None:
    config = BranchingConfig.from_settings(
        controls.settings() | {"drafter": "none", "draft_length": 0}
    )
    if st.session_state.decode_varied == ONE_TEXT:
        config = replace(config, max_paths=1, entropy_threshold=NEVER_FORKS, threshold_unit="nats")
    variants = draft_length_variants(st.session_state.drafter_varied)
    asked = controls.prompt(), config, model_choice.name()
    DRAFT_LENGTHS.start(comparison_job(*asked, "drafts", variants))


def results(displayed: Entry[Report]) -> None:
    report = displayed.state
    answer = st.container()
    text(report, displayed.key)
    with st.expander("How it works"):
        elements.markdown(HOW_IT_WORKS)
    white = white_background()
    with answer:
        elements.answer(DRAFTS, displayed, white)
    st.text(variants_sentence(report))
    elements.numbers(DRAFTS, displayed)
    elements.answer(GAINS, displayed, white, title="When drafting saves time")


def side_by_side() -> None:
    """Draw a recorded answer for which drafting pays beside one for which it does not."""
    pays, does_not = bundled_runs.prompt_lookup("edit"), bundled_runs.prompt_lookup("story")
    st.text(WHEN_IT_PAYS)
    columns = zip(st.columns(2), ("A text to edit", "An open story"), (pays, does_not), strict=True)
    for column, title, compared in columns:
        with column:
            st.header(title)
            run = compared.runs["8 draft tokens"]
            origin(run.started, False, "Drafter: prompt-lookup.")
            st.text(DRAFTS.answer(compared))
            chips(drafts.chips(run, run.samples[0].lineage[-1]), f"chips-{title}")
    st.header("The drafts of a small model")


def text(report: Report, key: str) -> None:
    """Draw the text with the highest weight of one of the runs, as chips."""
    st.header("The text, token by token")
    names = [name for name, run in report.runs.items() if run.speculations]
    if not names:
        st.text(drafts.NOTHING_DRAFTED)
        return
    length = st.segmented_control(
        "Draft length", names, default=names[len(names) // 2], key=f"chips-{key}", required=True
    )
    shown = report.runs[length or names[0]]
    chips(drafts.chips(shown, shown.samples[0].lineage[-1]), f"chips-{key}-{length}")


current, displayed = DRAFT_LENGTHS.current(), DRAFT_LENGTHS.displayed()
active = current.active
first = next(iter(displayed.state.runs.values())).started
st.session_state.setdefault("prompt", first.prompt)
controls.ensure_defaults()

st.title("When do draft tokens save time?")
controls.run_bar(run, DRAFT_LENGTHS.stop, active)
left, right = st.columns(2)
with left:
    # The draft model shares its vocabulary with the embedded model only.
    fitting = [name for name in DRAFTERS if name != "model" or model_choice.is_embedded()]
    if st.session_state.get("drafter_varied") not in fitting:
        st.session_state.drafter_varied = fitting[0]
    controls.choose_drafter(fitting, key="drafter_varied")
with right:
    st.segmented_control(
        "Decode",
        [ONE_TEXT, WHOLE_TREE],
        default=ONE_TEXT,
        key="decode_varied",
        required=True,
        help=(
            "One text: a single path without forks. Whole tree: with the settings in the "
            "sidebar. A step ends only when all paths have reached it, so draft tokens save less "
            "time."
        ),
    )
if st.session_state.decode_varied == ONE_TEXT:
    st.caption("One text never forks, so the settings under Branching have no effect.")
show_problems(current)
with st.sidebar:
    controls.sidebar(varied="drafter")
DRAFT_LENGTHS.watch(active, displayed)

with displayed.locked:
    if displayed.live is None:
        side_by_side()
    *_, last = displayed.state.runs.values()
    origin(first, displayed.live is not None, f"Drafter: {last.started.config.drafter}.")
    results(displayed)
session.draw_fragments()
