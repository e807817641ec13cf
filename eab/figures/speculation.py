"""Plain decoding beside one drafter at several draft lengths: what was measured, and what the
formulas say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from eab import token_text
from eab.analysis.sweep import Sweep
from eab.figures.charts import laid_out
from eab.formatting import counted
from eab.run import Run
from eab.speculation.formulas import best_length, expected_tokens, speed_up
from eab.speculation.stats import SpeculationStats, fit_pass_seconds, speculation_stats

MEASURED, FORMULA = (
    "#1f83c9",
    "#d9661f",
)  # readable on white and on dark; symbol and dash tell them apart too
LONGEST: Final = 16  # guesses on the axes
SMALL_DRAFT: Final = (
    0.05  # of a target pass: what a guess costs where the target is a hundred times larger
)


@dataclass(frozen=True, slots=True)
class Line:
    """One variant: its name, its draft length (None for plain, 0 for adaptive), and what became of
    its guesses.
    """

    name: str
    length: int | None
    found: SpeculationStats


@dataclass(frozen=True, slots=True)
class PassCosts:
    """In passes of one token, measured: of a guess, and of each further token in a pass."""

    guess: float
    further_token: float

    def of_pass(self, tokens: int) -> float:
        """A pass of so many tokens."""
        return 1.0 + (tokens - 1) * self.further_token


def lines(sweep: Sweep) -> list[Line]:
    """All variants that have decided a step after the prompt's."""
    found = []
    for name, run in sweep.pairs:
        config = run.started.config
        if len(run.steps) > 1:
            length = None if config.drafter == "none" else config.draft_length
            found.append(Line(name, length, speculation_stats(run)))
    return found


def acceptance(sweep: Sweep) -> float | None:
    """Over all lengths: of the guesses that were tried in earnest, those that were right.
    Measured.
    """
    right = sum(line.found.accepted for line in lines(sweep))
    tried = right + sum(line.found.rejected for line in lines(sweep))
    return right / tried if tried else None


def costs(sweep: Sweep) -> PassCosts | None:
    """What guesses and longer passes cost in these runs; None before there are passes of two
    sizes.
    """
    line = fit_pass_seconds(run for _, run in sweep.pairs)
    guesses = sum(one.found.draft_tokens for one in lines(sweep))
    if line is None or not guesses:
        return None
    start, slope = line
    single = start + slope
    drafting = sum(one.found.draft_seconds for one in lines(sweep))
    return PassCosts(drafting / guesses / single, slope / single) if single > 0 else None


def outcome_table(sweep: Sweep) -> pd.DataFrame:
    """One line per variant. Measured, but for the column that says formula."""
    alpha, found = acceptance(sweep), lines(sweep)
    plain = found[0].found.seconds if found and found[0].length is None else None
    return pd.DataFrame(
        [
            {
                "draft length": line.name,
                "times as fast": plain / line.found.seconds
                if plain and line.found.seconds
                else None,
                "forward passes": line.found.forward_passes,
                "steps per pass": line.found.steps_per_pass,
                "steps per pass (formula)": expected_tokens(alpha, line.length)
                if line.length and alpha
                else None,
                "guesses": line.found.draft_tokens,
                "right": line.found.accepted,
                "acceptance": line.found.acceptance_rate,
                "seconds": line.found.seconds,
                "of which drafting": line.found.draft_seconds,
            }
            for line in found
        ]
    )


def tokens_figure(sweep: Sweep) -> go.Figure:
    """Steps per forward pass over the draft length: points measured, line by formula at the
    measured acceptance.
    """
    alpha = acceptance(sweep) or 0.0
    fixed = [line for line in lines(sweep) if line.length]
    figure = go.Figure()
    lengths = list(range(LONGEST + 1))
    figure.add_scatter(
        name=f"formula, acceptance {alpha:.2f}",
        x=lengths,
        y=[expected_tokens(alpha, length) for length in lengths],
        mode="lines",
        line={"color": FORMULA, "dash": "dash", "width": 2},
    )
    figure.add_scatter(
        name="measured",
        x=[line.length for line in fixed],
        y=[line.found.steps_per_pass for line in fixed],
        mode="markers",
        marker={"color": MEASURED, "size": 11, "symbol": "diamond"},
    )
    figure.update_xaxes(title="draft length (guesses per pass)")
    figure.update_yaxes(title="steps per forward pass", rangemode="tozero")
    return laid_out(figure)


def tokens_sentence(sweep: Sweep) -> str:
    """The acceptance, and what it makes of the passes."""
    alpha = acceptance(sweep)
    if alpha is None:
        return "No guess was made: the drafter found nothing to guess."
    best = max((line for line in lines(sweep) if line.length is not None), key=_steps_per_pass)
    return (
        f"A guess is right with probability {alpha:.2f} if those before it were (measured). A forward pass brings up "
        f"to {_steps_per_pass(best):.2f} steps instead of 1, with {best.name} (measured)."
    )


