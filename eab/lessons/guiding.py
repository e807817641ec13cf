"""Turns the script of a section into a guide for the board, for the run that is shown."""

from eab.board.guide import Guide, Topic, first_fork, highest_entropy
from eab.lessons.lesson import Place, Script
from eab.run import RunState


def guide(script: Script, run: RunState, guide_id: str, hides: tuple[Topic, ...] = ()) -> Guide:
    """What the board shows, once per `guide_id`: the nearest step or token in the run."""
    cursor = None if script.cursor is None else step_of(script.cursor, run)
    token = None if script.select is None else token_of(script.select, run)
    drawer = None if token is not None else script.show
    return Guide(guide_id, cursor, token, drawer, script.highlight, hides)


def step_of(place: Place, run: RunState) -> int:
    """The step at this place."""
    last = max(0, len(run.steps) - 1)
    if isinstance(place, int):
        return min(place, last)
    if place == "first step":
        return 0
    if place == "last step":
        return last
    if place == "most paths":
        return run.peak_step
    token = first_fork(run) if place == "first fork" else highest_entropy(run)
    return last if token is None else run.paths[token[0]].tokens[token[1]].step


def token_of(place: Place | tuple[int, ...], run: RunState) -> tuple[int, int] | None:
    """Path and index of the token at this place; None in a run without tokens."""
    if isinstance(place, tuple):
        path = run.paths[min(place[0], len(run.paths) - 1)]
        return (path.id, min(place[1], len(path.tokens) - 1)) if path.tokens else None
    if place == "first fork":
        return first_fork(run) or highest_entropy(run)
    if place == "highest entropy":
        return highest_entropy(run)
    step = step_of(place, run)
    return next(
        (
            (path.id, step - path.born)
            for path in sorted(run.paths, key=lambda path: -path.weight)
            if path.tokens and path.born <= step < path.born + len(path.tokens)
        ),
        None,
    )
