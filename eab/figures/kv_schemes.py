"""The KV memory of finished runs under three allocation schemes, step by step: computed, and as a
chart, a sentence and tables.

- slab: each path reserves memory for its longest possible text, prompt + max_new_tokens, when it
  starts, and copies all it reads, as on a server that reserves the maximum (computed).
- blocks: rows are allocated in blocks; paths share full blocks (`eab.engine.caches.ledger`).
- tree: the run's own cache; paths share single rows, and it grows by r steps (measured).

Under all three schemes, different runs share nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from eab.config import AllocationStep
from eab.engine.caches.ledger import BLOCK_SIZE, BlockLedger
from eab.errors import ConfigError, RecordError
from eab.formatting import counted, human_bytes, listed, with_ratio
from eab.run import RunState
from eab.run.events import KVUsage
from eab.timing import NOTHING_YET

if TYPE_CHECKING:
    import pandas as pd

    from eab.figures.charts import go


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


# For each part of the reserved bytes: name in the legend, field of Reserved, pattern
_PARTS: Final = (
    ("tokens", "used", ""),
    ("the same tokens again", "copied", "/"),
    ("empty", "empty", "."),
)


def allocation_figure(allocation: KvAllocation) -> "go.Figure":
    """Reserved bytes over the steps, by contents: one chart per scheme, one below the other."""
    from eab.figures.charts import (
        BLUE,
        GREY,
        ORANGE,
        bar_pattern,
        byte_unit,
        laid_out,
        make_subplots,
    )

    colours = (BLUE, ORANGE, GREY)
    titles = [f"{_name(allocation, scheme)} ({_source(allocation, scheme)})" for scheme in SCHEMES]
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.1, subplot_titles=titles
    )
    most = max(map(allocation.peak, SCHEMES))
    unit, unit_name = byte_unit(most)
    for row, scheme in enumerate(SCHEMES, start=1):
        for (name, field, pattern), colour in zip(_PARTS, colours, strict=True):
            values = [getattr(reserved, field) / unit for reserved in allocation.steps[scheme]]
            numbers = [*range(len(values))]
            figure.add_scatter(
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                x=[*numbers, len(numbers)] if numbers else [],  # the last step also has a width
                y=values + values[-1:],
                customdata=numbers + numbers[-1:],
                mode="lines",
                line={"shape": "hv", "width": 0, "color": colour},
                stackgroup=scheme,
                fillcolor=colour,
                fillpattern=bar_pattern(pattern),
                hovertemplate=f"step %{{customdata}}, {name}: %{{y:.2f}} {unit_name}"
                "<extra></extra>",
                row=row,
                col=1,
            )
    figure.update_yaxes(title=f"{unit_name} reserved", range=[0, 1.05 * most / unit or 1])
    figure.update_xaxes(title="step", row=3, col=1)
    return laid_out(figure, height=620)


def allocation_sentence(allocation: KvAllocation) -> str:
    """What each scheme reserves at its peak, smallest first."""
    if not allocation.steps["tree"]:
        return NOTHING_YET
    ranked = sorted(SCHEMES, key=allocation.peak)
    least = allocation.peak(ranked[0])
    peaks = [
        f"{_name(allocation, scheme)} {with_ratio(allocation.peak(scheme), least, human_bytes)}"
        for scheme in ranked
    ]
    return f"Reserved at the peak: {'; '.join(peaks)}."


def allocation_table(allocation: KvAllocation) -> "pd.DataFrame":
    """For reading: what each scheme reserves at its peak, and what this holds over all steps."""
    from eab.figures.tables import text_table

    sums = [allocation.sum(scheme) for scheme in SCHEMES]
    rows = [("reserved at the peak", *(human_bytes(allocation.peak(scheme)) for scheme in SCHEMES))]
    rows += [
        (
            f"{name}, over all steps",
            *(_share(getattr(reserved, field), reserved.total) for reserved in sums),
        )
        for name, field, _ in _PARTS
    ]
    rows.append(("source", *(_source(allocation, scheme) for scheme in SCHEMES)))
    return text_table(rows, ["Measure", *(_name(allocation, scheme) for scheme in SCHEMES)])


def allocation_steps_table(allocation: KvAllocation) -> "pd.DataFrame":
    """For download: one row per step and scheme, in bytes."""
    import pandas as pd

    rows = [
        (step, scheme, part.used, part.copied, part.empty, part.total, _source(allocation, scheme))
        for scheme in SCHEMES
        for step, part in enumerate(allocation.steps[scheme])
    ]
    names = ["step", "scheme", "used_bytes", "copied_bytes", "empty_bytes", "reserved_bytes"]
    return pd.DataFrame(rows, columns=[*names, "source"])


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _name(allocation: KvAllocation, scheme: Scheme) -> str:
    match scheme:
        case "slab":
            return "slabs"
        case "blocks":
            return f"blocks of {allocation.block_size}"
        case "tree":
            return f"tree, r = {listed([*map(str, allocation.rs)])}"


def _source(allocation: KvAllocation, scheme: Scheme) -> str:
    return "measured" if scheme == "tree" and allocation.measured else "computed"
