"""Speculative decoding against plain decoding by the engine, and against transformers' assisted
generation.

    python benchmarks/speculative.py [--quick] [--device cuda] [--dtype bfloat16] [--json FILE] [--table FILE]

Every job runs with plain decoding and with each drafter, once with an adaptive and once with a
fixed draft length. All take turns, and the first round is a warm-up. Figures are medians with
quartiles (eab.timing); ratios are ratios of medians. A job has the same texts with every drafter,
so the work is the same. Jobs with one path also run with transformers' `assistant_model` and
`prompt_lookup_num_tokens`, with the same weights. `--quick` makes one or two repeats, which is not
enough for comparisons, and skips the jobs with eight and twenty paths.

The jobs are a story and facts by the embedded model with its draft model, and texts by a random
model of SmolLM2-135M's shape: greedy text, which soon repeats itself, and text at a low
temperature. The random model's draft model is its own first six layers. Its draft tokens are almost
never accepted, which is the worst case.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from published import (
    Placement,
    command_line,
    markdown_table,
    offer_device,
    publish,
    ratio_lines,
    seconds_of,
    where,
)
from rich.console import Console
from shapes import engine_model, plain_model, same_weights
from transformers import AutoModelForCausalLM, PreTrainedModel

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import load_model
from eab.engine.models.sources import BUNDLED, EMBEDDED, EMBEDDED_DRAFT
from eab.engine.request import Request
from eab.run import RunState, fold
from eab.timing import Timing, comparison, in_ms, take_turns, timed

FIXED: Final = 4
PLAIN: Final = "plain"
console = Console(stderr=True)


@dataclass(frozen=True)
class Models:
    """The target and the draft model, as the engine uses them and as loaded."""

    target: HuggingFaceModel
    draft: HuggingFaceModel
    plain_target: PreTrainedModel
    plain_draft: PreTrainedModel


@dataclass
class Job:
    """One prompt and its settings, for all competitors."""

    name: str
    models: Models  # target and draft
    prompt: str
    config: BranchingConfig  # without speculation
    repeats: int  # more for short jobs
    timings: dict[str, Timing] = field(default_factory=dict)  # for each competitor
    # the latest run of each competitor that uses this engine
    runs: dict[str, RunState] = field(default_factory=dict)

    def competitors(self) -> dict[str, Callable[[], None]]:
        """For each competitor, by name, a function that does the job once."""
        found = {PLAIN: self._engine(PLAIN, self.config)}
        for drafter in ("model", "prompt-lookup", "sibling-lookup"):
            if drafter == "sibling-lookup" and self.config.max_paths == 1:
                continue  # there are no siblings
            for name, length in (("adaptive", 0), (f"length {FIXED}", FIXED)):
                label = f"{drafter}, {name}"
                found[label] = self._engine(
                    label, replace(self.config, drafter=drafter, draft_length=length)
                )
        if self.config.max_paths == 1:
            others: dict[str, dict[str, Any]] = {
                "transformers, plain": {},
                "transformers, assistant_model": {"assistant_model": self.models.plain_draft},
                "transformers, prompt_lookup": {"prompt_lookup_num_tokens": FIXED},
            }
            found |= {name: self._transformers(**options) for name, options in others.items()}
        return found

    def _engine(self, label: str, config: BranchingConfig) -> Callable[[], None]:
        def run() -> None:
            self.runs[label] = fold(
                event_stream(self.models.target, Request(self.prompt, config), self.models.draft)
            )

        return run

    def _transformers(self, **options: Any) -> Callable[[], None]:
        ids = torch.tensor(
            [self.models.target.encode(self.prompt, self.config)],
            device=self.models.plain_target.device,
        )

        @torch.inference_mode()
        def run() -> None:
            torch.manual_seed(self.config.seed)
            self.models.plain_target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=self.config.policy != "greedy",
                top_k=0,
                min_new_tokens=self.new_tokens,
                max_new_tokens=self.new_tokens,
                pad_token_id=0,
                **options,
            )

        return run

    @property
    def new_tokens(self) -> int:
        """The length of the longest text; transformers generates as many tokens."""
        run = self.runs[PLAIN]
        return max(len(list(run.tokens(leaf.id))) for leaf in run.leaves())


def embedded(placement: Placement) -> Models:
    """The model and the draft model that come with the project."""
    names, where_to = (EMBEDDED, EMBEDDED_DRAFT), placement.device
    plain = [
        AutoModelForCausalLM.from_pretrained(BUNDLED[name], dtype=placement.dtype) for name in names
    ]
    return Models(
        *(load_model(name, where_to, placement.dtype_name) for name in names),
        *(model.to(where_to).eval() for model in plain),
    )


def shape_135m(placement: Placement) -> Models:
    """Random weights; the draft model has the target's first six layers and its output layer."""
    plain = plain_model("135m", placement)
    plain_draft = same_weights(plain)
    plain_draft.model.layers = plain_draft.model.layers[:6]
    plain_draft.config.num_hidden_layers = 6
    both = (plain, plain_draft)
    return Models(*(engine_model(model, "135m") for model in both), *both)


