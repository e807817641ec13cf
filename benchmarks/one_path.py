"""One text by the engine, with all events, and by `generate` of transformers, from the same weights.

    python benchmarks/one_path.py [--quick] [--json FILE] [--table FILE]

Both greedy and sampled from the whole distribution, for three models (see shapes.py). They take
turns. Figures are milliseconds per new token, including the prompt, as medians with quartiles. The
ratio of a shape is the larger of greedy and sampled.
"""

from functools import partial
from typing import Any, Final

import torch
from published import (
    Placement,
    clocked,
    command_line,
    markdown_table,
    publish,
    seconds_of,
    spread,
    where,
)
from shapes import engine_model, plain_model
from transformers import PreTrainedModel

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.run import fold
from eab.timing import MIN_REPEATS, Clock, Timing, take_turns, timed

REPEATS = 25
PROMPT: Final = "Once upon a time there was a little girl who had a red ball and a brown dog. "
# New tokens by shape; fewer for larger models
TOKENS: Final = {"embedded": 96, "135m": 24, "0.5b": 16}
WAYS: Final = {"greedy": "greedy", "sampled": "independent"}


def one_path(shape: str, tokens: int, rounds: int, clock: Clock) -> dict[str, Timing]:
    """Milliseconds per token of one text of `tokens` tokens, by way and competitor."""
    plain = plain_model(shape, Placement("cpu", torch.float32))
    ours = engine_model(plain, shape)
    prompt = torch.tensor([ours.encode(PROMPT, BranchingConfig())])
    measures = {}
    for way, policy in WAYS.items():
        request = Request(
            PROMPT, BranchingConfig(policy=policy, max_paths=1, max_new_tokens=tokens)
        )
        theirs = partial(generate, plain, prompt, way == "sampled", tokens)
        measures[f"{way}, generate"] = timed(theirs, clock)
        measures[f"{way}, engine"] = timed(lambda own=request: fold(event_stream(ours, own)), clock)
    return {
        name: Timing(tuple(1000 * seconds / tokens for seconds in timing.seconds))
        for name, timing in take_turns(measures, rounds).items()
    }


def generate(model: PreTrainedModel, prompt: torch.Tensor, sampled: bool, tokens: int) -> None:
    """Generate one text with transformers. Its default top-k of 50 is switched off."""
    sampling = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if sampled else {}
    model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=sampled,
        min_new_tokens=tokens,
        max_new_tokens=tokens,
        pad_token_id=0,
        **sampling,
    )


def main() -> None:
    parser = command_line(__doc__, quick=f"{MIN_REPEATS} rounds instead of {REPEATS}")
    options, clock = clocked(parser)
    rows: list[list[str]] = []
    result: dict[str, Any] = {"ms_per_token": {}, "ratios": {}}
    for shape, tokens in TOKENS.items():
        timings = one_path(shape, tokens, MIN_REPEATS if options.quick else REPEATS, clock)
        ratios = []
        for way in WAYS:
            both = [timings[f"{way}, {name}"] for name in ("generate", "engine")]
            ratios.append(both[1].median / both[0].median)
            rows.append([shape, way, *(spread(one, 1) for one in both), f"{ratios[-1]:.2f}"])
        result["ms_per_token"][shape] = seconds_of(timings)
        result["ratios"][f"one_path_over_transformers_{shape.replace('.', '')}"] = max(ratios)
    heads = ["shape", "way", "generate, ms per token", "engine, ms per token", "over generate"]
    publish(options, where("float32"), markdown_table(heads, rows), result)


if __name__ == "__main__":
    main()
