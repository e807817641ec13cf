"""The Explore page without a browser: it runs prompts and keeps what was on the screen. Its
messages about a wrong prompt or model are tested in test_refused.py.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from invented_runs import with_each
from made_runs import bundled, bundled_run
from msgspec import structs
from page_walk import Tab, opened
from places import ROOT

from app.server.batched_runs import BatchedRuns
from app.state import session, what_if
from app.state.session import worker
from eab.analysis.answers import group_answers
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.lessons import bundled_runs
from eab.run import record
from eab.run.events import Message, TokensAppended


@pytest.fixture
def page() -> Tab:
    return opened()


def coin(config: BranchingConfig | None = None, **started: Any) -> bytes:
    """The file of a bundled run whose RunStarted has these values instead of its own."""
    first, *others = bundled("coin")
    changed = structs.replace(first, config=config or first.config, **started)  # type: ignore[type-var]
    return record.dumps([changed, *others])


def last_request() -> Request:
    return worker().remembered[-1].request


def test_the_first_visit_shows_a_bundled_run(page: Tab) -> None:
    assert page.value("prompt") == bundled_run("bridge").started.prompt
    assert bundled_runs.named("bridge.eab").title in page.status
    assert page.board["paths"]


def test_no_page_imports_torch_on_the_first_visit() -> None:
    names = sorted(file.stem for file in (ROOT / "pages").glob("*.py"))
    code = f"""
import sys
from app.server.model_cache import ModelCache
from page_walk import opened

ModelCache.warm_up = lambda *_: None
tab = opened()
for name in {names}:
    assert tab.go_to(name).main.children, name
    assert not {{'torch', 'transformers'}} & set(sys.modules), name
