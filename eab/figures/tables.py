"""Runs, comparisons and measurements as tables, for reading and for download."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

import pandas as pd

from eab import token_text
from eab.analysis.answers import Answers
from eab.analysis.uncertainty import ForkShare, Uncertainty
from eab.config import SETTINGS
from eab.figures.kv_memory import separate_bytes
from eab.figures.uncertainty import effect, text_before
from eab.formatting import shortened
from eab.run import RunState

_MAX_BRANCHES: Final = 6

# Headings for tables that are read; files for download keep the column names.
_HEADINGS: Final = {
    "log_prob": "log-probability (nats)",
    "mean_entropy": "mean entropy (nats)",
    "end": "ended by",
    "explored": "probability seen",
    "at_least": "at least",
    "at_most": "at most",
    "contribution": "semantic entropy (nats)",
    "share": "of all",
    "parent": "parent path",
    "token_id": "token number",
    "entropy": "entropy (nats)",
    "path_weight": "weight of path",
    "path_status": "state of path",
    "live_paths": "live paths",
    "rows_spare": "rows reserved",
    "shared_bytes": "shared (KiB)",
    "private_bytes": "private (KiB)",
    "spare_bytes": "reserved (KiB)",
    "held_bytes": "held (KiB)",
    "independent_bytes": "separate caches (KiB)",
    "rows_copied": "rows copied",
    "milliseconds": "time (ms)",
}
# What a spreadsheet takes for a formula, also after spaces
_FORMULA: Final = re.compile(r"\s*[=+\-@\t\r|]")


def as_csv(table: pd.DataFrame) -> str:
    """The table as CSV for download. A text that a spreadsheet would run as a formula begins with
    an apostrophe.
    """
    return table.map(_plain_cell).to_csv(index=False, lineterminator="\n")


def _plain_cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The table for reading: plain headings, bytes in KiB, no columns without values."""
    in_kib = {name: table[name] / 1024 for name in table.columns if name.endswith("_bytes")}
    return table.assign(**in_kib).dropna(axis="columns", how="all").rename(columns=_HEADINGS)


def samples_table(run: RunState) -> pd.DataFrame:
    """One row per leaf, highest weight first, and then the explored texts, without weight and path;
    log_prob and mean_entropy in nats. Imported samples with rewards or labels also have a `reward`.
    """
    samples = [*run.samples, *run.explored]
    rows = [
        {
            "weight": sample.weight,
            "text": sample.text,
            "log_prob": sample.log_prob,
            "mean_entropy": sample.mean_entropy,
            "tokens": len(sample.token_ids),
            "end": sample.finish_reason,
            "path": sample.lineage[-1] if sample.lineage else None,
        }
        for sample in samples
    ]
    table = pd.DataFrame(
        rows, columns=["weight", "text", "log_prob", "mean_entropy", "tokens", "end", "path"]
    ).astype({"log_prob": float, "mean_entropy": float, "path": "Int64"})
    if any(sample.reward is not None for sample in samples):
        table["reward"] = [sample.reward for sample in samples]
    return table


def samples_of_runs_table(runs: Iterable[tuple[str, RunState]]) -> pd.DataFrame:
    """`samples_table` of several runs, with ids, prompts, seeds and settings that differ."""
    tables: list[pd.DataFrame] = []
    configs: list[dict[str, Any]] = []
    for name, run in runs:
        table = samples_table(run)
        table.insert(0, "id", name)
        table.insert(1, "prompt", run.started.prompt)
        tables.append(table)
        configs.append(asdict(run.started.config))
    varied = [name for name in SETTINGS if len({config[name] for config in configs}) > 1]
    for name in dict.fromkeys(("seed", *varied)):
        # r may be the word "auto"
        words = any(isinstance(config[name], str | tuple) for config in configs)
        for table, config in zip(tables, configs, strict=True):
            table[name] = str(config[name]) if words else config[name]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def answers_table(answers: Answers) -> pd.DataFrame:
    """One row per answer, in their order: weight, certain bounds, number of texts, paths."""
    rows = [
        {
            "answer": answer.name,
            "weight": answer.estimate,
            "at_least": answer.low,
            "at_most": answer.high,
            "texts": answer.texts,
            "paths": " ".join(map(str, answer.leaves)),
        }
        for answer in answers.ranked
    ]
    return pd.DataFrame(rows, columns=["answer", "weight", "at_least", "at_most", "texts", "paths"])


