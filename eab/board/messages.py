"""Messages to the board in the browser: records of paths and steps, and sentences for the charts.

Records are idempotent: a message may be lost or arrive twice. `board_message(run, since_step)`
holds the paths that changed at or after that step, with their tokens, and the steps from about then
on. With `since_step` 0 it is a keyframe: it needs no earlier message. A `Feed` remembers what has
been sent to one board.

The message types are in `eab/board/static/types.d.ts`; `tests/board/test_types.py` compares the
two.

Two runs in one tree have messages, too, with the run that each path belongs to.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from eab import token_text
from eab.analysis.answers import group_answers
from eab.analysis.label_rules import labelled
from eab.analysis.run_comparison import Merged, graft, merge
from eab.analysis.uncertainty import attribute_to_forks
from eab.board.still import MAX_BYTES_OF_CHARACTER, pieces
from eab.config import AUTO
from eab.errors import ConfigError
from eab.figures.captions import (
    entropy_sentence,
    file_stem,
    given_sentences,
    limit_sentence,
    origin_words,
    sentences_at,
    tree_sentence,
)
from eab.figures.kv_memory import memory_sentence, separate_bytes
from eab.figures.run_comparison import diff_entropy_sentence, diff_tree_sentence
from eab.figures.uncertainty import effect_words, forks_sentence
from eab.formatting import as_sentence, ending, excerpt
from eab.run import Path, RunState, Step, Token
from eab.run.events import Probed

SHARES: Final = 100_000  # the board shows probabilities to a tenth of a percent
_BEGUN_WORD: Final = re.compile(r" ?[^\W\d_]+$")
PROMPT_LONGEST: Final = 200  # characters kept from the end, as many as the tree may have room for
_PROMPT_START: Final = 80  # characters kept from the start, which the outline on a phone shows


@dataclass
class Feed:
    """What has been sent to one board; the board asks for what it missed (`resend`)."""

    key: str = ""  # name of the run
    begin: int = 0  # first step of the next message

    def message(
        self,
        run: RunState | None,
        key: str,
        mode: Literal["live", "replay"],
        autoplay: bool = False,
        cursor: int | None = None,
    ) -> dict[str, Any]:
        """The next message: a recorded run in full, a live run from where the last message ended.

        Args:
            key: Names the run, so that the board starts over when the run changes.
            autoplay: Play the run from its first step if it is new to the board.
            cursor: The step to show if the run is new to the board; None for the last step.
        """
        if self.key != key or mode == "replay":
            self.key = key
            self.resend()
        message = board_message(run, self.begin) if run is not None else _NOT_STARTED
        if mode == "live" and run is not None:
            goes_back = not run.started.config.by_step or any(
                path.is_rest
                for path in run.paths  # split perhaps at an earlier step
            )
            self.begin = 0 if goes_back else max(0, len(run.steps) - 1)
        return message | {"run": key, "mode": mode, "autoplay": autoplay, "cursor": cursor}

    def resend(self, since_step: int = 0) -> None:
        """Make the next message start at this step, because the board missed what came after it. 0
        makes it a keyframe.
        """
        self.begin = since_step


def greedy_message(key: str, prompt: str, probed: Sequence[Probed], steps: int) -> dict[str, Any]:
    """A message for a run that has not started: its prompt, and the greedy text from which its
    threshold follows, as far as it is written.

    Args:
        steps: The most steps that the run can have.
    """
    texts: dict[str, int] = {}
    tokens = [
        [text, round(each.entropy, 4), [], [_place(text, texts), 0]]
        for each in probed
        for text in [token_text.visible(each.text)]
    ]
    last = len(tokens) - 1
    path = {"id": 0, "parent": -1, "status": "live", "finish_reason": None, "weights": [[0, 1.0]]}
    path |= {
        "share": 1.0,
        "drawn": False,
        "rest": False,
        "born": 0,
        "touched": last,
        "limited_steps": [],
        "first_token": 0,
    }
    memory = dict.fromkeys(("shared", "private", "spare", "reused", "independent"), 0)
    return _NOT_STARTED | {
        "version": len(tokens),
        "prompt": _ends_of(prompt),
        "max_steps": steps,
        "texts": list(texts),
        "paths": [path | {"tokens": tokens}] if tokens else [],
        "steps": [{"step": step, "paths": []} | memory for step in range(len(tokens))],
        "sentences": {"tree": _GREEDY if tokens else "", "entropy": "", "memory": ""},
        **{"run": f"{key} greedy", "mode": "live", "autoplay": False, "cursor": None},
    }


_GREEDY: Final = "The most likely text first: where its entropies are highest, the tree will fork."
_NOT_STARTED: Final[dict[str, Any]] = {
    "version": 0,
    "since_step": 0,
    "prompt": "",
    "file": "run",
    "about": "",
    "threshold": None,
    "policy": "",
    "min_fork_weight": 0.0,
    "cache": "",
    "row_bytes": 0,
    "max_steps": 0,
    "ended": "",
    "limit": "",
    "labels": None,
    "deciding": None,
    "r": AUTO,
    "texts": [],
    "paths": [],
    "steps": [],
    "sentences": {"tree": "", "entropy": "", "memory": ""},
}


def board_message(run: RunState, since_step: int = 0) -> dict[str, Any]:
    """What changed in the run at or after `since_step` (0 for a keyframe), as JSON values:
    entropies and the threshold in nats, KV in bytes.
    """
    started = run.started
    prompt, begun = _prompt_and_begun_word(run)
    texts: dict[str, int] = {}  # texts of tokens, with the index of each in the message
    return {
        "version": len(run.events),
        "since_step": since_step,
        "prompt": _ends_of(prompt),
        "file": file_stem(started),
        "about": origin_words(started),
        "threshold": started.threshold_nats,
        "policy": started.config.policy,
        "min_fork_weight": started.config.min_fork_weight,
        "cache": started.config.cache if started.model.shares_rows else "own",
        "row_bytes": started.model.row_bytes,
        "max_steps": started.config.max_new_tokens,
        "ended": run.ended.reason if run.ended else "",
        "limit": limit_sentence(run),
        "deciding": deciding_forks(run),
        "r": started.config.r,
        "paths": [
            _path_record(path, since_step, begun if _is_first(run, path) else "", texts)
            | {"drawn": run.is_drawn(path), "rest": path.is_rest}
            for path in run.paths
            if path.touched >= since_step
        ],
        "texts": [token_text.visible(text) for text in texts],
        "steps": _step_records(run, since_step),
        "sentences": {
            "tree": tree_sentence(run),
            "entropy": entropy_sentence(run),
            "memory": memory_sentence(run),
        },
        **_labels(run),
    }


def _labels(run: RunState) -> dict[str, Any]:
    """The labels of the run; a note if the patterns of its file cannot be searched for."""
    try:
        given = list(given_sentences(run))
        return {"labels": _labels_record(run, given) if run.labels or given else None}
    except ConfigError as error:
        words = as_sentence(f"The labels of this run are not shown: {error}")
        return {"labels": None, "notes": {"tree": words}}


def _labels_record(run: RunState, given: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Their rules, how likely each is, and the tokens that decide them."""
    found = labelled(run, run.labels)
    places = {label.name: place for place, label in enumerate(found)}
    return {
        "rules": [rule._asdict() for rule in run.labels],
        "shares": [
            {name: getattr(label, name) for name in ("name", "estimate", "low", "high")}
            | {"error": label.standard_error}
            for label in found
        ],
        "runs": found.runs,
        "unexplored": found.unexplored,
        "explored": len(run.explored),
        "cover": [[path, token, places[label]] for path, token, label in found.cover],
        "given": [list(each) for each in given],
    }


