"""What a board is sent about two runs: one tree of both, and whose path each is."""

from typing import Any

from eab.analysis.diff import merge
from eab.board.messages import board_message
from eab.figures.diff import diff_entropy_sentence, diff_tree_sentence
from eab.run import Run


def diff_message(a: Run, b: Run, key: str) -> dict[str, Any]:
    """The message about two runs of one prompt.

    Args:
        a: Drawn as side A.
        b: Drawn as side B.
        key: Names the two runs together, so that the board starts afresh with others.

    Returns:
        JSON values, as of `board_message`, and `sides`: "both", "a" or "b" by the path's id.
    """
    both = merge(a, b)
    last = max((token.step for path in both.run.paths for token in path.tokens), default=0)
    nothing = {"shared": 0, "private": 0, "spare": 0, "independent": 0, "paths": []}
    message = board_message(both.run) | {
        "run": key,
        "mode": "replay",
        "autoplay": False,
        "sides": list(both.sides),
    }
    message["version"] = 0
    message["steps"] = [{"step": step, **nothing} for step in range(last + 1)]
    message["sentences"] = {
        "tree": diff_tree_sentence(both),
        "entropy": diff_entropy_sentence(a, b),
        "memory": "",
    }
    return message
