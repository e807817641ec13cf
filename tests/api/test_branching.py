"""The library object: one import, samples from `generate`, events from `stream`."""

import copy
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_models import chat_pair

import eab
from eab import BranchingConfig, EntropyAdaptiveBranching, token_text
from eab.api import branching
from eab.engine.branching.presets import PRESETS, starting_config
from eab.errors import (
    BatchError,
    MemoryLimitError,
    ModelError,
    PromptError,
    UnfinishedWarning,
)
from eab.lessons.checks.policy import TableModel, random_table
from eab.run.events import RunEnded, RunStarted
from eab.share.exports import as_python

MODEL = TableModel(random_table(2, 5), stop_ids=[4])


def test_generate_gives_samples_whose_weights_sum_to_one_heaviest_first():
    settings = {"entropy_threshold": 0.4, "max_paths": 6, "max_new_tokens": 8}
    samples = EntropyAdaptiveBranching(MODEL, **settings).generate("0")
    weights = [sample.weight for sample in samples]
    assert sum(weights) == pytest.approx(1)
    assert weights == sorted(weights, reverse=True)
    assert 1 < len(samples) <= 6


def test_the_first_settings_keep_their_names_and_positions():
    explorer = EntropyAdaptiveBranching(MODEL, 0.9, 2, 7, max_new_tokens=3)
    started = next(iter(explorer.stream("0")))
    settings = {"entropy_threshold": 0.9, "branch_factor": 2, "max_paths": 7}
    assert isinstance(started, RunStarted)
    assert started.config == starting_config(**settings, max_new_tokens=3)


def test_a_setting_of_one_call_does_not_affect_the_next():
    explorer = EntropyAdaptiveBranching(MODEL, max_new_tokens=3)
    for settings in ({"seed": 5, "max_paths": 2}, {}):
        config = explorer.run("0", **settings).started.config
        assert config == starting_config(max_new_tokens=3, **settings)


def test_run_returns_the_tree_and_stream_the_events_of_the_same_run():
    explorer = EntropyAdaptiveBranching(MODEL, entropy_threshold=0.4, max_new_tokens=5)
    run = explorer.run("0")
    assert run.samples == eab.Run(explorer.stream("0")).samples == explorer.generate("0")
    assert len(run.paths) > len(run.leaves())


def test_a_stream_can_be_closed_at_any_time():
    stream = EntropyAdaptiveBranching(MODEL, 0.65, max_new_tokens=4000).stream("0")
    assert isinstance(next(stream), RunStarted)
    stream.close()


def test_a_loaded_model_needs_its_tokenizer_in_a_pair_or_as_an_argument(twins, words):
    wrapped = twins("llama").ours
    raw = wrapped._model
    made = [
        EntropyAdaptiveBranching((raw, words), max_new_tokens=4),
        EntropyAdaptiveBranching(raw, tokenizer=words, max_new_tokens=4),
        EntropyAdaptiveBranching(wrapped, max_new_tokens=4),
    ]
    assert {explorer.model.card.family for explorer in made} == {"llama"}
    assert len({explorer.generate("w5 w6")[0].token_ids for explorer in made}) == 1


@pytest.mark.filterwarnings("ignore:::peft", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_model_with_adapters_runs_with_them(words, twins):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(copy.deepcopy(twins("llama").plain), lora)
    plain_settings = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 6}
    explorer = EntropyAdaptiveBranching((adapted, words), policy="greedy", **plain_settings)

    def both() -> tuple[list[float], list[float]]:
        """The log-probabilities of the text from the engine and from the model."""
        run = explorer.run("w5 w6 w7")
        prompt, [sample] = run.started.prompt_tokens, run.samples
        with torch.no_grad():
            logits = adapted(torch.tensor([[*prompt, *sample.token_ids]])).logits[0]
        rows = torch.log_softmax(logits[len(prompt) - 1 : -1].double(), -1)
        there = rows.gather(1, torch.tensor(sample.token_ids)[:, None])[:, 0]
        return [*sample.log_probs], there.tolist()

    ours, theirs = both()
    assert ours == pytest.approx(theirs, abs=1e-4)
    with adapted.disable_adapter():
        plain, plain_theirs = both()
    assert plain == pytest.approx(plain_theirs, abs=1e-4)
    assert plain != pytest.approx(ours, abs=1e-3)
    tokens = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    prompted = peft.get_peft_model(copy.deepcopy(twins("llama").plain), tokens)
    with pytest.raises(ModelError, match="adapter of the PeftModel adds tokens"):
        EntropyAdaptiveBranching((prompted, words))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside torch
