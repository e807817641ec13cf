"""Every public function explains a wrong argument with an EabError that names what is allowed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eab
from eab import BranchingConfig, EabError, EntropyAdaptiveBranching, Grid, Message, Request, Run
from eab.lessons import bundled_runs
from eab.lessons.checks.policy import TableModel, random_table

MODEL = TableModel(random_table(2, 5), stop_ids=[4])
EXPLORER = EntropyAdaptiveBranching(MODEL, max_new_tokens=2)
COIN = Run(bundled_runs.events_of(bundled_runs.named("coin.eab")))
WRONG = st.one_of(
    st.integers(),
    st.floats(),
    st.binary(max_size=9),
    st.lists(st.one_of(st.none(), st.floats(), st.binary(max_size=2)), min_size=1, max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from([object(), ..., int, lambda: None, {1}, 3j, np.zeros(3), np.array("x"), True]),
)
CALLS: dict[str, Callable[[Any], object]] = {
    "the model": EntropyAdaptiveBranching,
    "a model's tokenizer": lambda wrong: EntropyAdaptiveBranching(object(), tokenizer=wrong),
    "a device": lambda wrong: eab.load_model("embedded", device=wrong),
    "a dtype": lambda wrong: eab.load_model("embedded", dtype=wrong),
    "weights": lambda wrong: eab.load_model("embedded", weights=wrong),
    "a layout": lambda wrong: eab.load_model("embedded", layout=wrong),
    "a name": eab.load_model,
    "a prompt": EXPLORER.generate,
    "a prompt of a run": EXPLORER.run,
    "a prompt of a stream": EXPLORER.stream,
    "prompts": EXPLORER.generate_batch,
    "continued": lambda wrong: EXPLORER.run("0", continued=wrong),
    "a preset": lambda wrong: EXPLORER.run("0", preset=wrong),
    "a policy": lambda wrong: EXPLORER.run("0", policy=wrong),
    "a logits processor": lambda wrong: EXPLORER.run("0", logits_processor=wrong),
    "a chat's message": lambda wrong: EXPLORER.run([{"role": wrong, "content": "x"}]),
    "a run to show": eab.show,
    "a run to save": lambda wrong: eab.save(wrong, "x.eab"),
    "a run for a page": lambda wrong: eab.save_html(wrong, "x.html"),
    "a place for a page": lambda wrong: eab.save_html(COIN, wrong),
    "a place": COIN.save,
    "a file": eab.load,
    "a file of a run": Run.load,
    "events": Run,
    "a threshold": lambda wrong: COIN.what_if(threshold=wrong),
    "a growth step": lambda wrong: COIN.what_if(r=wrong),
    "a part": COIN.answers,
    "a part of uncertainty": COIN.uncertainty,
    "a rule of answers": lambda wrong: COIN.answers("text", wrong),
    "a lesson": eab.show_lesson,
    "requests": lambda wrong: eab.serve(MODEL, wrong),
    "a model to serve": lambda wrong: eab.serve(wrong, []),
    "a limit of runs": lambda wrong: eab.serve(MODEL, [], max_running=wrong),
    "a limit of memory": lambda wrong: eab.serve(MODEL, [], kv_limit_mib=wrong),
    "a grid": lambda wrong: eab.sweep(MODEL, ["0"], wrong),
    "prompts of a sweep": lambda wrong: eab.sweep(MODEL, wrong, Grid()),
    "a folder of a sweep": lambda wrong: next(eab.sweep(MODEL, ["0"], Grid(), folder=wrong)),
    "a set of prompts": eab.read_prompts,
    "varied settings": Grid,
    "seeds": lambda wrong: Grid(seeds=wrong),
    "a base": lambda wrong: Grid(base=wrong),
    "a request": lambda wrong: next(iter(eab.serve(MODEL, [Request(wrong, BranchingConfig())])[0])),
    "a request's config": lambda wrong: Request("0", wrong),
    "a message": lambda wrong: EXPLORER.run([Message("user", wrong)]),
}
# The calls for which some of the WRONG values are valid
RIGHT = {
    "a threshold": lambda value: isinstance(value, int | float) and 0 <= value <= 20,
    "a growth step": lambda value: isinstance(value, int) and 1 <= value <= 4096,
    "a limit of runs": lambda value: isinstance(value, int) and 1 <= value <= 10_000,
    "a limit of memory": lambda value: isinstance(value, int | float) and value >= 0,
    "a part": callable,
    "a part of uncertainty": callable,
    "a rule of answers": callable,
    "varied settings": lambda value: isinstance(value, dict) and not value,
    "continued": lambda value: isinstance(value, list | np.ndarray) and not np.size(value),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_explained(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)

    @given(WRONG)
    @example(np.array("x"))  # claims to be iterable, and is not
    @settings(max_examples=25, deadline=None)
    def explained(wrong: Any) -> None:
        if RIGHT.get(name, lambda _: False)(wrong):
            return
        with pytest.raises(EabError) as error:
            CALLS[name](wrong)
        assert 10 < len(str(error.value)) < 2100

    explained()
