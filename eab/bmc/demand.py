"""A recorded run at any r: which rows the tensors would hold and copy, counted from its events. No
model, no tensors.

Which rows a run needs does not depend on r. Free rows are used again before the tensors grow, so
the tensors must hold the most rows that were in use so far. That is exact for the tree cache as
long as no private rows lie in lanes (on a
CPU: long private parts of many paths); then rows that ended paths leave stay unused for a while,
and the counts are a lower bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eab.caches.growth import CostModel, GrowthRule
from eab.run import Run


@dataclass(frozen=True, slots=True)
class Need:
    """One step of a run: rows in use in it, and the paths that took part."""

    step: int
    used: int
    paths: int


@dataclass(frozen=True, slots=True)
class Held:
    """One step at some r: rows in use, rows that the tensors hold, and rows that were copied to
    make them larger.
    """

    step: int
    used: int
    held: int
    copied: int
    grew: bool

    @property
    def spare(self) -> int:
        """Rows held for later steps, or left by paths that ended."""
        return self.held - self.used


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run asks of the tree cache. steps_allowed: max_new_tokens."""

    needs: tuple[Need, ...]
    steps_allowed: int
    paths_allowed: int
    row_bytes: int

    def at(self, r: int | GrowthRule) -> list[Held]:
        """Step by step what the tensors hold at this r."""
        if not self.needs:
            return []
        held = most = self.needs[0].used
        if (
            isinstance(r, int) and r >= self.steps_allowed
        ):  # all rows that the run can ever need, once
            held += self.paths_allowed * self.steps_allowed
        found = [Held(0, most, held, 0, True)]
        for before, need in zip(self.needs, self.needs[1:], strict=False):
            most, copied = max(most, need.used), 0
            if grew := most > held:
                steps = r if isinstance(r, int) else r(before.used, need.paths, need.paths)
                more = max(min(steps, self.steps_allowed - need.step) * need.paths, most - held)
                copied, held = held, held + more
            found.append(Held(need.step, need.used, held, copied, grew))
        return found


def demand_of(run: Run) -> Demand | None:
    """What a run asked for; None if nothing was measured, or its cache keeps rows in another way.

    None, too, with a drafter: the rows of wrong guesses come and go within a pass.
    """
    if run.started.config.cache != "tree" or run.started.config.drafter != "none":
        return None
    needs = tuple(
        Need(step.step, step.kv.rows_shared + step.kv.rows_private, len(step.kv.paths))
        for step in run.steps
        if step.kv is not None
    )
    config = run.started.config
    return (
        Demand(needs, config.max_new_tokens, config.max_paths, run.started.model.row_bytes)
        if needs
        else None
    )


def predicted_overhead(
    costs: CostModel, steps: Sequence[Held], paths: Sequence[int]
) -> tuple[float, float]:
    """-> seconds that the counted copies and allocations cost by the model, and that the spare rows
    cost in padded attention.

    paths: of each step, as many tokens go through the model.
    """
    growths = [step for step in steps[1:] if step.grew]
    copying = costs.copy_row * sum(step.copied for step in growths) + costs.allocation * len(
        growths
    )
    visiting = sum(
        costs.visit(tokens) * step.spare for step, tokens in zip(steps[1:], paths[1:], strict=True)
    )
    return copying, visiting