def test_a_compiled_model_is_refused_with_the_reason(twins, words):
    compiled = torch.compile(twins("llama").plain)
    with pytest.raises(ModelError, match=r"compiled by torch\.compile"):
        EntropyAdaptiveBranching((compiled, words))


def test_a_prompt_may_be_text_or_token_ids(embedded):
    explorer = EntropyAdaptiveBranching(embedded, max_paths=3, max_new_tokens=5)
    asked = explorer.run("Once upon a time")
    ids = list(asked.started.prompt_tokens)
    for given in (ids, tuple(ids), np.array(ids), torch.tensor([ids])):
        run = explorer.run(given)
        assert run.samples == asked.samples
        assert run.started.prompt == token_text.join(asked.started.prompt_texts)
    for bad in (3, None, {"a": 1}, ["x"], [1.5], [True], [10**6], [], ""):
        for call in (explorer.generate, explorer.run, explorer.stream):
            with pytest.raises(PromptError):
                call(bad)


def test_the_model_encodes_and_decodes() -> None:
    model = EntropyAdaptiveBranching(chat_pair()).model
    tokens = model.encode("w5 w6")
    assert (
        EntropyAdaptiveBranching(model).run(tokens, max_new_tokens=2).started.prompt_tokens
        == tokens
    )
    assert "w5w6" in model.decode(tokens, skip_special_tokens=True)
    assert (MODEL.decode([0, 4]), MODEL.decode([0, 4], skip_special_tokens=True)) == (" 0 4", " 0")


def test_a_batch_gives_each_prompt_the_run_that_it_has_alone(embedded):
    explorer = EntropyAdaptiveBranching(embedded, max_paths=3, max_new_tokens=5)
    prompts = ["Once upon a time", "The cat", "One day"]
    runs = explorer.generate_batch(prompts, seed=4)
    assert [run.started.prompt for run in runs] == prompts
    alone = [explorer.run(prompt, seed=4) for prompt in prompts]
    texts = [[sample.text for sample in run.samples] for run in runs]
    assert texts == [[sample.text for sample in run.samples] for run in alone]
    for given in (pd.Series(prompts), np.array(prompts), iter(prompts), tuple(prompts)):
        again = explorer.generate_batch(given, seed=4)
        assert [[sample.text for sample in run.samples] for run in again] == texts
    for bad in ("The cat", 3, None, ["The cat", 3], {"The cat"}, pd.DataFrame({"a": prompts})):
        with pytest.raises(PromptError):
            explorer.generate_batch(bad)


def test_a_batch_keeps_the_runs_that_succeed() -> None:
    explorer = EntropyAdaptiveBranching(MODEL, max_new_tokens=3)
    with pytest.raises(BatchError, match=r"2 of 4 prompts .* index 1: .*the context") as raised:
        explorer.generate_batch(["0", "1 " * 6000 + "1", "1", ""])
    kept = [run and run.samples for run in raised.value.runs]
    assert kept == [explorer.run("0").samples, None, explorer.run("1").samples, None]
    assert [*raised.value.errors] == [1, 3]


def test_a_run_at_its_memory_limit_keeps_its_tree() -> None:
    heavy = TableModel(random_table(2, 5, concentration=5.0))
    limit = {"max_paths": 200, "max_new_tokens": 500, "kv_limit_mib": 1, "cache": "deep-copy"}
    explorer = EntropyAdaptiveBranching(heavy, 0.0, **limit, min_fork_weight=0)
    prompt = [0] * 2000
    with pytest.warns(UnfinishedWarning, match="kv_limit_mib"):
        run = explorer.run(prompt)
    assert run.ended.reason == "failed"
    assert len(run.samples[0].tokens) > 1
    with pytest.warns(UnfinishedWarning, match="failed"):
        small, large = explorer.generate_batch([prompt, " ".join(["0"] * 2000)])
    assert [small.samples, large.samples] == [run.samples] * 2
    with pytest.raises(MemoryLimitError, match="kv_limit_mib"):
        explorer.generate(prompt)
    *_, last = explorer.stream(prompt)
    assert isinstance(last, RunEnded)
    assert last.reason == "failed"


def test_numbers_and_names_of_other_libraries_are_accepted_as_settings():
    explorer = EntropyAdaptiveBranching(MODEL, max_paths=np.int64(3), temperature=np.float32(0.5))
    config = explorer.run("0", top_k=None, threshold_unit="normalized").started.config
    assert config == starting_config(max_paths=3, temperature=0.5, threshold_unit="normalised")
    assert type(config.max_paths) is int
    assert explorer.run("0", temperature=0).started.config.policy == "greedy"
    assert EntropyAdaptiveBranching("embedded", dtype=torch.float64).model.card.dtype == "float64"