def _prompt_and_begun_word(run: RunState) -> tuple[str, str]:
    """The text before the first boxes, and the word that forced tokens began at its end. If all
    first tokens continue this word, the boxes show the whole word.
    """
    text = token_text.visible(run.started.beginning)
    begun = _BEGUN_WORD.search(text)
    if not run.started.continued or begun is None or not begun.start():
        return text, ""
    goes_on = [_goes_on(path.tokens[0].shown) for path in run.paths if _is_first(run, path)]
    if not goes_on or not all(goes_on):
        return text, ""
    return text[: begun.start()], begun[0]


def _is_first(run: RunState, path: Path) -> bool:
    """Whether the path has tokens and no token of the run comes before them."""
    before = path.parent < 0 or (run.paths[path.parent].parent < 0 and path.born == 0)
    return before and bool(path.tokens)


def _goes_on(text: str) -> bool:
    """Whether a token continues the word before it."""
    return text[:1].isalpha()


def _ends_of(text: str) -> str:
    """The start and the end of a long prompt, cut at spaces if it has any."""
    if len(text) <= _PROMPT_START + PROMPT_LONGEST:
        return text
    return f"{excerpt(text, _PROMPT_START)} {ending(text, PROMPT_LONGEST)}"


def _path_record(path: Path, since_step: int, begun: str, texts: dict[str, int]) -> dict[str, Any]:
    """The record of a path, with `tokens` from number `first_token` on; the browser has the earlier
    ones, and the weights and limits before `since_step`. `begun` is put before a first token that
    continues a word.
    """
    first = _first_new(path, since_step)
    since = since_step if first else 0
    shown = pieces(path, first)
    if shown and not first:
        shown[0] = begun + shown[0]
    records = zip(path.tokens[first:], shown, strict=True)
    return {
        "id": path.id,
        "parent": path.parent,
        "status": path.status,
        "finish_reason": path.finish_reason,
        "weights": [[step, weight] for step, weight in path.weights if step >= since],
        "share": round(path.share, 6),
        "born": path.born,
        "touched": path.touched,
        "limited_steps": [step for step in path.limited_steps if step >= since],
        "first_token": first,
        "tokens": [_token_record(token, piece, texts) for token, piece in records],
    }


