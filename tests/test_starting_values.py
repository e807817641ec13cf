"""One set of starting values: a run begins with the same settings wherever it is started."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import eab_here, output_of
from page_walk import opened
from tiny_models import chat_pair

import eab
from app.server.links import from_query
from app.state.session import worker
from eab import EntropyAdaptiveBranching
from eab.config import SETTINGS, BranchingConfig
from eab.engine.branching.presets import START, starting_config
from eab.engine.models.base import LanguageModel

PROMPT = "w5 w6"
CASES: list[dict[str, Any]] = [
    {},
    {"preset": "balanced"},
    {"preset": "wide"},
    {"entropy_threshold": 0.7},
    {"threshold_unit": "nats"},
    {"preset": "focused", "branch_factor": 4, "temperature": 1.0},
    {"policy": "independent", "max_paths": 3},
    {"max_new_tokens": 5, "top_k": 5},
]
Door = Callable[[LanguageModel, dict[str, Any], Path], BranchingConfig]


def options(given: dict[str, Any]) -> list[str]:
    named = {name: declared.option or name for name, declared in SETTINGS.items()}
    return [f"--{named.get(name, name).replace('_', '-')}={value}" for name, value in given.items()]


def in_the_library(model: LanguageModel, given: dict[str, Any], _: Path) -> BranchingConfig:
    return EntropyAdaptiveBranching(model, **given).run(PROMPT).started.config


def in_one_call(model: LanguageModel, given: dict[str, Any], _: Path) -> BranchingConfig:
    return EntropyAdaptiveBranching(model).generate_batch([PROMPT], **given)[0].started.config


def in_a_notebook(model: LanguageModel, given: dict[str, Any], _: Path) -> BranchingConfig:
    return eab.explore(model, PROMPT, **given).wait().started.config


def on_a_server(model: LanguageModel, given: dict[str, Any], _: Path) -> BranchingConfig:
    asked = eab.Request(PROMPT, starting_config(**given)) if given else PROMPT
    return eab.Run(eab.serve(model, [asked])[0]).started.config


def in_a_sweep(model: LanguageModel, given: dict[str, Any], _: Path) -> BranchingConfig:
    grid = eab.Grid({}, starting_config(**given)) if given else eab.Grid()
    return next(cell for step in eab.sweep(model, [PROMPT], grid) for cell in step.cells).config


def in_the_terminal(_: LanguageModel, given: dict[str, Any], folder: Path) -> BranchingConfig:
    out = eab_here("run", PROMPT, *options(given), "--record", str(folder / "run.eab"))
    assert out.returncode == 0, out.stderr
    return eab.load(folder / "run.eab").started.config


def in_a_line_of_a_sweep(_: LanguageModel, given: dict[str, Any], folder: Path) -> BranchingConfig:
    lines = json.dumps({"id": "a", "prompt": PROMPT} | given)
    output_of("sweep", "-", "--out", folder, "--runs", given=lines)
    [file] = folder.rglob("*.eab")
    return eab.load(file).started.config


def in_a_sweep_of_the_terminal(
    _: LanguageModel, given: dict[str, Any], folder: Path
) -> BranchingConfig:
    lines = json.dumps({"id": "a", "prompt": PROMPT})
    output_of("sweep", "-", "--out", folder, "--runs", *options(given), given=lines)
    [file] = folder.rglob("*.eab")
    return eab.load(file).started.config


DOORS: list[Door] = [
    *(in_the_library, in_one_call, in_a_notebook, on_a_server, in_a_sweep),
    *(in_the_terminal, in_a_line_of_a_sweep, in_a_sweep_of_the_terminal),
]


@pytest.fixture(scope="module", params=["chat", "base"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    pair = chat_pair()
    if request.param == "base":
        pair[1].chat_template = None
    return EntropyAdaptiveBranching(pair).model


@pytest.mark.parametrize("given", CASES, ids=str)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_begins_with_the_same_settings(
    door: Door,
    given: dict[str, Any],
    model: LanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eab.engine.remote.model.load_model", lambda *_: model)
    assert door(model, given, tmp_path) == starting_config(**given)


def test_what_is_given_stays_and_a_named_preset_is_the_default_preset() -> None:
    for given in CASES:
        config = starting_config(**given)
        own = {name: value for name, value in given.items() if name != "preset"}
        assert own == {name: getattr(config, name) for name in own}
    assert starting_config(preset="balanced") == START == eab.Request("").config == eab.Grid().base


def test_the_page_begins_with_the_same_settings_and_keeps_what_was_set(embedded: Any) -> None:
    page = opened().put(set_model_kind="Stories").press("reset_button").put(prompt="The cat sat on")
    assert config_of_the_run(page) == limited(START)
    page.put(set_max_paths=3)
    assert config_of_the_run(page) == limited(starting_config(max_paths=3))
    link = from_query({"prompt": "The cat", "max_paths": "3"}).config
    assert link == starting_config(max_paths=3)


def limited(config: BranchingConfig) -> BranchingConfig:
    return worker()._admission.limited(config)


def config_of_the_run(page: Any) -> BranchingConfig:
    before = len(worker().remembered)
    page.press("run_button").until(lambda: len(worker().remembered) > before).run_to_its_end()
    return worker().remembered[-1].request.config
