"""What a board is sent about two runs: one tree of both, and whose each path is."""

from typing import Any

from eab.analysis.diff import merge
from eab.board.messages import board_message
from eab.figures.diff import diff_entropy_sentence, diff_tree_sentence
from eab.run import Run


def diff_message(a: Run, b: Run, key: str) -> dict[str, Any]:
    """What to tell a board: one tree of both runs, and whose each path is."""
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
