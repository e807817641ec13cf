"""Describes what a model's attention layers store and read, in a sentence for its card."""

from eab.caches.layers import EVERYTHING, Reach
from eab.caches.shape import KVShape
from eab.formatting import counted, human_bytes


def rows_words(shape: KVShape) -> str:
    """What a tree cache holds if some layers differ from the usual; empty if none does."""
    reaches, borrowing = reach_words(shape), shape.layers - len(shape.stored)
    if borrowing:
        verb = "reads" if borrowing == 1 else "read"
        reaches += f" {_share(borrowing, shape)} {verb} the rows of another layer."
    if shape.rope_switch:
        reaches += (
            f" In texts of more than {counted(shape.rope_switch, 'token')} the model rotates all "
            "positions by other factors (longrope): a run that grows beyond computes its rows "
            "again, once."
        )
    if not reaches:
        return ""
    return (
        f"KV rows are shared between paths, {human_bytes(shape.row_bytes)} for each token.{reaches}"
    )


def reach_words(shape: KVShape) -> str:
    """How far back those layers read that do not read everything; each sentence follows a space.

    All rows are kept; transformers' own cache would keep only those that can still be read.
    """
    counts: dict[Reach, int] = {}
    for layer in range(shape.layers):
        reach = shape.layer(layer).reach
        counts[reach] = counts.get(reach, 0) + 1
    counts.pop(EVERYTHING, None)
    return "".join(
        f" {_share(count, shape)} {'reads' if count == 1 else 'read'} only {_reach(reach)}, but "
        "all rows are kept."
        for reach, count in counts.items()
    )


def _share(count: int, shape: KVShape) -> str:
    if count == shape.layers:
        return "The attention layer" if count == 1 else f"All {count} attention layers"
    return f"{count} of {counted(shape.layers, 'attention layer')}"


def _reach(reach: Reach) -> str:
    if not reach.window:
        return f"the latest chunk of {counted(reach.chunk, 'token')}"
    return f"the last {counted(reach.window, 'token')}"
