"""Trees against independent texts: whose estimate of the entropy over answers is closer to the known
one?

    python benchmarks/entropies.py [--quick] [--json FILE] [--table FILE]

The prompts with 2 to 8 outcomes are those of `assets/questions/embedded.jsonl`; their odds are those of
the training text, and the answer is the first sentence. There, independent texts take together about as
many tokens as the trees. With 50 outcomes, the answer is one token out of the 50 most likely ones after
the beginning of a story; with 49, two tokens out of the 7 most likely ones each. Their exact entropy is
found by drawing all texts without replacement, and there are as many independent texts as the tree has
paths at most, which are more tokens than the tree takes. "seen only" is the entropy of the weights of
the answers in the tree, without what is known at forks. Brackets contain 95% of the bootstrap resamples
of the runs.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from published import command_line, markdown_table, publish, where

from eab.analysis.answer_rules import RULES, SENTENCE, TEXT, Part
from eab.analysis.answers import entropy, group_answers
from eab.analysis.uncertainty import Uncertainty, uncertainty
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.models.loading import load_model
from eab.engine.request import Request
from eab.labs.tuning.evaluation_report import bootstrap
from eab.labs.tuning.prompt_sets import QUESTIONS, read_questions
from eab.run import RunState, fold

TREE: Final = BranchingConfig(
    entropy_threshold=0.5, min_fork_weight=0.03, max_paths=12, max_new_tokens=8
)
CONTRIVED: Final = {  # answers of one or two tokens, by their number of outcomes
    "50, one token": replace(TREE, top_k=50, max_new_tokens=1),
    "49, two tokens": replace(TREE, top_k=7, max_new_tokens=2),
}
STORIES: Final = (
    "Once upon a time there was a boy named",
    "One day, a little girl found a",
    "Mom made a big",
    "The dog saw a",
    "In the forest there lived a",
    "They went to the",
)


def run(model: LanguageModel, prompt: str, config: BranchingConfig) -> RunState:
    return fold(event_stream(model, Request(prompt, config)))


def scored(ran: RunState, part: Part) -> tuple[Uncertainty, float]:
    """The scores of a run, and the entropy of the weights of the answers that it saw."""
    answers = group_answers(ran, part, RULES["content" if part == SENTENCE else "exact"])
    return uncertainty(ran, answers), entropy([answer.estimate for answer in answers.ranked])


def texts_for(trees: Sequence[RunState]) -> int:
    """How many independent texts are expected to take as many tokens as these trees."""
    tokens = sum(tree.tokens_needed - len(tree.started.prompt_tokens) for tree in trees)
    # The last token of a text never goes through the model
    each = math.fsum(
        sample.weight * (len(sample.token_ids) - 1) for tree in trees for sample in tree.samples
    )
    return max(1, round(tokens / each))


def entropy_row(
    model: LanguageModel,
    outcomes: str,
    truth: dict[str, float],
    config: BranchingConfig,
    seeds: int,
) -> list[str]:
    """Estimates minus the truth, in nats, over these prompts with their entropies and all seeds."""
    part, errors = SENTENCE if config.top_k == 0 else TEXT, []
    counts = []
    for seed in range(seeds):
        # A new seed for each prompt, or the same random numbers would decide all of them
        asked = {prompt: 1000 * seed + number for number, prompt in enumerate(truth)}
        trees = [run(model, prompt, replace(config, seed=own)) for prompt, own in asked.items()]
        counts.append(texts_for(trees) if config.top_k == 0 else config.max_paths)
        alone = replace(config, policy="independent", max_paths=counts[-1])
        for (prompt, own), tree in zip(asked.items(), trees, strict=True):
            scores, seen = scored(tree, part)
            others, _ = scored(run(model, prompt, replace(alone, seed=own)), part)
            # An entropy that was not measured is left out of the means
            found = (scores.semantic, seen, others.semantic)
            errors.append([math.nan if one is None else one - truth[prompt] for one in found])
    tree, seen_only, texts = np.array(errors).T
    gain = np.abs(tree) - np.abs(texts)
    columns = (tree, np.abs(tree), np.abs(seen_only), texts, np.abs(texts), gain)
    means = [bootstrap(np.mean, column) for column in columns]
    cells = [f"{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]" for mean in means]
    true = statistics.fmean(truth.values())
    return [outcomes, f"{len(truth)} x {seeds}", f"{true:.2f}", f"{np.mean(counts):.0f}", *cells]


def exact_entropy(model: LanguageModel, prompt: str, config: BranchingConfig) -> float:
    """The entropy over all texts that are possible, each drawn once without replacement."""
    all_texts = replace(config, policy="stochastic-beam", max_paths=50)
    scores, _ = scored(run(model, prompt, all_texts), TEXT)
    assert scores.rao_blackwellised is not None
    assert scores.explored > 0.999, f"{scores.explored} of {prompt}"
    return scores.rao_blackwellised


def measure(model: LanguageModel, quick: bool) -> list[list[str]]:
    """A row for each number of outcomes."""

    def known(*sizes: int) -> dict[str, float]:
        questions = read_questions(str(QUESTIONS))
        return {one.prompt: one.entropy for one in questions if len(one.distribution) in sizes}

    many = 2 if quick else 20
    two = dict(list(known(2).items())[:: 4 if quick else 1])
    rows = [entropy_row(model, "2", two, TREE, 1 if quick else 2)]
    for outcomes, truth in {"3": known(3), "6": known(6), "4, 5 and 8": known(4, 5, 8)}.items():
        rows.append(entropy_row(model, outcomes, truth, TREE, many))
    for outcomes, config in CONTRIVED.items():
        truth = {prompt: exact_entropy(model, prompt, config) for prompt in STORIES}
        rows.append(entropy_row(model, outcomes, truth, config, many))
    return rows


def main() -> None:
    options = command_line(__doc__, quick="fewer prompts and seeds").parse_args()
    torch.set_num_threads(options.threads)
    rows = measure(load_model("embedded", "cpu", "float32"), options.quick)
    heads = ["outcomes", "prompts x seeds", "entropy", "texts", "tree: bias", "tree: error"]
    heads += ["tree, seen only: error", "independent: bias", "independent: error", "difference"]
    text = markdown_table(heads, rows)
    publish(options, where("float32 on cpu"), text, {"entropies": rows})


if __name__ == "__main__":
    main()
