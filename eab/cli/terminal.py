"""Runs as text, tables and JSON values, for the command line and for scripts."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import structs
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from eab import token_text
from eab.analysis.answers import Answer, Answers
from eab.analysis.label_rules import labelled
from eab.analysis.uncertainty import attribute_to_forks, uncertainty
from eab.figures.captions import answers_sentence, cost_sentence, limit_sentence
from eab.figures.kv_memory import separate_bytes
from eab.figures.uncertainty import forks_sentence, nats, uncertainty_sentence
from eab.formatting import counted
from eab.labs.caches import CACHES_LAB
from eab.labs.measurement import Report
from eab.labs.variants import (
    agree,
    agreements,
    cost_values,
    costs_of,
    has_all_runs,
    variants_sentence,
)
from eab.run import Path, RunState, Sample
from eab.run.events.chat import as_json as as_json_messages

if TYPE_CHECKING:
    from eab.api.scores import Scores
    from eab.engine.scoring import Bounds

Place: TypeAlias = tuple[int, int]  # id of a path, index of its token; -1 if it has none
WIDE: Final = 100  # terminals with fewer columns get narrower tables
UNKNOWN: Final = "◇"
_MEASURE, _COST = 22, 15  # columns of the terminal, with a space between
MAX_ROWS: Final = 2000  # in the tree, and in the table of texts
_ENDS: Final = {"stop": "■", "length": "→", "unfinished": "(unfinished)"}
_LEGEND: Final = (
    "Before a branch: its share at the fork (◆); others: all tokens without an own branch.\n"
    "After a text: its weight. ■ ended by {stops}, → cut at the length limit."
)
MIN_SHOWN: Final = 1e-6  # smaller probabilities are shown as below it
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


def as_json(run: RunState) -> dict[str, Any]:
    """Samples, KV bytes at the peak, settings and seconds of a run, as plain JSON values."""
    started = run.started
    return {
        "prompt": started.prompt,
        "messages": as_json_messages(started.messages),
        "samples": [_sample_json(sample) for sample in run.samples],
        "labels": [asdict(label) for label in labelled(run, run.labels)],
        "kv": kv_bytes(run),
        "settings": asdict(started.config),
        "threshold_nats": started.threshold_nats,
        "model": structs.asdict(started.model),
        "tokens_through_model": run.tokens_through_model,
        "tokens_reused": run.tokens_reused,
        "seconds": run.seconds,
        "what_if": started.what_if,
        "ended": run.ended.reason if run.ended else None,
    }


def answers_as_json(run: RunState, answers: Answers) -> dict[str, Any]:
    """Answers with bounds, uncertainty scores and forks as JSON values; entropies in nats."""
    forks, scores = attribute_to_forks(run, answers), uncertainty(run, answers)
    return {
        "ranked": [asdict(answer) | {"leaves": list(answer.leaves)} for answer in answers.ranked],
        "explored": answers.explored,
        "undecided": list(answers.undecided),
        "unfinished": answers.unfinished,
        "entropy": scores.semantic,
        "entropy_bounds": list(answers.entropy_bounds),
        "uncertainty": asdict(scores) | {"limited": scores.limited},
        "forks": [asdict(fork) | {"contribution": fork.contribution} for fork in forks],
    }


def scores_json(scores: "Scores") -> dict[str, Any]:
    """Scores as JSON values; ln of a probability of 0 is null."""
    return {
        "prompt": scores.prompt,
        "texts": [
            {
                "text": scored.text,
                "exactly": scored.exactly._asdict(),
                "begins": scored.begins._asdict(),
                "tokens": [
                    {
                        "id": token.id,
                        "text": token_text.encodable(token.text),
                        "log_prob": token.log_prob if token.log_prob > -math.inf else None,
                        "model_log_prob": token.model_log_prob,
                    }
                    for token in scored.spellings[0].tokens
                ],
            }
            for scored in scores
        ],
        "neither": scores.neither._asdict(),
    }


def scores_summary(scores: "Scores") -> RenderableType:
    """How likely each text is, and which of its tokens are unlikely."""
    table = Table("text", box=SIMPLE_HEAD)
    table.add_column("beginning with it", justify="right")
    table.add_column("exactly it", justify="right")
    table.add_column("its tokens, with their probabilities")
    for scored in scores:
        tokens = (
            f"{token_text.visible(token.text)} {_share(math.exp(token.log_prob))}"
            for token in scored.spellings[0].tokens
        )
        table.add_row(
            Text(token_text.visible(scored.text)),
            _between(scored.begins),
            _between(scored.exactly),
            Text(" · ".join(tokens)),
        )
    return Group(table, f"None of these beginnings: {_between(scores.neither)}")


def _between(bounds: "Bounds") -> str:
    """A probability that lies between bounds, as one number if they agree."""
    low, high = map(_share, bounds)
    return low if low == high else f"{low} to {high}"


def _share(probability: float) -> str:
    if 0 < probability < MIN_SHOWN:
        return f"<{MIN_SHOWN:.4%}"
    return f"{100 * probability:.3g}%"


def kv_bytes(run: RunState) -> dict[str, int]:
    """Bytes of the KV cache, under the names in KV_NAMES; all 0 if nothing was measured.

    At the step with the most distinct rows, `bytes_held` is the sum of shared, private and spare
    bytes, and `bytes_independent` is computed for separate caches. `bytes_copied`, `allocations`
    and `peak_bytes` refer to the whole run.
    """
    kv, last = run.peak_kv, run.last_kv
    if kv is None or last is None:
        return dict.fromkeys(KV_NAMES, 0)
    shared, private, spare = kv.bytes_by_use(run.started.model.row_bytes)
    return {
        "bytes_held": kv.bytes_held,
        "bytes_shared": shared,
        "bytes_private": private,
        "bytes_spare": spare,
        "bytes_independent": separate_bytes(run.started, kv),
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


def summary(
    run: RunState, *, narrow: bool = False, unknown: Collection[Place] = ()
) -> RenderableType:
    """The tree, the samples and the cost of a run, for a terminal; UNKNOWN marks `unknown`."""
    samples = _sample_list(run, unknown) if narrow else _sample_table(run, unknown)
    stops = "itself or at a stop string" if run.started.config.stop else "itself"
    legend = _LEGEND.format(stops=stops)
    words = (legend, limit_sentence(run), run.started.model.memory_words)
    notes = Text("\n".join(filter(None, words)), style="dim")
    labels = [Text(f"{label.name}: {label}") for label in labelled(run, run.labels)]
    rest = [*labels, *[Text()] * bool(labels), Text(cost_sentence(run))]
    return Group(_tree(run, unknown), notes, Text(), samples, Text(), *rest)


def caches_json(report: Report) -> dict[str, Any]:
    """The costs with each cache, and whether all gave the same tokens, as plain JSON values."""
    started = next((run.started for run in report.runs.values()), None)
    settings = asdict(started.config) if started else {}
    return {
        "prompt": started.prompt if started else "",
        "settings": {name: value for name, value in settings.items() if name != "cache"},
        "model": structs.asdict(started.model) if started else {},
        "variants": [cost_values(cost) for cost in costs_of(report)],
        "agreements": [asdict(agreement) for agreement in agreements(report)],
        "agreed": agree(report) and has_all_runs(report),
    }


def caches_summary(report: Report, width: int) -> RenderableType:
    """The costs with each cache side by side, for a terminal with this many columns; caches for
    which there is no room have a table of their own below.
    """
    headings, *rows = CACHES_LAB.table(report) or [("",)]
    most = max(1, (width - _MEASURE) // _COST)
    tables = []
    for first in range(1, len(headings), most):
        columns = (0, *range(first, min(first + most, len(headings))))
        own = (Column(headings[number], min_width=_COST - 1) for number in columns[1:])
        table = Table(Column("", width=_MEASURE - 1), *own, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for row in rows:
            table.add_row(*(row[number] for number in columns))
        tables.append(table)
    return Group(*tables, Text(CACHES_LAB.note, style="dim"), Text(variants_sentence(report)))


def answers_summary(run: RunState, answers: Answers, *, narrow: bool = False) -> RenderableType:
    """The answers of a run and the forks that decide them; `narrow` leaves out a column."""
    names = ["weight", "at least", "at most", "texts", "answer"]
    rows = [
        [*_percents(answer), str(answer.texts), token_text.visible(answer.name)]
        for answer in answers.ranked
    ]
    table = _table(names, rows, leave_out=("texts",) if narrow else ())
    return Group(
        Text(answers_sentence(answers)),
        table,
        Text(uncertainty_sentence(uncertainty(run, answers))),
        Text(forks_sentence(run, attribute_to_forks(run, answers))),
    )


def _percents(answer: Answer) -> tuple[str, str, str]:
    return f"{answer.estimate:.1%}", f"{answer.low:.1%}", f"{answer.high:.1%}"


def _tree(run: RunState, unknown: Collection[Place]) -> Tree:
    root = Text(token_text.visible(run.started.beginning), style="bold")
    tree = Tree(root)
    branches = {-1: tree}
    for path in islice(run.in_tree_order(), MAX_ROWS):
        if path.parent < 0 and path.status == "forked" and not path.tokens:
            root.append_text(_fork_mark(run, path))  # the prompt itself forks
            branches[path.id] = tree
        else:
            others = "others " if run.is_drawn(path) else ""
            branches[path.id] = branches[path.parent].add(_path_label(run, path, unknown, others))
    if len(run.paths) > MAX_ROWS:
        tree.add(Text(f"… and {counted(len(run.paths) - MAX_ROWS, 'path')} more", style="dim"))
    return tree


def _path_label(run: RunState, path: Path, unknown: Collection[Place], others: str) -> Text:
    """The path's share at the fork that created it, its text, and its status."""
    label = Text()
    if path.parent >= 0:
        label.append(f"{others}{path.share:6.1%} ", "cyan")
    label.append(token_text.visible_join(_marked_texts(path, unknown)))
    match path.status:
        case "forked":
            label.append_text(_fork_mark(run, path))
        case "pruned":
            label.append("  × dropped", "green")
        case "given":
            label.append("  given, no weight", "green")
        case _:
            label.append(f"  {_ENDS[path.finish_reason or 'unfinished']} ", "green")
            label.append(f"{path.weight:.1%}", "bold")
    return label


