"""A recorded run at any growth step: how many rows the tensors would hold and copy.

Rows are counted from the events of the run. The rows that a run needs do not depend on r: free rows
are reused before the tensors grow, and the tensors shrink after paths end. The memory limit is
ignored: near it, the tree cache grows by fewer rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eab.caches.growth import CostModel, growth_step, should_shrink
from eab.config import AllocationStep
from eab.run import RunState


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
    """The rows that a run needed from the tree cache; None for a model without rows, and with
    drafts, whose rows are added and removed within a pass.
    """
    config = run.started.config
    if config.cache != "tree" or config.drafter != "none" or not run.started.model.shares_rows:
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