def _steps_per_pass(line: Line) -> float:
    return line.found.steps_per_pass or 0.0


def surface_figure(sweep: Sweep) -> go.Figure:
    """Speed-up over draft length and acceptance, computed with the measured costs; the diamond is
    this run.
    """
    found, alpha = costs(sweep), acceptance(sweep)
    figure = go.Figure()
    if found is None or alpha is None:
        return laid_out(figure)
    lengths, alphas = list(range(LONGEST + 1)), [step / 50 for step in range(51)]
    values = [
        [speed_up(one, length, found.guess, found.of_pass) for length in lengths] for one in alphas
    ]
    shown: dict[str, Any] = {"x": lengths, "y": alphas, "z": values}
    hover = "%{x} guesses, acceptance %{y:.2f}: %{z:.2f} times as fast<extra></extra>"
    figure.add_heatmap(
        **shown,
        colorscale="Cividis",
        colorbar={"title": {"text": "times<br>as fast"}},
        hovertemplate=hover,
    )
    figure.add_contour(
        **shown,
        contours={"coloring": "none", "start": 1.0, "end": 1.0, "size": 1.0, "showlabels": True},
        line={"color": "white", "width": 3, "dash": "dot"},
        showscale=False,
        hoverinfo="skip",
        name="as fast as plain",
    )
    best = best_length(alpha, found.guess, found.of_pass)
    figure.add_scatter(
        x=[best],
        y=[alpha],
        mode="markers+text",
        text=["this run's best"],
        textposition="top right" if best < LONGEST / 2 else "top left",
        textfont={"color": "white"},
        marker={
            "color": "white",
            "size": 13,
            "symbol": "diamond",
            "line": {"color": "black", "width": 1},
        },
        hovertemplate=f"{best} guesses at acceptance {alpha:.2f}<extra></extra>",
        showlegend=False,
    )
    figure.update_xaxes(title="draft length (guesses per pass)")
    figure.update_yaxes(title="acceptance of a guess", range=[0, 1])
    return laid_out(figure)


def surface_sentence(sweep: Sweep) -> str:
    """What a guess costs here, what that allows, and what a much larger target would gain."""
    found, alpha = costs(sweep), acceptance(sweep)
    if found is None or alpha is None:
        return "There is nothing to compute a speed-up from yet."
    here = _best_words(alpha, found.guess, found.of_pass)
    small = _best_words(alpha, SMALL_DRAFT, lambda tokens: 1.0)
    return (
        f"A guess costs {found.guess:.2f} of a pass of the model, and one more token in the pass "
        f"{found.further_token:.2f} (measured). With these, {here} (computed). If a guess cost {SMALL_DRAFT} of a "
        f"pass, and a longer pass no more than a short one, as for a large model on a GPU, {small} (computed): a small "
        "model gains little, because nothing much smaller is left to guess for it."
    )


def _best_words(alpha: float, guess: float, of_pass: Callable[[int], float]) -> str:
    best = best_length(alpha, guess, of_pass)
    if not best:
        return "no draft length pays"
    return f"{counted(best, 'guess')} would be {speed_up(alpha, best, guess, of_pass):.2f} times as fast as plain decoding"


def chips(run: Run, leaf: int) -> list[dict[str, str]]:
    """The text of a leaf, token by token: what the model wrote itself (`own`), what was guessed
    right (`right`), and the first wrong guess of each pass (`wrong`), before the token that came
    instead.
    """
    born = {
        path: run.paths[path].tokens[0].step for path in run.lineage(leaf) if run.paths[path].tokens
    }
    right, wrong = set(), {}
    for tried in run.speculations:
        if tried.path in born:
            right |= set(range(tried.step, tried.step + tried.accepted))
            if tried.verified > tried.accepted:
                wrong[tried.step + tried.accepted] = tried.draft_texts[tried.accepted]
    found = []
    for token in run.tokens(leaf):
        if token.step in wrong:
            found.append({"kind": "wrong", "text": token_text.visible(wrong[token.step])})
        found.append(
            {
                "kind": "right" if token.step in right else "own",
                "text": token_text.visible(token.text),
            }
        )
    return found


def chips_sentence(shown: Sequence[dict[str, str]]) -> str:
    """How much of the text was guessed."""
    right = sum(chip["kind"] == "right" for chip in shown)
    wrong = sum(chip["kind"] == "wrong" for chip in shown)
    tokens = len(shown) - wrong
    if not tokens:
        return "No text yet."
    return f"{right} of {counted(tokens, 'token')} were guessed right ({right / tokens:.0%}); {wrong} guesses were wrong."
