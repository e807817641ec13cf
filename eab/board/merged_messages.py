"""Messages to a board about two runs in one tree, with the run that each path belongs to."""

from typing import Any

from eab.analysis.graft import graft
from eab.analysis.merged_runs import Merged, merge
from eab.board.messages import board_message
from eab.figures.captions import tree_sentence
from eab.figures.run_comparison import diff_entropy_sentence, diff_tree_sentence
from eab.figures.run_names import origin_words
from eab.run import RunState


def diff_message(a: RunState, b: RunState, key: str) -> dict[str, Any]:
    """The message about two runs of one prompt.

    Returns:
        JSON values as in `board_message`, plus `sides` ("both", "a" or "b" by path id) and
        `weights_in_b` (weights in the second run of the paths that both runs have).
    """
    both = merge(a, b)
    sentences = {"tree": diff_tree_sentence(both), "entropy": diff_entropy_sentence(a, b)}
    weights = [weight if weight is None else round(weight, 6) for weight in both.seconds]
    about = f"A: {origin_words(a.started)} B: {origin_words(b.started)}"
    own = {"version": 0, "weights_in_b": weights, "about": about}
    return _message(both, key, sentences) | own


def graft_message(source: RunState, grown: RunState, key: str) -> dict[str, Any]:
    """The message about a run, perhaps still live, grafted onto the tree that it grew from."""
    words = f"Grown from the chosen token: {tree_sentence(grown)}"
    live = {"mode": "replay" if grown.ended else "live", "graft": True}
    return _message(graft(source, grown), key, {"tree": words, "entropy": ""}) | live


def _message(both: Merged, key: str, sentences: dict[str, str]) -> dict[str, Any]:
    last = max((token.step for path in both.run.paths for token in path.tokens), default=0)
    nothing = {"shared": 0, "private": 0, "spare": 0, "reused": 0, "independent": 0, "paths": []}
    return board_message(both.run) | {
        "run": key,
        "mode": "replay",
        "autoplay": False,
        "limit": "",
        "deciding": None,
        "sides": list(both.sides),
        "steps": [{"step": step, **nothing} for step in range(last + 1)],
        "sentences": sentences | {"memory": ""},
    }
