"""A run in words, tables and JSON values: what the command line prints and what scripts read."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from eab import token_text
from eab.analysis.answers import Answer, Answers
from eab.analysis.sweep import Sweep
from eab.figures.captions import answers_sentence, cost_sentence, sweep_sentence
from eab.figures.sweep_table import COST_NOTE, sweep_rows
from eab.run import Path, Run, Sample

Place: TypeAlias = tuple[int, int]  # id of a path, number of its token; -1 if it has none
WIDE: Final = 100  # columns of a terminal from which on the tables have all their columns
UNKNOWN: Final = "◇"
KV_NAMES: Final = (
    "bytes_held",
    "bytes_shared",
    "bytes_private",
    "bytes_spare",
    "bytes_independent",
    "bytes_copied",
    "allocations",
    "peak_bytes",
)


def as_json(run: Run) -> dict[str, Any]:
    """Samples, KV bytes at the peak, settings and seconds of a run, as plain JSON values."""
    started = run.started
    return {
        "prompt": started.prompt,
        "samples": [_sample_json(sample) for sample in run.samples()],
        "kv": kv_bytes(run),
        "settings": asdict(started.config),
        "threshold_nats": started.threshold_nats,
        "model": asdict(started.model),
        "tokens_through_model": run.tokens_through_model(),
        "seconds": run.seconds(),
        "what_if": started.what_if,
        "ended": run.ended.reason if run.ended else None,
    }


def answers_as_json(answers: Answers) -> dict[str, Any]:
    """Answers with estimates and certain bounds, as plain JSON values; entropies in nats."""
    return {
        "ranked": [asdict(answer) | {"leaves": list(answer.leaves)} for answer in answers.ranked],
        "explored": answers.explored,
        "undecided": list(answers.undecided),
        "entropy": answers.entropy,
        "entropy_bounds": list(answers.entropy_bounds),
    }


def kv_bytes(run: Run) -> dict[str, int]:
    """Bytes of the KV cache, by the names in KV_NAMES.

    At the step with the most distinct rows, `bytes_held` (measured) is the sum of `bytes_shared`,
    `bytes_private` and `bytes_spare`; `bytes_independent` (computed) is what the same paths would
    take in separate caches. `bytes_copied`, `allocations` and `peak_bytes` are of the whole run,
    measured. All are 0 for a run that measured nothing.
    """
    kv, last = run.peak_kv(), run.last_kv()
    if kv is None or last is None:
        return dict.fromkeys(KV_NAMES, 0)
    row = run.started.model.row_bytes
    return {
        "bytes_held": kv.bytes_held,
        "bytes_shared": kv.rows_shared * row,
        "bytes_private": kv.rows_private * row,
        "bytes_spare": kv.rows_spare * row,
        "bytes_independent": kv.rows_independent * row,
        "bytes_copied": last.bytes_copied,
        "allocations": last.allocations,
        "peak_bytes": last.peak_bytes,
    }


def _sample_json(sample: Sample) -> dict[str, Any]:
    return {
        "text": sample.text,
        "token_ids": list(sample.token_ids),
        "log_prob": sample.log_prob,
        "weight": sample.weight,
        "entropies": list(sample.entropies),
        "finish_reason": sample.finish_reason,
        "lineage": list(sample.lineage),
    }


def summary(run: Run, *, narrow: bool = False, unknown: Collection[Place] = ()) -> RenderableType:
    """The tree, the samples and the cost of a run, for a terminal.

    Args:
        narrow: The terminal has less than WIDE columns: leave out columns of numbers.
        unknown: Places of a what-if run that only the model knows; they are marked with UNKNOWN.
    """
    samples = _sample_table(run, narrow, unknown)
    return Group(_tree(run, unknown), samples, Text(cost_sentence(run)))


def sweep_json(sweep: Sweep) -> dict[str, Any]:
    """What each variant took, and whether all gave the same tokens, as plain JSON values."""
    costs = sweep.costs()
    started = sweep.runs[0].started if sweep.runs else None
    varied = {name for settings in sweep.variants.values() for name in settings}
    return {
        "prompt": started.prompt if started else "",
        "settings": {
            name: value for name, value in asdict(started.config).items() if name not in varied
        }
        if started
        else {},
        "model": asdict(started.model) if started else {},
        "variants": [asdict(cost) for cost in costs],
        "agreements": [asdict(agreement) for agreement in sweep.agreements()],
        "agreed": sweep.agreed and len(costs) == len(sweep.variants),
    }


def sweep_summary(sweep: Sweep) -> RenderableType:
    """What the variants took, side by side, for a terminal."""
    table = Table("", *(name for name, _ in sweep.pairs))
    for row in sweep_rows(sweep):
        table.add_row(row.measure, *row.cells)
    return Group(table, Text(COST_NOTE, style="dim"), Text(sweep_sentence(sweep)))


def answers_summary(answers: Answers, policy: str, *, narrow: bool = False) -> RenderableType:
    """The answers of a run, for a terminal; `narrow` leaves out the number of texts."""
    names = ["weight", "at least", "at most", "texts", "answer"]
    rows = [
        [*_percents(answer), str(len(answer.leaves)), token_text.visible(answer.text)]
        for answer in answers.ranked
    ]
    table = _table(names, rows, leave_out=("texts",) if narrow else ())
    return Group(Text(answers_sentence(answers, policy)), table)


def _percents(answer: Answer) -> tuple[str, str, str]:
    return f"{answer.weight:.1%}", f"{answer.low:.1%}", f"{answer.high:.1%}"


def _tree(run: Run, unknown: Collection[Place]) -> Tree:
    root = Tree(Text(token_text.visible(run.started.beginning), style="bold"))
    branches = {-1: root}
    for path in run.paths:  # parents are born before their children
        branches[path.id] = branches[path.parent].add(_path_label(path, unknown))
    return root


def _path_label(path: Path, unknown: Collection[Place]) -> Text:
    text = token_text.visible_join(_marked_texts(path, unknown))
    label = Text.assemble((f"{path.weight:6.1%} ", "cyan"), text)
    if path.status == "forked" and path.fork_entropy is not None:
        label.append(f"  ◆ {path.fork_entropy:.2f} nats", "magenta")
    label.append({"finished": "  ■", "pruned": "  × pruned"}.get(path.status, ""), "green")
    return label


def _marked_texts(path: Path, unknown: Collection[Place]) -> list[str]:
    """The texts of the path's tokens, with UNKNOWN after those at unknown places."""
    texts = [UNKNOWN] if (path.id, -1) in unknown else []
    for number, token in enumerate(path.tokens):
        texts.append(token.text + UNKNOWN if (path.id, number) in unknown else token.text)
    return texts


def _sample_table(run: Run, narrow: bool, unknown: Collection[Place]) -> Table:
    names = ["weight", "log p (nats)", "mean H (nats)", "tokens", "end", "text"]
    rows = [_sample_row(sample, unknown) for sample in run.samples()]
    return _table(names, rows, leave_out=names[1:4] if narrow else ())


def _sample_row(sample: Sample, unknown: Collection[Place]) -> list[str]:
    entropy = sum(sample.entropies) / max(1, len(sample.entropies))
    is_known = {path for path, _ in unknown}.isdisjoint(sample.lineage)
    return [
        f"{sample.weight:.1%}",
        f"{sample.log_prob:.2f}",
        f"{entropy:.2f}",
        str(len(sample.token_ids)),
        sample.finish_reason if is_known else f"{sample.finish_reason} {UNKNOWN}",
        token_text.visible(sample.text),
    ]


def _table(names: list[str], rows: list[list[str]], leave_out: Collection[str]) -> Table:
    """A table without the columns of these names."""
    kept = [number for number, name in enumerate(names) if name not in leave_out]
    table = Table(*(names[number] for number in kept))
    for row in rows:
        table.add_row(*(Text(row[number]) for number in kept))
    return table
