"""How well a tree and independent texts estimate the entropy over answers, by the number of outcomes.

    python benchmarks/entropy_estimates.py --table entropy.md

The prompts with 2 to 8 outcomes are those of `assets/questions/embedded.jsonl`; their odds are those
of the training text, and the answer is the first sentence. There, independent texts take together
about as many tokens as the trees. With 50 outcomes, the answer is one token out of the 50 most likely
ones after the beginning of a story; with 49, two tokens out of the 7 most likely ones each. Their
exact entropy is found by drawing all texts without replacement, and there are as many independent
texts as the tree has paths at most, which are more tokens than the tree takes.

"texts" is the number of independent texts. "seen only" is the entropy of the weights of the answers
in the tree, without what is known at forks. Brackets contain 95% of the bootstrap resamples of the
runs. Where there are few prompts, they say how the estimates scatter on these prompts, not how they
would on others.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import numpy as np
import torch
from published import command_line, markdown_table, publish, where

from eab.analysis.answer_parts import SENTENCE, TEXT, Part
from eab.analysis.answers import entropy, group_answers
from eab.analysis.same_answer import RULES
from eab.analysis.uncertainty import Uncertainty, uncertainty
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.labs.tuning.prompt_sets import QUESTIONS, read_questions
from eab.labs.tuning.scores import Interval, Values, bootstrap
from eab.models.base import LanguageModel
from eab.models.loading import load_model
from eab.run import RunState, fold

TREE: Final = BranchingConfig(
    entropy_threshold=0.5, min_fork_weight=0.03, max_paths=12, max_new_tokens=8
)
ONE_TOKEN: Final = replace(TREE, top_k=50, max_new_tokens=1)
TWO_TOKENS: Final = replace(TREE, top_k=7, max_new_tokens=2)
STORIES: Final = (
    "Once upon a time there was a boy named",
    "One day, a little girl found a",
    "Mom made a big",
    "The dog saw a",
    "In the forest there lived a",
    "They went to the",
)


@dataclass
class Estimates:
    """Estimates of one group of prompts minus the truth, in nats, one of each per run."""

    outcomes: str
    prompts: int
    texts: list[int] = field(default_factory=list)  # independent ones
    truth: list[float] = field(default_factory=list)
    tree: list[float] = field(default_factory=list)
    seen_only: list[float] = field(default_factory=list)
    independent: list[float] = field(default_factory=list)

    def row(self) -> list[str]:
        tree, seen, texts = map(np.array, (self.tree, self.seen_only, self.independent))
        gain = np.abs(tree) - np.abs(texts)
        means = [_mean(values) for values in (tree, np.abs(tree), np.abs(seen))]
        means += [_mean(values) for values in (texts, np.abs(texts), gain)]
        count, truth = f"{self.prompts} x {len(tree) // self.prompts}", np.mean(self.truth)
        words = f"{np.mean(self.texts):.0f}"
        return [self.outcomes, count, f"{truth:.2f}", words, *map(_written, means)]


def _mean(values: Values) -> Interval:
    return bootstrap(np.mean, values)


def _known(entropy: float | None) -> float:
    return math.nan if entropy is None else entropy  # left out of the means


def _written(value: Interval) -> str:
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def run(model: LanguageModel, prompt: str, config: BranchingConfig) -> RunState:
    return fold(event_stream(model, Request(prompt, config)))


def scored(ran: RunState, part: Part) -> tuple[Uncertainty, float]:
    """The scores of a run, and the entropy of the weights of the answers that it saw."""
    answers = group_answers(ran, part, RULES["content" if part == SENTENCE else "exact"])
    return uncertainty(ran, answers), entropy([answer.weight for answer in answers.ranked])


def compared(
    model: LanguageModel,
    outcomes: str,
    truth: dict[str, float],
    config: BranchingConfig,
    seeds: int,
) -> Estimates:
    """The estimates for these prompts and their entropies; one text measures nothing."""
    found, part = Estimates(outcomes, len(truth)), SENTENCE if config.top_k == 0 else TEXT
    for seed in range(seeds):
        # A new seed for each prompt, or the same random numbers would decide all of them
        asked = [(prompt, 1000 * seed + number) for number, prompt in enumerate(truth)]
        trees = [run(model, prompt, replace(config, seed=number)) for prompt, number in asked]
        texts = texts_for(trees) if config.top_k == 0 else config.max_paths
        alone = replace(config, policy="independent", max_paths=texts)
        for (prompt, number), tree in zip(asked, trees, strict=True):
            scores, seen = scored(tree, part)
            others, _ = scored(run(model, prompt, replace(alone, seed=number)), part)
            found.texts.append(texts)
            found.truth.append(truth[prompt])
            found.tree.append(_known(scores.semantic) - truth[prompt])
            found.seen_only.append(seen - truth[prompt])
            found.independent.append(_known(others.semantic) - truth[prompt])
    return found


def texts_for(trees: Sequence[RunState]) -> int:
    """How many independent texts are expected to take as many tokens as these trees."""
    tokens = sum(tree.tokens_needed - len(tree.started.prompt_tokens) for tree in trees)
    # The last token of a text never goes through the model
    each = math.fsum(
        sample.weight * (len(sample.token_ids) - 1) for tree in trees for sample in tree.samples
    )
    return max(1, round(tokens / each))


def exact_entropy(model: LanguageModel, prompt: str, config: BranchingConfig) -> float:
    """The entropy over all texts that are possible, each drawn once without replacement."""
    all_texts = replace(config, policy="stochastic-beam", max_paths=50)
    scores, _ = scored(run(model, prompt, all_texts), TEXT)
    assert scores.rao_blackwellised is not None
    assert scores.explored > 0.999, f"{scores.explored} of {prompt}"
    return scores.rao_blackwellised


def known(sizes: Sequence[int]) -> dict[str, float]:
    """Prompts with so many outcomes, and the entropy of the odds of the training text."""
    questions = read_questions(str(QUESTIONS))
    return {one.prompt: one.entropy for one in questions if len(one.distribution) in sizes}


def main() -> None:
    parser = command_line(__doc__, "a quarter of the prompts with two outcomes, two seeds")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, many = load_model("embedded", "cpu", "float32"), 2 if options.quick else 20
    two = dict(list(known([2]).items())[:: 4 if options.quick else 1])
    groups = [
        compared(model, "2", two, TREE, 1 if options.quick else 2),
        compared(model, "3", known([3]), TREE, many),
        compared(model, "6", known([6]), TREE, many),
        compared(model, "4, 5 and 8", known([4, 5, 8]), TREE, many),
    ]
    for outcomes, config in (("50, one token", ONE_TOKEN), ("49, two tokens", TWO_TOKENS)):
        truth = {prompt: exact_entropy(model, prompt, config) for prompt in STORIES}
        groups.append(compared(model, outcomes, truth, config, many))
    heads = ["outcomes", "prompts x seeds", "entropy", "texts", "tree: bias", "tree: error"]
    heads += ["tree, seen only: error", "independent: bias", "independent: error", "difference"]
    table = markdown_table(heads, [group.row() for group in groups])
    publish(
        options, where("float32 on cpu"), table, {"groups": [asdict(group) for group in groups]}
    )


if __name__ == "__main__":
    main()
