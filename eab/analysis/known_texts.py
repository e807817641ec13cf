"""The texts of which a run knows something: of its tree, explored ones, those of other seeds."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from eab.run import Path, RunState, Token


class KnownText(NamedTuple):
    """A text, or the first tokens of texts of which no more is known."""

    leaf: Path | None  # None if the tree does not have it
    tokens: Sequence[Token]
    text: str | None  # without control tokens and up to any stop string; None if it may go on
    cut: int  # how many bytes the stop string cut off
    weight: float  # in the run with its seed
    seed: int | None  # of the run that gave it; None for the run itself
    ids: tuple[int, ...]  # of its tokens

    @property
    def in_estimate(self) -> bool:
        """Whether it is one of the texts whose weights are the estimate of the run itself."""
        return self.leaf is not None and self.leaf.status in ("live", "finished")


def known_texts(run: RunState) -> Iterator[KnownText]:
    """The texts of the tree, also of pruned and given paths, and then all others."""
    for leaf in (path for path in run.paths if not path.children):
        text = None if leaf.finish_reason is None else run.text(leaf.id)
        weight = 0.0 if leaf.status == "pruned" else leaf.weight
        tokens = list(run.tokens(leaf.id))
        ids = tuple(token.id for token in tokens)
        yield KnownText(leaf, tokens, text, leaf.cut, weight, None, ids)
    for seed, texts in [(None, run.explored), *run.repeats.items()]:
        for each in texts:
            text = None if each.finish_reason == "unfinished" else each.text
            yield KnownText(None, each.tokens, text, each.cut, each.weight, seed, each.token_ids)
