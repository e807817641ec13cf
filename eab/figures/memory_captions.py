"""Sentences about the bytes of a run's KV cache, compared with separate caches."""

from collections.abc import Sequence
from itertools import takewhile

from eab.config import AUTO
from eab.figures.kv_schemes import path_lengths, separate_bytes
from eab.formatting import counted, human_bytes
from eab.run import RunState
from eab.run.events import KVUsage


def memory_sentence(run: RunState) -> str:
    """The caption of the KV bars at the step with the most rows in use."""
    kv = run.peak_kv
    on_server = kv is not None and kv.block_size > 0  # its sentence says "computed"
    return memory_words(run, kv, "At the peak, " if on_server else f"At the peak ({source(run)}), ")


def words_by_step(run: RunState, steps: Sequence[int]) -> list[str]:
    """The caption of the KV bars after each step, with the saving at the peak so far."""
    live = [0 if step.kv is None else len(step.kv.paths) for step in run.steps]
    peaks: list[int] = []
    for step, paths in enumerate(live):
        peaks.append(step if not peaks or paths >= live[peaks[-1]] else peaks[-1])
    forked = {run.paths[fork.children[0]].born for fork in run.forks()}
    return [
        # the tree shows the paths after the fork, but the pass had the paths before it
        memory_words(run, run.steps[step].kv, "Before the fork, " if step in forked else "")
        + _peak_words(run, step, peaks[step])
        for step in steps
    ]


def _peak_words(run: RunState, step: int, peak: int) -> str:
    kv, most = run.steps[step].kv, run.steps[peak].kv
    if kv is None or most is None or len(kv.paths) == len(most.paths):
        return ""
    if not most.bytes_held or most.block_size or not run.started.model.shares_rows:
        return ""
    ratio = separate_bytes(run.started, most) / most.bytes_held
    return f" At step {peak}, {len(most.paths)} separate caches would need {_as_much(ratio)}."


def memory_words(run: RunState, kv: KVUsage | None, when: str = "") -> str:
    """The bytes held, compared with separate caches (reserved rows count on both sides), and the
    part of them that is in the prefix cache.
    """
    if run.started.imported:
        return "No KV cache: the samples were imported."
    return "No KV cache yet." if kv is None else _held_words(run, kv, when) + _reused_words(run, kv)


def _reused_words(run: RunState, kv: KVUsage) -> str:
    if not kv.rows_reused:
        return ""
    held = human_bytes(kv.rows_reused * run.started.model.row_bytes)
    readers = f", read by {counted(kv.other_runs, 'other run')}, too" if kv.other_runs else ""
    return f" Of the KV held, {held} is in the prefix cache{readers}."


def _held_words(run: RunState, kv: KVUsage, when: str) -> str:
    paths = counted(len(kv.paths), "live path")
    if not kv.bytes_held:
        return f"No KV cache: every step processes the whole text of {paths} again."
    held, separate = human_bytes(kv.bytes_held), separate_bytes(run.started, kv)
    if kv.own_bytes and not run.started.model.shares_rows:
        each = ", each with a copy of its own; nothing is shared" if len(kv.paths) > 1 else ""
        return f"{when}{paths} in {held} of the model's own memory{each}."
    if kv.block_size:
        ratio = _as_much(separate / kv.bytes_held) if len(kv.paths) > 1 else "one path, alone"
        return (
            f"{when}{paths} in {held} on the server (computed, {_blocks(kv)}); separate caches "
            f"would need {human_bytes(separate)}: {ratio}.{_prefix_cache_words(kv)}"
        )
    reserved = human_bytes(kv.rows_spare * run.started.model.row_bytes)
    if len(kv.paths) == 1:
        part = f" ({reserved} of it reserved)" if kv.rows_spare else ""
        alone = "" if kv.rows_reused else " One path has nothing to share."
        return f"{when}{paths} in {held}{part}.{alone}"
    if kv.bytes_held <= separate:
        return (
            f"{when}{paths} in {held}; separate caches would need {human_bytes(separate)}: "
            f"{_as_much(separate / kv.bytes_held)}."
        )
    part = f", {reserved} of it reserved" if kv.rows_spare else ""
    return (
        f"{when}{paths} in {held}{part}: more than the {human_bytes(separate)} of separate caches. "
        f"{_reason(run, kv)}"
    )


def _blocks(kv: KVUsage) -> str:
    return "row by row" if kv.block_size == 1 else f"in blocks of {kv.block_size} rows"


def _prefix_cache_words(kv: KVUsage) -> str:
    if not kv.tokens_cached:
        return ""
    return (
        f" Of the {counted(kv.tokens_sent, 'token')} sent so far, the server had "
        f"{kv.tokens_cached / kv.tokens_sent:.0%} in its prefix cache (measured)."
    )


def _as_much(ratio: float) -> str:
    return f"{ratio:.1f}× as much" if ratio >= 1.05 else "about as much"


def _reason(run: RunState, kv: KVUsage) -> str:
    config, card = run.started.config, run.started.model
    longest = max(path_lengths(kv), default=0)
    if any(tokens < longest for tokens, _ in card.window_rows):
        return "They would keep only the last rows in layers with a window; the tree keeps all."
    if config.r != AUTO and config.r >= config.max_new_tokens:
        return f"r = {config.r} reserves all rows of the run at the start."
    before = takewhile(lambda step: step.kv is not kv, run.steps)
    if any(step.kv is not None and len(step.kv.paths) > len(kv.paths) for step in before):
        return "The rows of paths that ended stay reserved."
    return "A short text needs few of the reserved rows."


def source(run: RunState) -> str:
    """Whether the bytes of a run are measured or computed."""
    kv = run.last_kv
    on_server = kv is not None and kv.block_size > 0
    return "computed" if run.is_what_if or on_server else "measured"
