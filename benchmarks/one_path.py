"""One text by the engine, with all events, and by transformers, from the same weights, in turns.

    python benchmarks/one_path.py [--only texts|prompts] [--quick] [--json FILE] [--table FILE]

texts: by `generate`, both greedy and sampled from the whole distribution, for three models (see
shapes.py). Figures are milliseconds per new token, including the prompt, as medians with quartiles.
The ratio of a shape is the larger of greedy and sampled.

prompts: long ones until the first new token, against one forward pass with transformers' own cache.
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
LONG: Final = (1000, 2000, 4000, 6000)  # tokens of a prompt
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


def measure_texts(rounds: int, clock: Clock) -> tuple[str, dict[str, Any]]:
    rows: list[list[str]] = []
    result: dict[str, Any] = {"ms_per_token": {}, "ratios": {}}
    for shape, tokens in TOKENS.items():
        timings = one_path(shape, tokens, rounds, clock)
        ratios = []
        for way in WAYS:
            both = [timings[f"{way}, {name}"] for name in ("generate", "engine")]
            ratios.append(both[1].median / both[0].median)
            rows.append([shape, way, *(spread(one, 1) for one in both), f"{ratios[-1]:.2f}"])
        result["ms_per_token"][shape] = seconds_of(timings)
        result["ratios"][f"one_path_over_transformers_{shape.replace('.', '')}"] = max(ratios)
    heads = ["shape", "way", "generate, ms per token", "engine, ms per token", "over generate"]
    return markdown_table(heads, rows), result


def measure_prompts(rounds: int, clock: Clock) -> tuple[str, dict[str, Any]]:
    plain = plain_model("135m", Placement("cpu", torch.float32))
    ours = engine_model(plain, "135m")
    rows, ratios = [], {}
    for length in LONG:
        ids = torch.randint(1, 4096, (1, length), generator=torch.Generator().manual_seed(1))
        request = Request(
            "",
            BranchingConfig(policy="greedy", max_paths=1, max_new_tokens=1),
            token_ids=tuple(ids[0].tolist()),
        )
        forward = torch.inference_mode()(partial(plain, ids, use_cache=True, logits_to_keep=1))
        measures = {
            "forward pass": timed(forward, clock),
            "engine": timed(lambda own=request: fold(event_stream(ours, own)), clock),
        }
        timings = take_turns(measures, rounds)
        ratio = timings["engine"].median / timings["forward pass"].median
        ratios[f"prompt_over_transformers_{length}"] = ratio
        rows.append([f"{length:,}", *map(spread, timings.values()), f"{ratio:.2f}"])
    heads = ["prompt, tokens", "forward pass of transformers, s", "engine, s", "over transformers"]
    return markdown_table(heads, rows), {"ratios": ratios}


PARTS: Final = {"texts": (measure_texts, REPEATS), "prompts": (measure_prompts, MIN_REPEATS)}


def main() -> None:
    parser = command_line(__doc__, quick="as few rounds as a comparison needs")
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    options, clock = clocked(parser)
    tables, result = [], dict[str, Any]()
    for name, (measure, rounds) in PARTS.items():
        if options.only in (None, name):
            table, found = measure(MIN_REPEATS if options.quick else rounds, clock)
            tables.append(table)
            ratios = result.get("ratios", {}) | found["ratios"]
            result |= found | {"ratios": ratios}
    publish(options, where("float32"), "\n".join(tables), result)


if __name__ == "__main__":
    main()