def test_a_threshold_that_may_be_in_another_unit_is_warned_about_once(caplog):
    branching._warn_of_low_threshold.cache_clear()
    explorer = EntropyAdaptiveBranching(MODEL, entropy_threshold=0.055, max_new_tokens=2)
    explorer.run("0")
    EntropyAdaptiveBranching(MODEL, 0.055, threshold_unit="normalised", policy="original")
    EntropyAdaptiveBranching(MODEL, 0.0)
    assert caplog.text.count('threshold_unit="normalised", policy="original"') == 1


NATS_WIDE = {**PRESETS["wide"].settings, "entropy_threshold": 0.9, "threshold_unit": "nats"}
CHAT: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9}
BALANCED = {**PRESETS["balanced"].settings, **CHAT}
IN_NATS = {**BALANCED, "entropy_threshold": 0.9, "threshold_unit": "nats"}
NORMALISED = {**BALANCED, "entropy_threshold": 0.08, "threshold_unit": "normalised"}
INDEPENDENT = {"policy": "independent", "top_p": 1.0}
CHAT_CASES = [
    ({}, {}, BALANCED),
    ({"max_paths": 4}, {"branch_factor": 3}, {**BALANCED, "max_paths": 4, "branch_factor": 3}),
    ({"entropy_threshold": 0.9}, {}, IN_NATS),
    ({"preset": "wide"}, {"entropy_threshold": 0.9}, {**CHAT, **NATS_WIDE}),
    ({"entropy_threshold": 0.9}, {"preset": "wide"}, {**CHAT, **PRESETS["wide"].settings}),
    ({"threshold_unit": "normalised"}, {}, NORMALISED),
    ({"top_k": 5}, {}, {**BALANCED, "top_k": 5}),
    ({"policy": "original"}, {}, {**BALANCED, "policy": "original"}),
    ({}, {"policy": "independent", "top_p": 1.0}, {**BALANCED, **INDEPENDENT}),
]


@pytest.mark.parametrize(("given", "later", "expected"), CHAT_CASES)
def test_a_chat_model_starts_with_settings_that_suit_it(given, later, expected):
    explorer = EntropyAdaptiveBranching(chat_pair(), max_new_tokens=2, **given)
    started = explorer.run("w5 w6", **later).started
    assert started.config == BranchingConfig(max_new_tokens=2, **expected)
    same: dict[str, Any] = {}
    code = as_python(started).replace(repr(started.model.name), "chat_pair()")
    code = re.sub(r" +(device|dtype)=.*\n", "", code)  # only for a model loaded by name
    exec(code, {"chat_pair": chat_pair}, same)
    assert same["run"].samples == explorer.run("w5 w6", **later).samples


def test_a_loaded_draft_model_is_used_as_it_is():
    drafts = {"drafter": "model", "draft": MODEL, "max_new_tokens": 3}
    assert EntropyAdaptiveBranching(MODEL, **drafts).generate("0")


def test_the_package_lists_its_names():
    for name in eab.__all__:
        assert getattr(eab, name) is not None
    assert dir(eab) == sorted(eab.__all__)


WITHOUT_TORCH = [
    "import eab",
    "import eab.run, eab.run.events, eab.run.record, eab.config, eab.token_text, eab.errors",
    "import eab.engine.models.sources, eab.engine.models.packaged",
    "from eab import BranchingConfig, EabError, load, save, save_html, Run, Sample, Settings",
    "Run.load('assets/runs/coin.eab').to_html()",
    "from eab.lessons import bundled_runs; from eab.engine.what_if import Trace",
    "Trace(bundled_runs.events_of(bundled_runs.recordings()[0]))",
    "import importlib, pkgutil, eab.figures as f",
    "for m in pkgutil.iter_modules(f.__path__): importlib.import_module('eab.figures.' + m.name)",
]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ],
)
def test_threads_spin_briefly_unless_the_user_has_decided_how_they_wait(given, expected):
    without = {
        k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    code = "import eab, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=without | given,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected


def test_finding_models_and_reading_or_drawing_a_run_does_not_import_torch():
    check = "assert not {'torch', 'transformers', 'streamlit'} & set(sys.modules)"
    lines = [line for statement in WITHOUT_TORCH for line in (statement, check)]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(["import sys", *lines])],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
