"""What is a tree worth on a real model? Every policy on the chat model, at equal tokens and seconds.

    python benchmarks/worth.py [--quick] [--rows FILE] [--json FILE] [--table FILE]
    python benchmarks/worth.py --reference

A hundred questions with known answers (assets/questions), asked of SmolLM2-135M-Instruct. An answer is
the first sentence. For some questions, the true distribution of answers is that of 4,000 independent
texts, which `--reference` draws (three minutes a question, for every fifth one that the file
benchmarks/worth-reference.jsonl.gz lacks). Every policy answers these with several path limits; between
two limits, the figures at a number of tokens or seconds are interpolated for each question, in log
tokens.

- error: half the sum of the differences between the estimated and the true probability of all answers;
- entropy error: that of the semantic entropy, in nats, without its sign;
- width: of the bounds of an answer, which is what is unexplored;
- decided: in which share of the runs no other answer could be more likely before they ended.

Then all questions are answered at equal tokens, and each score of uncertainty is judged by how well it
finds the wrong ones (AUROC; * where it differs from that of independent texts). Brackets have 95% of
the bootstrap resamples over questions. Rows are kept in a file, so that a benchmark that was stopped
goes on.
"""

import gzip
import json
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from msgspec import structs
from published import ROOT, command_line, markdown_table, publish, where

from eab.analysis.answer_rules import normalised
from eab.analysis.answers import Answers, entropy, group_answers
from eab.analysis.uncertainty import uncertainty
from eab.config import BranchingConfig
from eab.engine.branching.presets import starting_config
from eab.engine.loop import event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.models.loading import load_model
from eab.engine.request import Request
from eab.engine.step_events import Ending
from eab.labs.tuning.evaluation_report import auroc, bootstrap
from eab.labs.tuning.prompt_sets import Question, chat_questions
from eab.labs.tuning.sweeping import POLICIES
from eab.run import RunState, fold
from eab.run.events import Event, StepTimed

MODEL: Final = "smollm2"
BASE: Final = starting_config(max_new_tokens=20)
LIMITS: Final = (4, 8, 16, 32, 64)  # paths
TOKENS: Final = (100, 200, 400)
SECONDS: Final = (1.0, 2.0)
AT: Final = 150  # tokens for each of the hundred questions
REFERENCE: Final = ROOT / "benchmarks" / "worth-reference.jsonl.gz"
BATCHES, TEXTS = 16, 250  # independent texts of a question
MEASURES: Final = ("error", "entropy error", "width")
SCORES: Final = ("semantic", "rao_blackwellised", "predictive", "length_normalised")

Row = dict[str, Any]


def run_of(model: LanguageModel, prompt: str, config: BranchingConfig) -> RunState:
    return fold(event_stream(model, Request(prompt, config)))


def shares(answers: Answers, counted: bool = False) -> dict[str, float]:
    """The estimated probability, or the number of texts, of each answer, in its normal form."""
    found: defaultdict[str, float] = defaultdict(float)
    for answer in answers.ranked:
        found[normalised(answer.name)] += len(answer.leaves) if counted else answer.estimate
    total = 1 if counted else math.fsum(found.values()) or 1.0
    return {name: share / total for name, share in found.items()}


# ---- the reference


def draw_reference(model: LanguageModel) -> None:
    """Draw what the file lacks, question by question."""
    known = {*reference()} if REFERENCE.exists() else set()
    for question in chat_questions()[2::5]:
        if question.prompt in known:
            continue
        counts: Counter[str] = Counter()
        for seed in range(BATCHES):
            config = replace(BASE, policy="independent", max_paths=TEXTS, seed=1000 + seed)
            run = run_of(model, question.prompt, config)
            counts.update(shares(group_answers(run, "sentence"), counted=True))
        line = json.dumps({"prompt": question.prompt, "counts": dict(counts.most_common())})
        with gzip.open(REFERENCE, "at", encoding="utf-8") as file:
            file.write(line + "\n")
        print(question.prompt, len(counts), "answers", flush=True)


