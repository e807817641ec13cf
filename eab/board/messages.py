"""What the board in the browser is told: records of paths and steps, the layout, and the sentences
under the pictures.

Records are idempotent: a message may be lost or come twice. `board_message(run, since_step)` holds
the paths that changed at or after that step, their tokens and the steps from about then on; the
layout always holds all paths, since boxes move. A `Feed` remembers what one board has been told.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from eab import token_text
from eab.board.layout import PROMPT_LONGEST, pieces, shorten, tidy
from eab.figures.captions import entropy_sentence, memory_sentence, sentences_at, tree_sentence
from eab.run import Path, Run, Step, Token

BYTES_OF_CHARACTER: Final = 4  # so many tokens back, a token's part of the text may still change
OVERLAP: Final = 4  # messages: the browser may miss some of them
KEYFRAME: Final = 60  # messages


@dataclass
class Feed:
    """What to tell one board next. `steps`: what the messages about the run `key` had reached, the
    newest last.
    """

    key: str = ""
    steps: list[int] = field(default_factory=list)

    def message(
        self,
        run: Run | None,
        key: str,
        mode: Literal["live", "replay"],
        autoplay: bool = False,
        cursor: int | None = None,
    ) -> dict[str, Any]:
        """A recorded run is told whole. A live one is told from a few messages back, now and then
        whole.

        key: names the run, so that the board starts afresh with another one; then it stands at the
        step `cursor`, plays from the beginning (`autoplay`), or shows the last step.
        """
        if self.key != key:
            self.key = key
            self.resync()
        if mode == "replay":
            self.resync()
        since = self._since()
        self.steps += (
            [max(0, len(run.steps) - 1) if run is not None else 0] if mode == "live" else []
        )
        message = board_message(run, since) if run is not None else _EMPTY
        return message | {
            "run": key,
            "mode": mode,
            "autoplay": autoplay,
            "cursor": cursor,
        }

    def resync(self) -> None:
        """The board missed something: the next message tells everything."""
        self.steps.clear()

    def _since(self) -> int:
        whole = len(self.steps) % KEYFRAME == 0
        return 0 if whole else self.steps[max(0, len(self.steps) - OVERLAP)]


# Before the run starts there is nothing to draw.
_EMPTY: Final[dict[str, Any]] = {
    "version": 0,
    "since": 0,
    "prompt": "",
    "threshold": None,
    "policy": "",
    "branch_factor": 0,
    "min_fork_weight": 0.0,
    "cache": "",
    "row_bytes": 0,
    "max_steps": 0,
    "ended": "",
    "layout": {"x": [], "y": [], "box": [], "prompt_box": 0, "width": 0, "height": 0},
    "paths": [],
    "steps": [],
    "sentences": {"tree": "", "entropy": "", "memory": ""},
}


def board_message(run: Run, since_step: int = 0) -> dict[str, Any]:
    """JSON values for `eab/board/static/`; since_step = 0 is the whole run (a keyframe). Entropies
    in nats, KV in bytes.
    """
    started = run.started
    layout = tidy(run)
    return {
        "version": run.events_seen,
        "since": since_step,
        "prompt": shorten(token_text.visible(started.beginning), PROMPT_LONGEST),
        "threshold": started.threshold_nats,
        "policy": started.config.policy,
        "branch_factor": started.config.branch_factor,
        "min_fork_weight": started.config.min_fork_weight,
        "cache": started.config.cache,
        "row_bytes": started.model.row_bytes,
        "max_steps": started.config.max_new_tokens,
        "ended": run.ended.reason if run.ended else "",
        "layout": {
            "x": [round(value, 1) for value in layout.x],
            "y": [round(value, 1) for value in layout.y],
            "box": [round(value, 1) for value in layout.box],
            "prompt_box": round(layout.prompt_box, 1),
            "width": round(layout.width, 1),
            "height": round(layout.height, 1),
        },
        "paths": [
            _path_record(path, since_step) for path in run.paths if path.touched >= since_step
        ],
        "steps": _step_records(run, since_step),
        "sentences": {
            "tree": tree_sentence(run),
            "entropy": entropy_sentence(run),
            "memory": memory_sentence(run),
        },
    }


def _path_record(path: Path, since_step: int) -> dict[str, Any]:
    """`tokens` begin with the path's token number `from`; the browser has those before it."""
    first = sum(token.step < since_step - BYTES_OF_CHARACTER for token in path.tokens)
    records = zip(path.tokens[first:], pieces(path)[first:], strict=True)
    return {
        "id": path.id,
        "parent": path.parent,
        "status": path.status,
        "reason": path.finish_reason,
        "weights": [list(change) for change in path.weights],
        "share": round(path.share, 6),
        "born": path.born,
        "touched": path.touched,
        "limited": path.limited_steps,
        "from": first,
        "tokens": [_token_record(token, piece) for token, piece in records],
    }


def _token_record(token: Token, piece: str) -> list[Any]:
    """[piece of the path's text, the token alone, probability, entropy, [[candidate, probability],
    ...], taken]

    taken: which of the candidates it is, or -1.
    """
    candidates = [
        [token_text.visible(candidate.text), candidate.probability]
        for candidate in token.candidates
    ]
    alone = token_text.visible(token.text)
    taken = next(
        (index for index, one in enumerate(token.candidates) if one.token == token.token), -1
    )
    return [
        piece,
        alone,
        round(math.exp(token.log_prob), 6),
        round(token.entropy, 4),
        candidates,
        taken,
    ]


def _step_records(run: Run, since_step: int) -> list[dict[str, Any]]:
    measured = [step for step in run.steps[since_step:] if step.kv is not None]
    sentences = sentences_at(run, [step.step for step in measured])
    return [
        _step_record(run, step) | {"sentences": said}
        for step, said in zip(measured, sentences, strict=True)
    ]


def _step_record(run: Run, step: Step) -> dict[str, Any]:
    assert step.kv is not None
    row = run.started.model.row_bytes
    return {
        "step": step.step,
        "shared": step.kv.rows_shared * row,
        "private": step.kv.rows_private * row,
        "spare": step.kv.rows_spare * row,
        "independent": step.kv.rows_independent * row,
        "paths": [[path, shared * row, private * row] for path, shared, private in step.kv.paths],
    }
