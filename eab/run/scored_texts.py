"""What the event TextScored does to a run: it adds an explored text, or a path for a given one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eab import token_text
from eab.errors import RecordError
from eab.run.events import TextScored
from eab.run.tree import Path, Sample, Token, split
from eab.token_text import StopStrings

if TYPE_CHECKING:
    from eab.run.state import RunState


def apply(run: "RunState", event: TextScored) -> None:
    """Fold the event. Raises RecordError, or IndexError for a path that does not exist."""
    _check(run, event)
    stem, number = run.paths[event.path], len(run.paths)
    before = [*run.tokens(stem.id)][: run.tokens_before(stem.id) + event.kept]
    pairs = zip(event.tokens, event.predictions, strict=True)
    new = [
        Token(step, own.token, own.text, own.special, own.log_prob, *seen[1:])
        for step, (own, seen) in enumerate(pairs, start=len(before))
    ]
    if not event.model_log_probs:
        text, cut = _up_to_stop([*before, *new], StopStrings(run.started.config.stop))
        reason, tokens = event.reason or "unfinished", (*before, *new)
        seed, sample = event.seed, Sample(text, tokens, event.weight, reason, (), cut=cut)
        (run.explored if seed is None else run.repeats.setdefault(seed, [])).append(sample)
        return
    if split(run.paths, stem, event.kept) == number:
        _move_marks(run, stem.id, event.kept, number)
    weights = [(len(before), 0.0)]
    path = Path(len(run.paths), stem.id, weights, False, event.step, 0.0, new, status="given")
    run.paths.append(path)
    stem.children = (*stem.children, path.id)


def _check(run: "RunState", event: TextScored) -> None:
    if event.path < 0:
        raise IndexError(event.path)
    stem = run.paths[event.path]
    if not (event.kept or stem.id == 0) or event.kept > len(stem.tokens):
        raise RecordError(
            f"a scored text leaves path {stem.id} after {event.kept} tokens; it has "
            f"{len(stem.tokens)}"
        )
    if stem.status in ("live", "finished") and event.kept == len(stem.tokens):
        raise RecordError(f"a scored text goes on after path {stem.id}, which is {stem.status}")
    counts = {len(event.tokens), len(event.predictions), len(event.model_log_probs)}
    if len(counts - {0}) != 1:
        raise RecordError("a scored text needs the same number of tokens and predictions")


def _up_to_stop(tokens: Sequence[Token], stop: StopStrings) -> tuple[str, int]:
    """The text of these tokens, without control tokens and up to any stop string, and how many
    bytes that string cut off.
    """
    raw, tail, cut = b"", b"", 0
    for token in tokens:
        if not token.special and not cut:
            raw += token_text.to_bytes(token.text)
            tail, cut = stop.search(tail, token.text) if stop else (b"", 0)
    return token_text.join([token_text.from_bytes(raw[: len(raw) - cut])]), cut


def _move_marks(run: "RunState", path: int, kept: int, rest: int) -> None:
    """Let the labels follow the tokens that are in another path now."""
    run.labels = tuple(
        rule._replace(path=rest, token=rule.token - kept)
        if rule.kind == "mark" and rule.path == path and rule.token >= kept
        else rule
        for rule in run.labels
    )