def reference() -> dict[str, Counter[str]]:
    """How often each question had each answer."""
    with gzip.open(REFERENCE, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {line["prompt"]: Counter(line["counts"]) for line in lines}


def entropy_of(counts: Counter[str]) -> float:
    """With the correction of Miller and Madow for answers that were not drawn (nats)."""
    texts = counts.total()
    return entropy([count / texts for count in counts.values()]) + (len(counts) - 1) / (2 * texts)


# ---- what is measured of a run


def tokens_until_decided(run: RunState) -> int | None:
    """The tokens after which no other answer could be more likely; None if this never came."""
    config = replace(run.started.config, stop_when="decided", token_budget=0)
    ending, tokens = Ending(structs.replace(run.started, config=config)), 0
    new: list[Event] = []
    for event in run.events[run.events.index(run.started) + 1 :]:
        new.append(event)
        if isinstance(event, StepTimed):
            tokens += event.tokens
            if ending.reason(new) == "decided":
                return tokens - len(run.started.prompt_tokens)
            new = []
    return None


def coverage_corrected(answers: Answers) -> float | None:
    """The entropy of Chao and Shen (2003), as in arXiv 2509.14478: independent texts only."""
    counts = [len(answer.leaves) for answer in answers.ranked]
    texts, singles = sum(counts), counts.count(1)
    coverage = 1 - singles / texts if singles < texts else 1 / texts
    shares = [coverage * count / texts for count in counts]
    return -math.fsum(share * math.log(share) / (1 - (1 - share) ** texts) for share in shares)


def is_right(question: Question, answer: str) -> bool:
    """Whether a known answer stands in it as words."""
    known = "|".join(re.escape(normalised(one)) for one in question.answers)
    return re.search(rf"\b(?:{known})\b", normalised(answer)) is not None


def measured(
    model: LanguageModel, question: Question, config: BranchingConfig, truth: Counter[str] | None
) -> Row:
    start = time.perf_counter()
    run = run_of(model, question.prompt, config)
    row: Row = {"seconds": time.perf_counter() - start}
    answers = group_answers(run, "sentence")
    scores = uncertainty(run, answers)
    row["tokens"] = run.tokens_needed - len(run.started.prompt_tokens)
    row["width"] = 1.0 - answers.explored
    row |= {name: getattr(scores, name) for name in SCORES}
    row["1 - P(most likely answer)"] = 1.0 - answers.ranked[0].estimate
    if config.policy == "independent":
        row["coverage-corrected"] = coverage_corrected(answers)
    row["right"] = is_right(question, answers.ranked[0].name)
    if truth is not None:
        true = {name: count / truth.total() for name, count in truth.items()}
        found = shares(answers)
        row["error"] = sum(abs(found.get(n, 0) - true.get(n, 0)) for n in {*found, *true}) / 2
        row["entropy error"] = abs((scores.semantic or 0.0) - entropy_of(truth))
        row["until_decided"] = tokens_until_decided(run)
    return row


class Rows:
    """Measured rows by what was asked, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._known: dict[tuple[Any, ...], Row] = {
            tuple(key): row for key, row in map(json.loads, lines)
        }

    def of(self, key: tuple[Any, ...], measure: Callable[[], Row]) -> Row:
        if key not in self._known:
            self._known[key] = measure()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, self._known[key]]) + "\n")
        return self._known[key]


# ---- tables


def at(amount: float, unit: str, rows: Sequence[Row], measure: str) -> float:
    """The measure of one question with at most this many tokens or seconds; NaN if the smallest of
    its runs took more.
    """
    pairs = sorted((math.log(row[unit]), row[measure]) for row in rows)
    places, values = zip(*pairs, strict=True)
    return float(np.interp(math.log(amount), places, values, left=math.nan))


def shown(
    values: Sequence[float], statistic: Callable[[Any], Any] = np.mean, digits: int = 2
) -> str:
    found = bootstrap(statistic, np.asarray(values, float))
    low, high = (f"{end:.{digits}f}" for end in (found.low, found.high))
    return f"{found.value:.{digits}f} [{low}, {high}]" if found.questions else "-"


def curves(by_policy: dict[str, list[list[Row]]], unit: str, amounts: Sequence[float]) -> str:
    """A table for each measure: a row for each policy, a column for each amount, over the questions
    that every policy can answer with so much, and the differences from independent texts.
    """
    texts = []
    for measure in MEASURES:
        columns = []
        for amount in amounts:
            values = np.array(
                [[at(amount, unit, runs, measure) for runs in of] for of in by_policy.values()]
            )
            known = ~np.isnan(values).any(axis=0)
            columns.append([f"{amount:g} {unit} ({known.sum()})", *map(shown, values[:, known])])
            less = values[:, known] - values[[*by_policy].index("independent"), known]
            columns.append(["difference", *map(shown, less)])
        heads, *rows = zip([measure, *by_policy], *columns, strict=True)
        texts.append(markdown_table(heads, rows))
    return "\n".join(texts)


def decided_table(by_policy: dict[str, list[list[Row]]]) -> str:
    """The share of a question's runs that are decided, and the median tokens of these until then."""
    rows = []
    for policy, of in by_policy.items():
        found = [[row["until_decided"] for row in runs] for runs in of]
        tokens = [[count for count in counts if count is not None] for counts in found]
        shares = [len(some) / len(every) for some, every in zip(tokens, found, strict=True)]
        medians = [np.median(some) if some else math.nan for some in tokens]
        rows.append([policy, shown(shares), shown(medians, np.median, 0)])
    return markdown_table(["policy", "share of the runs decided", "tokens until then"], rows)


def difference(ours: Any, our_wrong: Any, theirs: Any, their_wrong: Any) -> float:
    return auroc(ours, our_wrong) - auroc(theirs, their_wrong)


def auroc_table(answered: dict[str, list[Row]]) -> str:
    def columns(name: str, of: list[Row]) -> tuple[Any, Any]:
        scores = [row.get(name) for row in of]
        return np.array(scores, float), np.array([not row["right"] for row in of])

    names = [*SCORES, "1 - P(most likely answer)", "width", "coverage-corrected"]
    rows = []
    for policy, of in answered.items():
        cells = []
        for name in names:
            found = bootstrap(auroc, *columns(name, of))
            texts = columns(name, answered["independent"])
            less = bootstrap(difference, *columns(name, of), *texts)
            differs = "*" if less.low > 0 or less.high < 0 else ""
            known = f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]{differs}"
            cells.append(known if found.is_known else "-")
        tokens = np.mean([row["tokens"] for row in of])
        wrong = sum(not row["right"] for row in of)
        rows.append([policy, f"{tokens:.0f}", str(wrong), *cells])
    return markdown_table(["policy", "tokens", "wrong", *names], rows)


