"""Sentences about how uncertain the answers of a run are, and which forks cause it."""

import math
from collections.abc import Sequence
from typing import Final

from eab import token_text
from eab.analysis.uncertainty import ForkShare, Uncertainty
from eab.formatting import counted, ending, listed
from eab.run import RunState

_MAX_TEXT: Final = 48  # characters before a fork
_NOTHING: Final = 0.0005  # nats; less than this rounds to 0.000
_CLEARLY: Final = 0.95  # share of the largest possible information


def uncertainty_sentence(scores: Uncertainty) -> str:
    """Semantic entropy with its certain bounds and all that it rests on; predictive entropy."""
    error = f" ± {scores.standard_error:.2f}" if scores.standard_error is not None else ""
    low, high = scores.semantic_bounds
    unit = f", not measured, because {scores.reason}" if scores.reason else f"{error} nats"
    known = f" with {scores.explored:.1%} of all probability"
    known = known if scores.predictive is not None else ", whose probability is not known"
    cut = f" Branches were cut by {listed(scores.limited_by)}." if scores.limited else ""
    predictive = "not known" if scores.predictive is None else f"{nats(scores.predictive)} nats"
    return (
        f"Semantic entropy {nats(scores.semantic)}{unit}; "
        f"certainly between {low:.2f} and {high:.2f} nats. Seen: "
        f"{counted(scores.texts, 'text')}{known}.{cut} "
        f"Predictive entropy, the mean of -ln p of the texts: {predictive}."
    )


def nats(value: float | None) -> str:
    """The value with two decimals, or a dash for one that was not measured."""
    return "–" if value is None or math.isnan(value) else f"{value:.2f}"


def forks_sentence(run: RunState, forks: Sequence[ForkShare], answer: str = "the answer") -> str:
    """The fork that causes most of the semantic entropy, and how many change no answer."""
    if run.started.imported:
        return "Which forks decide the answer is not computed for imported samples."
    if run.started.config.policy == "independent":
        return (
            "Independent texts share no fork. Choose the policy fair to see where the answers "
            "diverge."
        )
    if not forks:
        return "No fork leads to two answers."
    wording = [fork for fork in forks if fork.contribution < _NOTHING]
    if len(wording) == len(forks):
        return f"All texts give one answer: {_undeciding(len(wording))}."
    first = forks[0]
    decides = "decides" if first.decisiveness >= _CLEARLY else "partly decides"
    rest = f"; {_undeciding(len(wording))}" if wording else ""
    return (
        f"The fork after “{text_before(run, first)}” causes {_part_words(first, forks)} and "
        f"{decides} {answer}{rest}."
    )


def effect_words(fork: ForkShare, forks: Sequence[ForkShare]) -> str:
    """What a fork decides, and its part of the semantic entropy; continues "The fork ..."."""
    if fork.contribution < _NOTHING:
        return "does not decide the first sentence: it changes only its wording, or what follows"
    decides = "decides" if fork.decisiveness >= _CLEARLY else "partly decides"
    return f"{decides} the first sentence: it causes {_part_words(fork, forks)}"


def _part_words(fork: ForkShare, forks: Sequence[ForkShare]) -> str:
    total = sum(fork.contribution for fork in forks)
    return (
        f"{fork.contribution / total:.0%} of the semantic entropy "
        f"({fork.contribution:.2f} of {total:.2f} nats)"
    )


def effect(fork: ForkShare) -> str:
    """What the choice of a branch at this fork decides."""
    if fork.contribution < _NOTHING:
        return "wording or what follows"
    return "the answer" if fork.decisiveness >= _CLEARLY else "partly the answer"


def _undeciding(count: int) -> str:
    verb = "does" if count == 1 else "do"
    return f"{counted(count, 'fork')} {verb} not change it, only its wording or what follows"


def text_before(run: RunState, fork: ForkShare) -> str:
    """The end of the text before a fork, starting with a whole word if the text has spaces."""
    generated = "".join(token.text for token in run.tokens(fork.path) if not token.special)
    text = token_text.visible(run.started.followed_by(generated)).strip()
    return text if len(text) <= _MAX_TEXT else "…" + ending(text, _MAX_TEXT - 1)
