"""The KV memory of finished runs under three allocation schemes, step by step.

- slab: each path reserves memory for its longest possible text, prompt + max_new_tokens, when it
  starts, and copies all it reads, as on a server that reserves the maximum (computed).
- blocks: rows are allocated in blocks; paths share full blocks (`eab.engine.caches.blocks`).
- tree: the run's own cache; paths share single rows, and it grows by r steps (measured).

Under all three schemes, different runs share nothing.

A recorded run can be computed at any growth step. Rows are counted from the events of the run. The
rows that a run needs do not depend on r: free rows are reused before the tensors grow, and the
tensors shrink after paths end. The memory limit is ignored: near it, the tree cache grows by fewer
rows.

Separate caches, one for each live path, are computed, too. Such a cache is a tree cache with a
single path: it holds the prompt and grows by the same r, so reserved rows count on both sides. The
other caches never reserve rows. In a layer that reads only the last tokens, a separate cache keeps
only the rows of those tokens, as transformers does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias, get_args

from eab.config import AllocationStep
from eab.engine.caches.blocks import BLOCK_SIZE, BlockLedger
from eab.engine.caches.growth import CostModel, growth_step, should_shrink
from eab.errors import ConfigError, RecordError
from eab.formatting import counted
from eab.run import RunState
from eab.run.events import KVUsage, ModelCard, RunStarted

Scheme: TypeAlias = Literal["slab", "blocks", "tree"]
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The bytes that are reserved in one step, by what they contain."""

    used: int = 0  # each token of the tree, once
    copied: int = 0  # further copies of these tokens, for other paths
    empty: int = 0  # not written yet, or freed

    def __add__(self, other: "Reserved") -> "Reserved":
        return Reserved(
            self.used + other.used, self.copied + other.copied, self.empty + other.empty
        )

    @property
    def total(self) -> int:
        """All bytes reserved."""
        return self.used + self.copied + self.empty

    @property
    def wasted(self) -> int:
        """Bytes that would be saved if each token were stored once and nothing were reserved."""
        return self.copied + self.empty


@dataclass(frozen=True, slots=True)
class KvAllocation:
    """The bytes that all runs together reserve in each step of a common time axis."""

    block_size: int
    rs: tuple[AllocationStep, ...]  # the distinct growth steps r of the runs
    measured: bool  # whether the tree's bytes were measured; for a what-if run they are computed
    steps: Mapping[Scheme, tuple[Reserved, ...]]  # by scheme and step

    def peak(self, scheme: Scheme) -> int:
        """The most bytes reserved in any step."""
        return max((reserved.total for reserved in self.steps[scheme]), default=0)

    def sum(self, scheme: Scheme) -> Reserved:
        """The reserved bytes summed over all steps (bytes times steps)."""
        return sum(self.steps[scheme], Reserved())

    def wasted_share(self, scheme: Scheme) -> float:
        """The share of the reserved bytes that is wasted, over all steps."""
        reserved = self.sum(scheme)
        return reserved.wasted / reserved.total if reserved.total else 0.0


def kv_allocation(
    runs: Sequence[RunState], block_size: int = BLOCK_SIZE, first_steps: Sequence[int] | None = None
) -> KvAllocation:
    """What runs with the tree cache reserve under each scheme, added up.

    Each run starts at its step in `first_steps`, by default 0.

    Raises:
        ConfigError: A run used another cache, or the block size is not allowed.
        RecordError: The measurements contradict the tree of the run.
    """
    steps: list[dict[Scheme, Reserved]] = []
    for run, begin in zip(runs, first_steps or [0] * len(runs), strict=True):
        if run.started.config.cache != "tree":
            raise ConfigError(
                f"this run used the cache {run.started.config.cache!r}; KV allocation needs a "
                "run with the cache 'tree'"
            )
        for step, reserved in _steps_of(run, block_size):
            missing = begin + step + 1 - len(steps)
            steps += [dict.fromkeys(SCHEMES, Reserved()) for _ in range(missing)]
            for scheme in SCHEMES:
                steps[begin + step][scheme] += reserved[scheme]
    return KvAllocation(
        block_size,
        tuple(dict.fromkeys(run.started.config.r for run in runs)),
        not any(run.is_what_if for run in runs),
        {scheme: tuple(step[scheme] for step in steps) for scheme in SCHEMES},
    )


def block_usages(run: RunState, block_size: int) -> Iterator[tuple[int, KVUsage, KVUsage]]:
    """For each measured step: its number, the usage of the run's cache, and that of blocks."""
    ledger = BlockLedger(block_size, run.started.model.row_bytes)
    live = {0}
    for step in run.steps:
        if step.kv is not None:
            now = {path.path: path.shared + path.private for path in step.kv.paths}
            _end_paths(ledger, run, live - now.keys(), now)
            _set_lengths(ledger, run, now)
            live = set(now)
            yield step.step, step.kv, ledger.usage(list(now))


def _steps_of(run: RunState, block_size: int) -> Iterator[tuple[int, dict[Scheme, Reserved]]]:
    started, row = run.started, run.started.model.row_bytes
    longest = len(started.prompt_tokens) + started.config.max_new_tokens
    for step, tree, blocks in block_usages(run, block_size):
        distinct = tree.rows_shared + tree.rows_private
        in_blocks = blocks.rows_shared + blocks.rows_private
        slabs, in_slabs = len(tree.paths) * longest, tree.rows_independent
        rows: dict[Scheme, tuple[int, int]] = {  # filled rows, empty rows
            "slab": (in_slabs, slabs - in_slabs),
            "blocks": (in_blocks, blocks.rows_spare),
            "tree": (distinct, tree.rows_spare),
        }
        yield (
            step,
            {
                scheme: Reserved(distinct * row, (filled - distinct) * row, empty * row)
                for scheme, (filled, empty) in rows.items()
            },
        )


def _end_paths(ledger: BlockLedger, run: RunState, ended: set[int], now: Mapping[int, int]) -> None:
    for path in ended:
        children = [child for child in run.paths[path].children if child in now]
        if children:
            ledger.fork(path, children)
        else:
            ledger.release(path)


def _set_lengths(ledger: BlockLedger, run: RunState, now: Mapping[int, int]) -> None:
    """Set each path to its measured length; with draft tokens, a step may add several tokens."""
    longest = len(run.started.prompt_tokens) + run.started.config.max_new_tokens
    for path, length in now.items():
        if path not in ledger.paths or length > longest:
            raise RecordError(
                f"path {path} has {counted(length, 'row')}, which contradicts the tree of the "
                "run; the run file is damaged"
            )
        ledger.trim(path, length)
        ledger.append(path, length - ledger.length(path))


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