def limit_for(runs: Sequence[Sequence[Row]], limits: Sequence[int]) -> int:
    """The path limit at which runs take AT tokens on average, between those tried."""
    means = [math.log(np.mean([row["tokens"] for row in of])) for of in zip(*runs, strict=True)]
    return max(1, round(math.exp(np.interp(math.log(AT), means, np.log(limits)))))


def main() -> None:
    parser = command_line(__doc__, quick="4 and 10 questions, 3 path limits")
    parser.add_argument("--rows", default="worth-rows.jsonl", help="keeps what was measured")
    parser.add_argument("--reference", action="store_true", help="draw the reference")
    parser.add_argument("--questions", type=int, default=100, help="how many of the hundred")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load_model(MODEL, "cpu", "float32")
    if options.reference:
        draw_reference(model)
        return
    truths, rows = reference(), Rows(Path(options.rows))
    limits = LIMITS[::2] if options.quick else LIMITS
    known = [one for one in chat_questions() if one.prompt in truths][
        : 4 if options.quick else None
    ]
    every = chat_questions()[:: 10 if options.quick else 100 // options.questions]

    def row(policy: str, question: Question, paths: int) -> Row:
        config = replace(BASE, policy=policy, max_paths=paths)
        truth = truths.get(question.prompt)
        key = (question.prompt, policy, paths)
        return rows.of(key, lambda: measured(model, question, config, truth))

    run_of(model, every[0].prompt, BASE)  # so that the first row is not slower than the others
    for question in known:
        for paths in limits:
            for policy in POLICIES:  # in turns: what slows the machine slows all of them
                row(policy, question, paths)
    by_policy = {
        policy: [[row(policy, question, paths) for paths in limits] for question in known]
        for policy in POLICIES
    }
    answered = {
        policy: [row(policy, one, limit_for(of, limits)) for one in every]
        for policy, of in by_policy.items()
    }
    texts = [
        curves(by_policy, "tokens", TOKENS),
        curves(by_policy, "seconds", SECONDS),
        decided_table(by_policy),
        auroc_table(answered),
    ]
    result = {"rows": {policy: of for policy, of in answered.items()}, "curves": by_policy}
    publish(options, where("float32 on cpu"), "\n".join(texts), result)


if __name__ == "__main__":
    main()