"""
    paths = os.pathsep.join([str(ROOT / "tests" / "support"), *sys.path])
    subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        check=True,
        capture_output=True,
        timeout=120,
    )


def test_every_bundled_run_opens(page: Tab) -> None:
    for recording in bundled_runs.recordings():
        page.open_example(recording.file.removesuffix(".eab"))
        assert recording.title in page.status


def test_run_generates_from_the_prompt_and_the_status_lists_later_changes(page: Tab) -> None:
    page.generate(prompt="The cat sat on the", set_max_new_tokens=5)
    assert not page.error
    assert page.board["prompt"] == "The cat sat on the"
    assert page.board["steps"][-1]["step"] == 4  # earlier steps may have been in an earlier message
    page.put(set_temperature=0.8)
    assert "temperature" in page.status
    assert "Press Run" in page.status


def test_the_settings_of_beam_search_are_offered_with_it_and_dropped_beams_are_drawn(
    page: Tab,
) -> None:
    def offered() -> set[str]:
        keys = {"set_length_penalty", "set_early_stopping"}
        return keys & {one.key for one in (*page.slider, *page.selectbox)}

    assert not offered()
    page.put(set_policy="beam")
    assert len(offered()) == 2
    page.generate(prompt="The cat sat on the", set_max_new_tokens=5, set_early_stopping="never")
    assert last_request().config.early_stopping == "never"
    assert "pruned" in {path["status"] for path in page.board["paths"]}
    page.put(set_policy="fair")
    assert not offered()


def test_a_run_ends_once_its_answer_is_decided_and_the_page_says_what_could_not_change_it(
    page: Tab,
) -> None:
    page.put(set_stop_when="decided")
    page.generate(prompt="Grandma went to the market and bought some", set_max_new_tokens=40)
    run = worker().remembered[-1].state.run
    words = f"{run.tokens_through_model} tokens; up to {run.tokens_left} more in its live texts"
    assert page.status.startswith(f"Decided after {words}")
    assert page.board["ended"] == "decided"


def test_a_run_that_stopped_because_nobody_watched_says_so_later(
    page: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.tasks.UNWATCHED_SECONDS", 0.0)
    page.generate(set_max_new_tokens=256)
    assert not page.error
    assert page.status.startswith("Stopped (its tab was closed) ")
    assert not page.get("progress")


MOST = {"max_new_tokens": 4096, "max_paths": 256, "branch_factor": 16, "temperature": 10.0}
LEAST = {"max_new_tokens": 1, "max_paths": 1, "temperature": 0.01, "top_p": 0.01, "r": 1}
CHAT_SETTINGS = {"chat": True, "system": "Be *brief*", "policy": "original", "r": 4096}
EXTREMES = [
    MOST | {"entropy_threshold": 20.0, "top_k": 1_000_000, "seed": 2**63 - 1},
    LEAST | {"entropy_threshold": 0.0},
    {"entropy_threshold": 1.0, "threshold_unit": "rank", "policy": "greedy"},
    CHAT_SETTINGS | {"entropy_threshold": 1, "threshold_unit": "normalised"},
]


@pytest.mark.parametrize("settings", EXTREMES, ids=lambda settings: ",".join(settings))
def test_a_run_file_with_settings_beyond_the_sliders_opens_and_lists_the_changes(
    page: Tab, settings: dict[str, Any]
) -> None:
    page.open_file("far.eab", coin(BranchingConfig(**settings)))
    assert not page.error
    assert page.status.startswith("Changed since this run: ")
    page.press("run_button")  # the nearest settings on offer are valid
    worker().remembered[-1].stop()


def test_the_same_recording_can_be_chosen_again_after_a_run(page: Tab) -> None:
    page.open_example("coin").generate(set_max_new_tokens=2).open_example("coin")
    assert bundled_runs.named("coin.eab").title in page.status


def test_two_different_files_of_equal_length_are_two_runs(page: Tab) -> None:
    one = bundled("coin")
    other = [
        with_each(event, text=" other") if isinstance(event, TokensAppended) else event
        for event in one
    ]
    names = {
        page.open_file("run.eab", record.dumps(events)).board["run"] for events in (one, other)
    }
    assert len(names) == 2


def test_a_run_is_exported_in_many_forms(page: Tab) -> None:
    page.remember(results="Export")
    offered = {button.proto.label for button in page.get("download_button")}
    assert offered >= {"Run file", "Replay (HTML)", "Tree (GraphML)", "Steps (Parquet)"}
    assert "Replay with the story model, +10 MB (HTML)" in offered


def test_the_answers_follow_the_chosen_part_of_the_text(page: Tab) -> None:
    page.open_example("capital").remember(results="Answers")
    assert "Answers (CSV)" in {button.proto.label for button in page.get("download_button")}
    assert "1 answer:" in page.said
    whole = len(group_answers(bundled_run("capital"), "text").ranked)
    assert whole > 1
    assert f"{whole} answers:" in page.put(answer_part="Whole text").said
    page.put(answer_part="Pattern")
    assert "(no answer)" in page.said, "the pattern that stands there"
    page.put(answer_pattern=r"(\w+)\.")
    assert any("1 answer:" in text and "Paris" in text for text in page.words)
    page.put(answer_pattern="(")
    assert any("not a regular expression" in error for error in page.errors)


def test_the_tree_is_labelled_with_its_answers(page: Tab) -> None:
    page.open_example("coins").remember(results="Answers")
    answers = group_answers(bundled_run("coins"), "sentence")
    page.press("label_answers")
    rules = page.board["labels"]["rules"]
    shares = {one["name"]: one["low"] for one in page.board["labels"]["shares"]}
    assert {rule["kind"] for rule in rules} == {"mark"}
    assert shares == {one.name: pytest.approx(one.low, abs=1e-6) for one in answers.ranked[:6]}


def test_the_answers_follow_the_chosen_rule_and_name_the_deciding_fork(page: Tab) -> None:
    page.open_example("wording").remember(results="Answers")
    assert "nats) and decides the answer" in page.said
    page.put(same_answer="content")
    assert "All texts give one answer" in page.said


def test_reset_and_presets_set_the_settings_and_the_marks_follow(page: Tab) -> None:
    def shown() -> tuple[str, int, str]:
        slider = page.slider(key="set_max_paths")
        return slider.label, slider.value, page.button(key="reset_button").label

    changed = "Max paths ● default 12"
    page.open_example("ball").put(set_max_paths=5)
    label, _, reset = shown()
    assert (label, reset[:6]) == (changed, "Reset ")
    page.press("reset_button")
    assert shown() == ("Max paths", 12, "Reset")
    page.put(preset="Wide")
    assert shown()[:2] == (changed, 32)


def test_a_threshold_survives_a_switch_to_another_unit_and_back(page: Tab) -> None:
    page.put(set_threshold_nats=1.25)
    page.put(set_threshold_unit="rank")
    page.put(set_threshold_rank=5.0)
    page.put(set_threshold_unit="nats")
    assert page.value("set_threshold_nats") == 1.25
    page.put(set_threshold_unit="rank")
    assert page.value("set_threshold_rank") == 5.0


def test_the_model_of_an_opened_run_is_selected(page: Tab) -> None:
    card = bundled_run("coin").started.model
    for name in ("./my-model", "gpt2", "ollama:llama3.2:1b"):
        page.open_file("other.eab", coin(model=structs.replace(card, name=name)))
        assert page.value("set_model_kind") == "Other"
        assert page.value("set_model_other") == name
        page.open_example("bridge")
        assert page.value("set_model_kind") == "Stories"


@pytest.mark.parametrize(
    ("weights", "cache", "drafter"),
    [("int8", "deep-copy", "none"), ("as-loaded", "tree", "model")],
)
def test_runs_with_other_weights_caches_and_drafters(
    page: Tab, weights: str, cache: str, drafter: str
) -> None:
    page.put(set_weights=weights, set_cache=cache, set_drafter=drafter)
    page.generate(prompt="The cat sat on the", set_max_new_tokens=4)
    assert not page.error
    started = worker().remembered[-1].state.run.started
    assert started.model.weights == page.value("set_weights") == weights
    assert started.config.cache == page.value("set_cache") == cache
    assert started.config.drafter == page.value("set_drafter") == drafter
    page.open_example("bridge")
    assert page.value("set_weights") == "as-loaded"


def test_the_typed_prompt_and_the_run_survive_a_visit_to_another_page(page: Tab) -> None:
    page.generate(prompt="The cat sat on the", set_max_new_tokens=4, set_temperature=0.5)
    run_id = page.query_params["run"]
    page.go_to("memory")
    assert page.value("prompt") == "The cat sat on the"
    page.put(prompt="The dog ran to the")
    del page.query_params["run"]  # as browsers do when the page changes
    page.go_to("explore")
    assert page.value("prompt") == "The dog ran to the"
    assert (page.value("set_temperature"), page.value("set_max_new_tokens")) == (0.5, 4)
    assert page.board["prompt"] == "The cat sat on the", "the run is still on the screen"
    assert page.query_params["run"] == run_id
    reloaded = opened(run=run_id)
    assert reloaded.board["prompt"] == reloaded.value("prompt") == "The cat sat on the"


CHAT = (Message("system", "Be brief."), Message("user", "A coin"))


def test_a_chat_run_is_repeated_with_its_messages_until_its_prompt_is_changed(
    page: Tab,
) -> None:
    config = replace(bundled_run("coin").started.config, chat="auto")
    page.open_file("chat.eab", coin(config, prompt="A coin", messages=CHAT))
    assert page.value("prompt") == "A coin"
    assert "Changed since" not in page.status
    query = page.board["offers"]["link"]["query"]
    page.generate()
    assert last_request().messages == CHAT
    assert "has no chat template, which messages require" in page.status

    linked = opened(**dict(parse_qsl(query))).generate()
    assert last_request().messages == CHAT
    linked.generate(prompt="A dog", set_max_new_tokens=1)
    assert last_request().messages == ()
    assert not linked.error


def test_the_page_sets_the_arguments_of_a_chat_template(page: Tab) -> None:
    page.put(set_chat="auto", set_system="Be brief.", set_chat_template_kwargs='{"a":1}')
    assert page.text_area(key="set_system").label == "System message ● default empty"
    page.generate()
    config = last_request().config
    assert (config.chat, config.system) == ("auto", "Be brief.")
    assert config.chat_template_kwargs == '{"a": 1}'
    assert "Changed since" not in page.status
    page.put(set_chat_template_kwargs="{a").press("run_button")
    assert "which is not JSON with plain values" in page.errors[0]


def test_a_run_that_was_stopped_while_it_probed_is_not_probed_again(
    page: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[str] = []
    fragment = session.fragment

    def noted(draw: Callable[[], None], every: float | None) -> None:
        polls.append(draw.__module__)
        fragment(draw, every)

    monkeypatch.setattr(session, "fragment", noted)
    page.put(set_threshold_unit="rank", prompt="The dog ran home")
    assert what_if.__name__ in polls, "what is typed is probed"
    with monkeypatch.context() as held:
        held.setattr(BatchedRuns, "serve", lambda _: time.sleep(0.01))  # no first token
        page.start("The cat ran home", 12).press("stop_button")
    page.until(lambda: page.status.startswith("Stopped before the first result"))
    polls.clear()
    page.run()
    assert what_if.__name__ not in polls
    page.put(prompt="The cow ran home")
    assert what_if.__name__ in polls


def test_a_pasted_rendered_chat_can_be_read_as_messages_and_a_space_at_the_end_is_noticed() -> None:
    page = opened()
    page.put(prompt="The cat ")
    assert "ends in a space" in page.captions
    page.put(prompt="<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello")
    page.press("read_as_messages")
    assert page.value("prompt") == "Hi"
    kept = page.session_state["messages_of_the_prompt"]
    assert kept == (Message("user", "Hi"), Message("assistant", "Hello"))
