"""The runs of a comparison as tables for download."""

import pandas as pd

from eab.figures.tables import steps_table
from eab.labs.variants.results import VariantRuns, cost_values


def costs_table(compared: VariantRuns) -> pd.DataFrame:
    """One row per variant: measured seconds (median and quartiles), tokens, bytes, allocations."""
    return pd.DataFrame([cost_values(cost) for cost in compared.costs()])


def variant_steps_table(compared: VariantRuns) -> pd.DataFrame:
    """One row per variant and step: `steps_table`, with bytes copied and allocations so far."""
    tables = []
    for name, run in compared.pairs:
        table = steps_table(run)
        kv = [step.kv for step in run.steps if step.kv is not None]
        table.insert(0, "variant", name)
        table["copied_bytes_so_far"] = [usage.bytes_copied for usage in kv]
        table["allocations_so_far"] = [usage.allocations for usage in kv]
        table["peak_bytes_so_far"] = [usage.peak_bytes for usage in kv]
        table["tokens_through_model"] = [
            step.timing.tokens if step.timing else 0 for step in run.steps if step.kv
        ]
        tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
