"""A run in words, tables and JSON values: what the command line prints and what scripts read."""

from dataclasses import asdict
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from eab import token_text
from eab.analysis.answers import Answer, Answers
from eab.analysis.sweep import Sweep
from eab.figures.captions import answers_sentence, cost_sentence, sweep_sentence
from eab.figures.sweep_table import COST_NOTE, cost_lines
from eab.run import Path, Run, Sample

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
    """Bytes at the step with the most distinct rows: held (measured) = shared + private + spare;
    independent: computed,
    the same paths with a cache each. Of the whole run, measured: bytes copied, allocations,
    peak.
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


def summary(run: Run) -> RenderableType:
    """The tree, the samples and the cost of a run, for a terminal."""
    return Group(_tree(run), _sample_table(run), Text(cost_sentence(run)))


def sweep_json(sweep: Sweep) -> dict[str, Any]:
    """What each variant took, and whether all say the same, as plain JSON values."""
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
    """What each variant took, beside each other, for a terminal."""
    table = Table("", *(name for name, _ in sweep.pairs))
    for line in cost_lines(sweep):
        table.add_row(line.measure, *line.cells)
    return Group(table, Text(COST_NOTE, style="dim"), Text(sweep_sentence(sweep)))


def answers_summary(answers: Answers, policy: str) -> RenderableType:
    """The answers of a run, for a terminal."""
    table = Table("weight", "at least", "at most", "texts", "answer")
    for answer in answers.ranked:
        table.add_row(
            *_percents(answer), str(len(answer.leaves)), Text(token_text.visible(answer.text))
        )
    return Group(Text(answers_sentence(answers, policy)), table)


def _percents(answer: Answer) -> tuple[str, str, str]:
    return f"{answer.weight:.1%}", f"{answer.low:.1%}", f"{answer.high:.1%}"


def _tree(run: Run) -> Tree:
    root = Tree(Text(token_text.visible(run.started.beginning), style="bold"))
    branches = {-1: root}
    for path in run.paths:  # parents are born before their children
        branches[path.id] = branches[path.parent].add(_path_label(path))
    return root


def _path_label(path: Path) -> Text:
    text = token_text.visible_join(token.text for token in path.tokens)
    label = Text.assemble((f"{path.weight:6.1%} ", "cyan"), text)
    if path.status == "forked" and path.fork_entropy is not None:
        label.append(f"  ◆ {path.fork_entropy:.2f} nats", "magenta")
    label.append({"finished": "  ■", "pruned": "  × pruned"}.get(path.status, ""), "green")
    return label


def _sample_table(run: Run) -> Table:
    table = Table(
        "weight", "log p (nats)", "mean H (nats)", "tokens", "end", "text", show_lines=False
    )
    for sample in run.samples():
        entropy = sum(sample.entropies) / max(1, len(sample.entropies))
        numbers = (
            f"{sample.weight:.1%}",
            f"{sample.log_prob:.2f}",
            f"{entropy:.2f}",
            str(len(sample.token_ids)),
        )
        table.add_row(*numbers, sample.finish_reason, Text(token_text.visible(sample.text)))
    return table