def _fork_mark(run: RunState, path: Path) -> Text:
    least = "≥ " if run.started.imported else ""  # only the most likely tokens may be known
    entropy = path.fork_entropy
    return Text("" if entropy is None else f"  ◆ {least}{entropy:.2f} nats", "magenta")


def _marked_texts(path: Path, unknown: Collection[Place]) -> list[str]:
    """The texts of the path's tokens, without control tokens; UNKNOWN follows unknown places."""
    texts = [UNKNOWN] if (path.id, -1) in unknown else []
    for number, token in enumerate(path.tokens):
        mark = UNKNOWN if (path.id, number) in unknown else ""
        texts.append(token.shown + mark)
    return texts


def _sample_list(run: RunState, unknown: Collection[Place]) -> Table:
    table = Table("weight", "text", box=None, pad_edge=False)
    for sample in run.samples[:MAX_ROWS]:
        text = Text(token_text.visible(sample.text)).append(f" {_end(sample, _ENDS, unknown)}")
        table.add_row(f"{sample.weight:6.1%}", text)
    return table


def _sample_table(run: RunState, unknown: Collection[Place]) -> Table:
    names = ["weight", "log p (nats)", "mean H (nats)", "tokens", "end", "text"]
    return _table(names, [_sample_row(sample, unknown) for sample in run.samples[:MAX_ROWS]])


def _sample_row(sample: Sample, unknown: Collection[Place]) -> list[str]:
    return [
        f"{sample.weight:.1%}",
        nats(sample.log_prob),
        nats(sample.mean_entropy),
        str(len(sample.token_ids)),
        _end(sample, {}, unknown),
        token_text.visible(sample.text),
    ]


def _end(sample: Sample, marks: Mapping[str, str], unknown: Collection[Place]) -> str:
    end = marks.get(sample.finish_reason, sample.finish_reason)
    is_known = {path for path, _ in unknown}.isdisjoint(sample.lineage)
    return end if is_known else f"{end} {UNKNOWN}"


def _table(names: list[str], rows: list[list[str]], leave_out: Collection[str] = ()) -> Table:
    kept = [number for number, name in enumerate(names) if name not in leave_out]
    table = Table(*(names[number] for number in kept))
    for row in rows:
        table.add_row(*(Text(row[number]) for number in kept))
    return table