def _first_new(path: Path, since_step: int) -> int:
    """The index of the first token whose record may have changed since this step."""
    first = min(max(0, since_step - path.born), len(path.tokens))
    earliest = max(0, first - MAX_BYTES_OF_CHARACTER)
    while first > earliest and _may_go_on(path.tokens[first - 1].shown):
        first -= 1
    if not path.cut:
        return first
    # A stop string may cut off tokens that were already sent.
    return next((index for index, token in enumerate(path.tokens[:first]) if token.cut), first)


def _may_go_on(text: str) -> bool:
    """Whether the next token may change this token's piece: it is empty or ends in a lone byte."""
    return not text or "\udc80" <= text[-1] <= "\udcff"


def _token_record(token: Token, piece: str, texts: dict[str, int]) -> list[Any]:
    """One token as an array. Tokens make up nearly all of a message, so nothing is sent twice; new
    token texts are added to `texts`.

    Returns:
        [piece of the path's text, entropy, [index of the text, probability, ...] of the candidates,
        index of the chosen candidate, or if it is not among them [index of its text, probability];
        then, if only some tokens are known, the bounds of the entropy over all tokens]. An entropy
        or probability that is not known is null.
    """
    candidates: list[int] = []
    taken: int | list[int | None] | None = None
    for candidate in token.candidates:
        if candidate.token == token.id and taken is None:
            taken = len(candidates) // 2
        candidates += (_place(candidate.text, texts), round(candidate.probability * SHARES))
    if taken is None:
        known = None if token.log_prob is None else round(math.exp(token.log_prob) * SHARES)
        taken = [_place(token.text, texts), known]
    bounds = [round(bound, 4) for bound in token.whole or ()]
    entropy = None if token.entropy is None else round(token.entropy, 4)
    return [piece, entropy, candidates, taken, *bounds]


def _place(text: str, texts: dict[str, int]) -> int:
    return texts.setdefault(text, len(texts))


def _step_records(run: RunState, since_step: int) -> list[dict[str, Any]]:
    measured = [step for step in run.steps[since_step:] if step.kv is not None]
    sentences = sentences_at(run, [step.step for step in measured])
    return [
        _step_record(run, step) | {"sentences": of_step}
        for step, of_step in zip(measured, sentences, strict=True)
    ]


def _step_record(run: RunState, step: Step) -> dict[str, Any]:
    """The record of a step; KV in bytes. `reused`: the part of shared and private in the prefix
    cache. `independent`: held if each path had its own cache that grows by the same r. `paths`:
    [path, shared, private], and if paths also have a state, its part of private.
    """
    assert step.kv is not None
    row = run.started.model.row_bytes
    shared, private, spare = step.kv.bytes_by_use(row)
    paths = [list(path) for path in step.kv.bytes_by_path(row)]
    if run.started.model.shares_rows:
        for path, state in zip(paths, step.kv.own_bytes, strict=False):
            path.append(state)
    return {
        "step": step.step,
        "shared": shared,
        "private": private,
        "spare": spare,
        "reused": step.kv.rows_reused * row,
        "independent": separate_bytes(run.started, step.kv),
        "paths": paths,
    }


def deciding_forks(run: RunState) -> dict[str, Any] | None:
    """Which forks decide the answer, the first sentence of a text; None during the run, and if
    there is no fork to judge. Answers are compared by the rule `exact`.

    Returns:
        JSON values. `sentence` names the fork that decides most. `forks`: [path that forks, its
        share (0 to 1) of the semantic entropy, what it decides, in words that follow "The fork"].
        `answers`: [answer, paths] for each answer that several texts give.
    """
    if run.ended is None or run.started.config.policy == "independent":
        return None
    answers = group_answers(run, "sentence")
    forks = attribute_to_forks(run, answers)
    if not forks:
        return None
    total = sum(fork.contribution for fork in forks) or 1.0
    shared = [answer for answer in answers.ranked if len(answer.leaves) > 1]
    return {
        "sentence": forks_sentence(run, forks, "the first sentence"),
        "forks": [
            [fork.path, round(fork.contribution / total, 4), effect_words(fork, forks)]
            for fork in forks
        ],
        "answers": [[token_text.visible(answer.name), list(answer.leaves)] for answer in shared],
    }


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
        "labels": None,
        "deciding": None,
        "sides": list(both.sides),
        "steps": [{"step": step, **nothing} for step in range(last + 1)],
        "sentences": sentences | {"memory": ""},
    }
