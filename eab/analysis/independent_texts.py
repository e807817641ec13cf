"""Independent texts for the budget of a run: how many there would be, and what they would see."""

import math
from dataclasses import replace
from typing import Final, Literal

from eab.config import MAX_PATHS, BranchingConfig
from eab.run import RunState, least_probability

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


_MUCH: Final = 0.9  # probability seen


def average_seen(run: RunState, count: int) -> tuple[float, float] | None:
    """The least and the most probability that `count` independent texts see on average over all
    seeds, computed from this run; None if it saw too little.
    """
    texts = {sample.token_ids: least_probability(sample.tokens) for sample in run.samples}
    explored = min(1.0, math.fsum(texts.values()))
    if explored < _MUCH:
        return None
    seen = math.fsum(share * (1 - (1 - share) ** count) for share in texts.values())
    return seen, seen + 1 - explored
