"""The KV memory of finished runs under three allocation schemes, step by step.

- slab: each path reserves memory for its longest possible text, prompt + max_new_tokens, when it
  starts, and copies all it reads, as on a server that reserves the maximum (computed).
- blocks: rows are allocated in blocks; paths share full blocks (computed by `eab.caches.blocks`).
- tree: the run's own cache; paths share single rows, and it grows by r steps (measured).

Under all three schemes, different runs share nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from eab.caches.blocks import BLOCK_SIZE, BlockLedger
from eab.config import AllocationStep
from eab.errors import ConfigError, RecordError
from eab.events import KVUsage
from eab.formatting import counted
from eab.run import RunState

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
