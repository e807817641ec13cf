"""Beam search by the engine and by `generate(num_beams=...)` of transformers, from the same weights.

    python benchmarks/beams.py [--quick] [--json FILE] [--table FILE]

The shape of SmolLM2-135M (see shapes.py), a prompt of 300 tokens, and 40 new tokens. They take
turns. Seconds are those of a whole job, including the prompt, as medians with quartiles. KV bytes
are those of all K and V that a cache holds at the end of a job; while transformers puts its rows
into the order of the new beams, it also has a second copy of a layer.
"""

from functools import partial
from typing import Any, Final

import torch
from published import (
    Placement,
    clocked,
    command_line,
    markdown_table,
    mib,
    publish,
    seconds_of,
    spread,
    where,
)
from shapes import engine_model, plain_model
from transformers import DynamicCache, PreTrainedModel

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request
from eab.run import RunState, fold
from eab.timing import MIN_REPEATS, take_turns, timed

BEAMS: Final = (4, 10, 50)
PROMPT, NEW_TOKENS, REPEATS = 300, 40, 15


def of_engine(model: HuggingFaceModel, prompt: tuple[int, ...], beams: int) -> RunState:
    config = BranchingConfig(policy="beam", max_paths=beams, max_new_tokens=NEW_TOKENS)
    return fold(event_stream(model, Request("", config, token_ids=prompt)))


@torch.inference_mode()
def of_transformers(model: PreTrainedModel, prompt: tuple[int, ...], beams: int) -> Any:
    return model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=NEW_TOKENS,
        pad_token_id=0,
        return_dict_in_generate=True,
    )


def kv_bytes_of(cache: DynamicCache) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def main() -> None:
    parser = command_line(__doc__, quick=f"{MIN_REPEATS} rounds instead of {REPEATS}")
    options, clock = clocked(parser)
    plain = plain_model("135m", Placement("cpu", torch.float32))
    ours = engine_model(plain, "135m")
    prompt = tuple(torch.randint(0, 49152, (PROMPT,), generator=torch.manual_seed(0)).tolist())
    rows: list[list[str]] = []
    result: dict[str, Any] = {"seconds": {}, "kv_bytes": {}, "ratios": {}}
    for beams in BEAMS:
        run, theirs = of_engine(ours, prompt, beams), of_transformers(plain, prompt, beams)
        texts = [row[PROMPT:] for row in theirs.sequences.tolist()]
        same = sum([*sample.token_ids] in texts for sample in run.samples)
        held = [run.last_kv.bytes_held if run.last_kv else 0, kv_bytes_of(theirs.past_key_values)]
        del theirs
        jobs = {
            "engine": timed(partial(of_engine, ours, prompt, beams), clock),
            "generate": timed(partial(of_transformers, plain, prompt, beams), clock),
        }
        timings = take_turns(jobs, MIN_REPEATS if options.quick else REPEATS)
        faster = timings["generate"].median / timings["engine"].median
        share = held[0] / held[1]
        seconds = [spread(timings[name], 2) for name in jobs]
        sizes = [mib(size) for size in held]
        rows.append(
            [str(beams), *seconds, f"{faster:.1f}", *sizes, f"{share:.2f}", f"{same} of {beams}"]
        )
        result["seconds"][beams] = seconds_of(timings)
        result["kv_bytes"][beams] = held
        result["ratios"][f"beams_{beams}_times_as_fast"] = faster
        result["ratios"][f"beams_{beams}_kv_share"] = share
    heads = ["beams", "engine, s", "generate, s", "times as fast"]
    heads += ["engine, KV", "generate, KV", "share", "same texts"]
    publish(options, where("float32"), markdown_table(heads, rows), result)


if __name__ == "__main__":
    main()
