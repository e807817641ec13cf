"""Speculative decoding: one text with and without guesses; what was guessed right, and what it
brought.
"""

from dataclasses import replace
from typing import Final

import streamlit as st

from app.state import messages, polling, status
from app.state.sweeps import DRAFT_LENGTHS, start
from app.widgets import controls
from app.widgets.charts import downloads, draw, white_background
from app.widgets.chips import chips
from app.widgets.markdown import plain
from eab.analysis.sweep import Sweep, draft_length_sweep
from eab.board.layout import shorten
from eab.config import BranchingConfig, DrafterName
from eab.errors import EabError
from eab.figures.captions import sweep_sentence
from eab.token_text import visible

ONE_PATH, TREE = "One path", "The tree"
DRAFTERS: Final[tuple[DrafterName, ...]] = ("model", "prompt-lookup", "sibling-lookup")
NEVER_FORKS: Final = 20.0  # nats
WHOLE: Final = (
    "draft tokens",
    "accepted",
    "accepted of verified",
    "forward passes",
)  # columns without decimals
HOW_IT_WORKS = """
A forward pass of the model reads any number of tokens at once, but brings only one new one, since the next token is not
known before. So a cheap **drafter** guesses the next few. One pass of the model reads them all and says after each what
it would have drawn itself. Guesses that agree are kept, up to the first one that does not; there the model's own token
comes.

- **model**: a draft model of 0.9 million parameters, distilled from the large one (4.2 million), guesses with the same
  random number as the large one will draw with.
- **prompt-lookup**: what followed the same two or three tokens earlier in this text. It costs next to nothing.
- **sibling-lookup**: the same, also in the other paths of the tree.

The text is the same with and without guesses: a guess is right only if it is the token that the model draws there
anyway. Guesses are written into spare rows of the KV cache; wrong ones are given back without copying.
"""


def run() -> None:
    messages.clear()
    drafter = st.session_state.guess_with
    try:
        config = BranchingConfig.from_settings(
            controls.settings() | {"drafter": "none", "draft_length": 0}
        )
        if st.session_state.guess_for == ONE_PATH:
            config = replace(
                config, max_paths=1, entropy_threshold=NEVER_FORKS, threshold_unit="nats"
            )
        start(
            DRAFT_LENGTHS,
            controls.prompt(),
            config,
            controls.model_name(),
            draft_length_sweep(drafter),
        )
    except EabError as error:
        messages.notify(str(error))


def results(sweep: Sweep, key: str) -> None:
    from eab.figures import speculation

    st.text(sweep_sentence(sweep))
    table = speculation.outcome_table(sweep)
    percent = st.column_config.NumberColumn(format="percent")
    shown = {
        name: st.column_config.NumberColumn(format="%.2f")
        for name in table.columns[1:]
        if name not in WHOLE
    }
    st.dataframe(table, hide_index=True, column_config=shown | {"accepted of verified": percent})
    st.caption(
        "Measured, but for the column that says formula: (1 - α^(k+1)) / (1 - α) for k guesses at acceptance α."
    )
    text(sweep, key)
    white = white_background()
    sentence, figure = (
        speculation.tokens_sentence(sweep),
        speculation.tokens_figure(sweep),
    )
    draw("What a forward pass brings", sentence, figure, "speculation-steps", key, white)
    sentence, figure = (
        speculation.surface_sentence(sweep),
        speculation.surface_figure(sweep),
    )
    draw("When it pays", sentence, figure, "speculation-surface", key, white)
    downloads([("Draft lengths (CSV)", "speculation.csv", lambda: table.to_csv(index=False))])


def text(sweep: Sweep, key: str) -> None:
    """The heaviest text of one of the runs, as chips."""
    from eab.figures import speculation

    st.subheader("The text, guess by guess")
    pairs = dict(sweep.pairs)
    names = [name for name, one in pairs.items() if one.speculations]
    if not names:
        st.text(speculation.NOTHING_DRAFTED)
        return
    length = st.segmented_control(
        "Draft length", names, default=names[len(names) // 2], key=f"chips-{key}", required=True
    )
    one = pairs[length or names[0]]
    leaf = max(one.leaves(), key=lambda leaf: leaf.weight)
    tokens = speculation.chips(one, leaf.id)
    st.text(speculation.chips_sentence(tokens))
    chips(tokens, f"chips-{key}-{length}")


shown = DRAFT_LENGTHS.shown()
active = shown.active
picture = shown.picture
first = picture.state.pairs[0][1].started
st.session_state.setdefault("prompt", first.prompt if first is not None else "")
controls.ensure_defaults()

st.subheader("Can a small model guess what the large one will say?")
controls.run_bar(run, DRAFT_LENGTHS.stop, active)
left, right = st.columns(2)
with left:
    controls.choose_drafter(DRAFTERS, key="guess_with")
with right:
    st.segmented_control(
        "For",
        [ONE_PATH, TREE],
        default=ONE_PATH,
        key="guess_for",
        required=True,
        help="One path: a single text, drawn without forks. The tree: with the settings at the left; a step is over "
        "only when all paths have come to it, so guesses save less.",
    )
for problem in messages.problems(shown.live, None):
    st.error(plain(problem))
with st.sidebar:
    controls.sidebar(varied="drafter")
DRAFT_LENGTHS.watch(status.sweep_progress, active)
with st.expander("How it works"):
    st.markdown(HOW_IT_WORKS)

with picture.held_still:
    if first is not None:
        what = "Recorded" if picture.live is None else "Run"
        where = plain(f"{first.model.name}, {first.model.dtype} on {first.model.device}")
        drafter = next(reversed(picture.state.variants.values()))["drafter"]
        st.caption(
            f"{what} with {where}, drafter {drafter}: “{plain(shorten(visible(first.prompt), 90))}”"
        )
    results(picture.state, picture.key)
polling.draw_fragments()
