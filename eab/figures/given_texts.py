"""Sentences on texts that the user asked about: where each leaves the tree, how likely it is."""

import math
from collections.abc import Iterator

from eab import token_text
from eab.events import TextScored
from eab.formatting import shortened
from eab.run import Path, RunState, least_probability

_MAX_TEXT = 60  # characters
_LEFT_OUT = 1e-300  # a token with less is left out by the filters


def given_sentences(run: RunState) -> Iterator[tuple[int, str]]:
    """Of each such text the id of its path, and the sentence."""
    events = [each for each in run.events if isinstance(each, TextScored) and each.model_log_probs]
    given = [path for path in run.paths if path.status == "given" and not path.is_rest]
    for path, event in zip(given, events, strict=True):
        yield path.id, _sentence(run, path, event)


def _sentence(run: RunState, path: Path, event: TextScored) -> str:
    first, *others = event.tokens
    before = list(run.tokens(path.parent))[: path.born]
    shown = [token.shown for token in before] + [token.text for token in event.tokens]
    text = shortened(token_text.visible_join(shown).strip(), _MAX_TEXT)
    where = f"“{text}” leaves the tree at step {path.born + 1}"
    word = f"“{token_text.visible(first.text)}”"
    had, own = math.exp(first.log_prob or 0.0), math.exp(event.model_log_probs[0])
    if had < _LEFT_OUT:
        return (
            f"{where}: {word} has {_percent(own)} there, and top-p or another filter leaves it out."
        )
    whole = (
        had
        * least_probability(before)
        * math.prod(math.exp(each.log_prob or 0.0) for each in others)
    )
    if whole < _LEFT_OUT:
        return f"{where}, where {word} had {_percent(had)}; a later token is never chosen."
    return f"{where}, where {word} had {_percent(had)}; the whole text has {_percent(whole)}."


def _percent(share: float) -> str:
    return "less than 0.1%" if share < 0.0005 else f"{share:.1%}"
