"""A run as tables, for reading, for downloads, and as the full equivalent of the pictures."""

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import pandas as pd

from eab import token_text
from eab.analysis.answers import Answers
from eab.analysis.sweep import RunCost, Sweep
from eab.bmc.demand import Demand, predicted_overhead
from eab.bmc.results import Point, Report, RTimed, SizeTimed
from eab.caches.growth import Calibration, CostModel, overhead
from eab.run import Run


def samples_table(run: Run) -> pd.DataFrame:
    """One line per leaf, the heaviest first. log_prob and mean_entropy in nats."""
    lines = [
        {
            "weight": sample.weight,
            "text": sample.text,
            "log_prob": sample.log_prob,
            "mean_entropy": math.fsum(sample.entropies) / len(sample.entropies)
            if sample.entropies
            else 0.0,
            "tokens": len(sample.token_ids),
            "end": sample.finish_reason,
            "path": sample.lineage[-1],
        }
        for sample in run.samples()
    ]
    return pd.DataFrame(
        lines, columns=["weight", "text", "log_prob", "mean_entropy", "tokens", "end", "path"]
    )


def answers_table(answers: Answers) -> pd.DataFrame:
    """One line per answer, the heaviest first: estimated probability (weight), certain bounds of
    it, and its leaves.
    """
    lines = [
        {
            "answer": answer.text,
            "weight": answer.weight,
            "at_least": answer.low,
            "at_most": answer.high,
            "texts": len(answer.leaves),
            "paths": " ".join(map(str, answer.leaves)),
        }
        for answer in answers.ranked
    ]
    return pd.DataFrame(
        lines, columns=["answer", "weight", "at_least", "at_most", "texts", "paths"]
    )


def tokens_table(run: Run) -> pd.DataFrame:
    """One line per generated token of the tree, in order of birth of the paths."""
    lines = [
        {
            "path": path.id,
            "parent": path.parent,
            "step": token.step,
            "token_id": token.token,
            "token": token_text.visible(token.text),
            "probability": math.exp(token.log_prob),
            "entropy": token.entropy,
            "path_weight": path.weight,
            "path_status": path.status,
        }
        for path in run.paths
        for token in path.tokens
    ]
    return pd.DataFrame(lines)


def steps_table(run: Run) -> pd.DataFrame:
    """One line per decode step: live paths, KV bytes (held: measured; independent: computed),
    milliseconds.

    Of a run that was re-read, bytes are computed and there are no times.
    """
    row_bytes = run.started.model.row_bytes
    lines = [
        {
            "step": step.step,
            "live_paths": len(step.kv.paths),
            "shared_bytes": step.kv.rows_shared * row_bytes,
            "private_bytes": step.kv.rows_private * row_bytes,
            "spare_bytes": step.kv.rows_spare * row_bytes,
            "held_bytes": step.kv.bytes_held,
            "independent_bytes": step.kv.rows_independent * row_bytes,
            "rows_copied": step.growth.rows_copied if step.growth else 0,
            "milliseconds": step.timing.seconds * 1000
            if step.timing and not run.is_what_if
            else None,
        }
        for step in run.steps
        if step.kv is not None
    ]
    return pd.DataFrame(lines)


def costs_table(sweep: Sweep) -> pd.DataFrame:
    """One line per variant: seconds, tokens, bytes, allocations of its whole run. All measured."""
    names = [field.name for field in fields(RunCost)]
    return pd.DataFrame([asdict(cost) for cost in sweep.costs()], columns=names)


def sweep_steps_table(sweep: Sweep) -> pd.DataFrame:
    """One line per variant and step: as `steps_table`, and what was copied and allocated so far."""
    tables = []
    for name, run in sweep.pairs:
        table = steps_table(run)
        kv = [step.kv for step in run.steps if step.kv is not None]
        table.insert(0, "variant", name)
        table["copied_bytes_so_far"] = [one.bytes_copied for one in kv]
        table["allocations_so_far"] = [one.allocations for one in kv]
        table["peak_bytes_so_far"] = [one.peak_bytes for one in kv]
        table["tokens_through_model"] = [
            step.timing.tokens if step.timing else 0 for step in run.steps if step.kv
        ]
        tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def named(lines: Sequence[Sequence[str]], columns: Sequence[str]) -> pd.DataFrame:
    """Lines of text under these headings, the first column as the index."""
    return pd.DataFrame(lines, columns=pd.Index(columns)).set_index(columns[0])


def allocations_table(demand: Demand, rs: Sequence[int], costs: CostModel | None) -> pd.DataFrame:
    """One line per r for a recorded run: counted growths, rows and bytes; with costs, predicted
    seconds.
    """
    paths = [need.paths for need in demand.needs]
    lines = []
    for r in rs:
        steps = demand.at(r)
        line: dict[str, Any] = {
            "r": r,
            "growths": sum(step.grew for step in steps[1:]),
            "rows_copied": sum(step.copied for step in steps),
            "bytes_copied": sum(step.copied for step in steps) * demand.row_bytes,
            "spare_rows_mean": sum(step.spare for step in steps) / len(steps),
            "most_bytes_held": max(step.held for step in steps) * demand.row_bytes,
        }
        if costs is not None:
            copying, visiting = predicted_overhead(costs, steps, paths)
            line |= {"predicted_copy_seconds": copying, "predicted_spare_seconds": visiting}
        lines.append(line)
    return pd.DataFrame(lines)


def points_table(report: Report) -> pd.DataFrame:
    """One line per measured point; seconds and bytes."""
    fitted = report.fitted
    lines = [
        line
        for point in report.points
        if not isinstance(point, Calibration)
        for line in _lines(point, fitted)
    ]
    return pd.DataFrame(lines)


def _lines(point: Point, fitted: Calibration | None) -> list[dict[str, Any]]:
    line = asdict(point)
    if isinstance(point, SizeTimed):
        line.pop("overheads")
        return [line | {"r": r, "overhead": seconds} for r, seconds in point.overheads]
    if isinstance(point, RTimed):
        line |= {f"work_{name}": value for name, value in line.pop("work").items()}
        if fitted is not None and point.padded:
            line["predicted_overhead"] = overhead(fitted.costs, point.work, point.r)
    return [line]
