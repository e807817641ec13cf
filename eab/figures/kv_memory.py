"""The KV rows that a recorded run needs, at any growth step and in separate caches, and sentences
about its bytes.

Rows are counted from the events of the run. The rows that a run needs do not depend on r: free rows
are reused before the tensors grow, and the tensors shrink after paths end. The memory limit is
ignored: near it, the tree cache grows by fewer rows.

Separate caches, one for each live path, are computed, too. Such a cache is a tree cache with a
single path: it holds the prompt and grows by the same r, so reserved rows count on both sides. The
other caches never reserve rows. In a layer that reads only the last tokens, a separate cache keeps
only the rows of those tokens, as transformers does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from eab.config import AUTO, AllocationStep
from eab.engine.caches.growth import CostModel, growth_step, should_shrink
from eab.formatting import counted, human_bytes
from eab.run import RunState
from eab.run.events import KVUsage, ModelCard, RunStarted


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows that one step of a run needs."""

    step: int
    used: int
    paths: int


@dataclass(frozen=True, slots=True)
class StepAllocation:
    """What the tensors contain in one step, for a given r."""

    step: int
    used: int
    held: int  # rows that the tensors hold
    copied: int  # rows that were copied by a growth
    grew: bool

    @property
    def spare(self) -> int:
        """Rows held for later steps, or left over from paths that ended."""
        return self.held - self.used


@dataclass(frozen=True, slots=True)
class Demand:
    """The rows that a run needs from the tree cache."""

    needs: tuple[StepRows, ...]
    steps_allowed: int
    paths_allowed: int
    row_bytes: int

    def at(self, r: AllocationStep) -> list[StepAllocation]:
        """What the tensors hold in each step with growth step r."""
        if not self.needs:
            return []
        reserved = self.needs[0].used
        if isinstance(r, int) and r >= self.steps_allowed:  # all rows are allocated up front
            reserved += self.paths_allowed * (self.steps_allowed - 1)
        held = reserved
        allocations = [StepAllocation(0, self.needs[0].used, held, 0, True)]
        for need in self.needs[1:]:
            before, left = need.used - need.paths, self.steps_allowed - need.step
            steps = growth_step(r, before, need.paths)
            ahead, copied = min(steps, left) * need.paths, 0
            least = max(reserved, need.used)
            if should_shrink(held, least, max(reserved, need.used + ahead)):
                held = max(reserved, need.used + ahead)
            if grew := need.used > held:
                missing = need.used - held
                fillable = left * need.paths - (need.paths - missing)
                copied, held = held, held + max(min(ahead, fillable), missing)
            allocations.append(StepAllocation(need.step, need.used, held, copied, grew))
        return allocations


def demand_of(run: RunState) -> Demand | None:
    """The rows that a run needed from the tree cache; None for a model without rows, with drafts,
    whose rows are added and removed within a pass, and for best-first, whose passes are not steps.
    """
    config = run.started.config
    by_step = config.drafter == "none" and config.by_step
    if config.cache != "tree" or not by_step or not run.started.model.shares_rows:
        return None
    needs = tuple(
        StepRows(step.step, step.kv.rows_shared + step.kv.rows_private, len(step.kv.paths))
        for step in run.steps
        if step.kv is not None
    )
    return (
        Demand(needs, config.max_new_tokens, config.max_paths, run.started.model.row_bytes)
        if needs
        else None
    )


def best_r_of(demand: Demand, rs: Sequence[int], costs: CostModel) -> int:
    """The r that the cost model prefers for this run with padded attention."""
    paths = [need.paths for need in demand.needs]
    return min(rs, key=lambda r: _overhead(costs, demand.at(r), paths))


def _overhead(costs: CostModel, steps: Sequence[StepAllocation], paths: Sequence[int]) -> float:
    """Seconds in the cost model. They only rank growth steps: machines are not this steady."""
    growths = [step for step in steps[1:] if step.grew]
    copied = sum(step.copied for step in growths)
    return (
        costs.copy_row * copied
        + costs.allocation * len(growths)
        + sum(
            costs.spare_row_seconds(tokens) * step.spare
            for step, tokens in zip(steps[1:], paths[1:], strict=True)
        )
    )


def separate_bytes(started: RunStarted, kv: KVUsage) -> int:
    """Bytes that separate caches would hold (computed), one cache for each live path of `kv`."""
    config, prompt = started.config, len(started.prompt_tokens)
    own = sum(kv.own_bytes)
    if own and not started.model.shares_rows:
        return own
    lengths = path_lengths(kv)
    if kv.block_size:
        lengths = [-(-length // kv.block_size) * kv.block_size for length in lengths]
    elif config.cache == "tree":
        lengths = [_held(prompt, length, config.max_new_tokens, config.r) for length in lengths]
    return bytes_of_texts(started.model, lengths) + own


def bytes_of_texts(card: ModelCard, lengths: Sequence[int]) -> int:
    """Bytes of the rows that texts of these lengths need, each in a cache of its own."""
    everywhere = card.row_bytes - sum(row_bytes for _, row_bytes in card.window_rows)
    in_windows = (
        row_bytes * sum(min(length, tokens) for length in lengths)
        for tokens, row_bytes in card.window_rows
    )
    return max(0, everywhere) * sum(lengths) + sum(in_windows)


def path_lengths(kv: KVUsage) -> list[int]:
    """Tokens of each live path; if a cache keeps no rows, their known sum is divided equally."""
    lengths = [path.shared + path.private for path in kv.paths]
    if any(lengths) or not lengths:
        return lengths
    each, rest = divmod(kv.rows_independent, len(lengths))
    return [each + (index < rest) for index in range(len(lengths))]


def _held(prompt: int, length: int, max_new_tokens: int, r: AllocationStep) -> int:
    held, new = _held_by_new_tokens(prompt, max_new_tokens, r), length - prompt
    return held[new] if 0 <= new < len(held) else length


@lru_cache(maxsize=64)
def _held_by_new_tokens(prompt: int, max_new_tokens: int, r: AllocationStep) -> Sequence[int]:
    """Rows that the cache of a single path holds after 0, 1, 2 ... new tokens."""
    needs = tuple(StepRows(step, prompt + step, 1) for step in range(max_new_tokens))
    steps = Demand(needs, max_new_tokens, 1, 0).at(r)
    return tuple(step.held for step in steps)


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
