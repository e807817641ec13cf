"""Independent sampling that costs as much as a tree, to compare the two."""

import math
from dataclasses import replace
from typing import Literal

from eab.config import MAX_PATHS, BranchingConfig
from eab.run import RunState

Budget = Literal["tokens", "texts"]


def mean_tokens_per_text(run: RunState) -> float:
    """The weighted mean number of tokens in a text after the prompt, not counting its last token.

    Under `fair` and `independent` it is an unbiased estimate for ordinary samples.
    """
    leaves = run.leaves()
    total = math.fsum(leaf.weight for leaf in leaves) or 1.0
    lengths = (max(0, sum(1 for _ in run.tokens(leaf.id)) - 1) for leaf in leaves)
    return math.fsum(
        leaf.weight / total * length for leaf, length in zip(leaves, lengths, strict=True)
    )


def independent_config(run: RunState, budget: Budget) -> BranchingConfig:
    """The settings for independent sampling at the budget of this run.

    `texts`: as many texts as the run has. `tokens`: as many texts as the tokens that the run needs
    allow, at `mean_tokens_per_text` each, if the prompt is prefilled once for all of them.
    """
    count = len(run.leaves())
    if budget == "tokens" and (each := mean_tokens_per_text(run)) > 0:
        count = round(min(MAX_PATHS, (run.tokens_needed - len(run.started.prompt_tokens)) / each))
    return replace(
        run.started.config,
        policy="independent",
        max_paths=min(MAX_PATHS, max(1, count)),
        cache="tree",
        stop_when="ended",
    )