def uncertainty_table(scores: Uncertainty) -> pd.DataFrame:
    """One row per score: its value in nats (NaN: not measured), what it means and rests on."""
    rows = [
        ("semantic entropy", scores.semantic, "over answers, by the weights and the forks"),
        (
            "semantic entropy, discrete",
            scores.discrete,
            "over answers, all texts with equal weight",
        ),
        (
            "semantic entropy, Rao-Blackwellised",
            scores.rao_blackwellised,
            "over answers, by the probability seen",
        ),
        ("predictive entropy", scores.predictive, "over texts: weighted mean of -ln p"),
        (
            "length-normalised predictive entropy",
            scores.length_normalised,
            "weighted mean of -ln p per token",
        ),
    ]
    table = pd.DataFrame(rows, columns=["score", "nats", "meaning"]).astype({"nats": float})
    return table.assign(texts=scores.texts, explored=scores.explored)


def forks_table(run: RunState, forks: Sequence[ForkShare]) -> pd.DataFrame:
    """One row per fork, the largest contribution to the semantic entropy first."""
    total = sum(fork.contribution for fork in forks)
    rows = [
        {
            "after": text_before(run, fork),
            "branches": _branches(run, fork),
            "contribution": fork.contribution,
            "share": fork.contribution / total if total else 0.0,
            "decides": effect(fork),
            "path": fork.path,
        }
        for fork in forks
    ]
    return pd.DataFrame(
        rows, columns=["after", "branches", "contribution", "share", "decides", "path"]
    )


def _branches(run: RunState, fork: ForkShare) -> str:
    children = [run.paths[child] for child in run.paths[fork.path].children]
    children.sort(key=lambda child: -child.share)
    named = [
        f"{shortened(token_text.visible(child.tokens[0].text).strip(), 20)} {child.share:.0%}"
        for child in children[:_MAX_BRANCHES]
        if child.tokens
    ]
    return " · ".join([*named, "…"] if len(children) > _MAX_BRANCHES else named)


def tokens_table(run: RunState) -> pd.DataFrame:
    """One row per generated token of the tree; paths in the order in which they started."""
    rows = [
        {
            "path": path.id,
            "parent": path.parent,
            "step": token.step,
            "token_id": token.id,
            "token": token_text.visible(token.text),
            "probability": None if token.log_prob is None else math.exp(token.log_prob),
            "entropy": token.entropy,
            "path_weight": path.weight,
            "path_status": path.status,
        }
        for path in run.paths
        for token in path.tokens
    ]
    return pd.DataFrame(rows)


def steps_table(run: RunState) -> pd.DataFrame:
    """One row per step: live paths, r, KV rows in use and reserved, bytes (`independent_bytes`
    computed), rows copied, time."""
    row_bytes, uses = run.started.model.row_bytes, ("shared_bytes", "private_bytes", "spare_bytes")
    rows = [
        {
            "step": step.step,
            "live_paths": len(step.kv.paths),
            "r": run.started.config.r,
            "rows": step.kv.rows_shared + step.kv.rows_private,
            "rows_spare": step.kv.rows_spare,
            **dict(zip(uses, step.kv.bytes_by_use(row_bytes), strict=True)),
            "held_bytes": step.kv.bytes_held,
            "independent_bytes": separate_bytes(run.started, step.kv),
            "rows_copied": step.growth.rows_copied if step.growth else 0,
            "milliseconds": step.timing.seconds * 1000
            if step.timing and not run.is_what_if
            else None,
        }
        for step in run.steps
        if step.kv is not None
    ]
    return pd.DataFrame(rows)


def text_table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> pd.DataFrame:
    """A table of text with these headings; the first column becomes the index."""
    return pd.DataFrame(rows, columns=pd.Index(columns)).set_index(columns[0])