def jobs(quick: bool, placement: Placement) -> list[Job]:
    small, large = embedded(placement), shape_135m(placement)
    one = BranchingConfig(max_paths=1, entropy_threshold=20.0, max_new_tokens=120, seed=2)
    tree = BranchingConfig(
        max_paths=8, max_new_tokens=60, min_fork_weight=0.03, entropy_threshold=0.9, seed=2
    )
    story = "Once upon a time, there was a little girl named Lily. She"
    facts = "Question: What is the capital of France?"
    cold = replace(tree, temperature=0.1, max_new_tokens=30)
    many, few = (2, 1) if quick else (15, 5)
    greedy = replace(one, policy="greedy", max_new_tokens=100)
    found = [
        Job("story, embedded, 1 path", small, story, one, many),
        Job("facts, embedded, 1 path", small, facts, one, many),
        Job("repetitive, 135m, 1 path", large, story, greedy, few),
    ]
    if not quick:
        found += [
            Job("story, embedded, 8 paths", small, story, tree, many),
            Job("story, embedded, 20 paths", small, story, replace(tree, max_paths=20), many),
            Job("random text, 135m, 8 paths", large, story, cold, few),
            Job("random text, 135m, 20 paths", large, story, replace(cold, max_paths=20), few),
        ]
    return found


def measure(job: Job) -> None:
    console.print(f"{job.name}: {job.repeats} repeats ...")
    measures = {label: timed(run) for label, run in job.competitors().items()}
    job.timings = take_turns(measures, job.repeats)


def table(job: Job) -> str:
    heads = ["", "time (quartiles)", "against plain", "passes", "draft tokens accepted"]
    heads.append("tokens per pass and path")
    rows = []
    plain = job.timings[PLAIN]
    for label, timing in job.timings.items():
        against = "" if label == PLAIN else comparison(timing, plain)
        rows.append([label, in_ms(timing), against, *_counts(job.runs.get(label))])
    words = f"{job.name}, {job.config.max_new_tokens} new tokens at most"
    return f"{words}\n\n{markdown_table(heads, rows)}"


def _counts(run: RunState | None) -> list[str]:
    if run is None:
        return ["-", "-", "-"]
    drafted = sum(len(speculation.draft_tokens) for speculation in run.speculations)
    accepted = sum(speculation.accepted for speculation in run.speculations)
    return [
        str(run.forward_passes),
        f"{accepted} of {drafted}",
        f"{len(run.steps) / run.forward_passes:.2f}",
    ]


def ratios_of(measured: list[Job]) -> dict[str, float]:
    """Of each job, the seconds of plain decoding over those of each other way."""
    return {
        f"{job.name}: plain over {label}": job.timings[PLAIN].median / timing.median
        for job in measured
        for label, timing in job.timings.items()
        if label != PLAIN
    }


def main() -> None:
    parser = command_line(__doc__, quick="one or two rounds, one path only")
    offer_device(parser)
    options = parser.parse_args()
    placement = Placement.of(options)
    torch.set_num_threads(options.threads)
    measured = jobs(options.quick, placement)
    for job in measured:
        measure(job)
    ratios = ratios_of(measured)
    text = "\n".join([*map(table, measured), ratio_lines(ratios)])
    seconds = {job.name: seconds_of(job.timings) for job in measured}
    origin = where(str(placement), placement.device)
    publish(options, origin, text, {"seconds": seconds, "ratios": ratios})


if __name__ == "__main__":
    main()
