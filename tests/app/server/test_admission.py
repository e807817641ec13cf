"""Admission of runs under the rules: sizes, models, and limits per visitor."""

from dataclasses import replace
from typing import Any

import pytest

from app.server.admission import Admission
from app.server.live_run import LiveTask
from app.server.rules import PRIVATE, PUBLIC, Rules
from eab.config import BranchingConfig
from eab.engine.job import Job
from eab.errors import LimitError
from eab.run import RunFold

SMALL = BranchingConfig(max_paths=4, max_new_tokens=8)


def task(
    owner: str = "a",
    model: str = "embedded",
    seconds: float = 0.0,
    configs: tuple[BranchingConfig, ...] = (SMALL,),
) -> LiveTask[Any]:
    made: LiveTask[Any] = LiveTask(
        Job("run", model, RunFold(), lambda _: iter(()), configs=configs), owner
    )
    made.seconds = seconds
    return made


def admit(admission: Admission, one: LiveTask[Any]) -> LiveTask[Any]:
    admission.admit(one)
    return one


def test_a_private_server_admits_everything():
    admission = Admission(PRIVATE)
    config = BranchingConfig(max_paths=256, max_new_tokens=4096, kv_limit_mib=1024)
    for _ in range(200):
        admission.admit(task(model="/any/folder", configs=(config,)))
    admission.check_prompt(200_000)
    assert admission.limited(config) == config


@pytest.mark.parametrize(("name", "most"), [("max_paths", 64), ("max_new_tokens", 256)])
def test_a_run_that_is_too_large_is_refused_with_an_explanation(name, most):
    Admission(PUBLIC).admit(task(configs=(replace(SMALL, **{name: most}),)))
    with pytest.raises(
        LimitError, match=f"{name} is {most + 1}; this server allows at most {most}"
    ):
        Admission(PUBLIC).admit(task(configs=(SMALL, replace(SMALL, **{name: most + 1}))))


def test_a_prompt_that_is_too_long_is_refused_with_an_explanation():
    Admission(PUBLIC).check_prompt(1000)
    with pytest.raises(LimitError, match=r"the prompt has 1,001 tokens.* at most 1,000"):
        Admission(PUBLIC).check_prompt(1001)


@pytest.mark.parametrize("name", ["/root/.ssh", "gpt2", "../x@int8", "embedded@", "a" * 300])
def test_models_that_are_not_listed_are_refused(name):
    with pytest.raises(LimitError, match="this server allows smollm2, embedded"):
        admit(Admission(PUBLIC), task(model=name))


@pytest.mark.parametrize("name", ["embedded", "embedded@int8", "embedded-draft"])
def test_listed_models_are_served_in_any_weight_format(name):
    admit(Admission(PUBLIC), task(model=name))


def test_the_kv_limit_of_a_run_is_lowered_without_an_error():
    config = BranchingConfig(kv_limit_mib=1024)
    assert Admission(PUBLIC).limited(config) == replace(config, kv_limit_mib=256)
    assert Admission(PUBLIC).limited(replace(config, kv_limit_mib=3)).kv_limit_mib == 3


def test_the_number_of_runs_of_a_visitor_is_limited():
    admission = Admission(PUBLIC)
    runs = [admit(admission, task()) for _ in range(3)]
    with pytest.raises(LimitError, match=r"already have 3 runs .* allows 3 at a time"):
        admit(admission, task())
    admit(admission, task("b"))
    runs[0].stop()
    admit(admission, task())
    runs[1].advance_to("running")
    runs[1].stop()
    assert runs[1].active, "its step goes on, but its place is free"
    admit(admission, task())


def test_the_number_of_runs_of_all_visitors_together_is_limited():
    admission = Admission(replace(PUBLIC, max_runs=4))
    for owner in "abcd":
        admit(admission, task(owner))
    with pytest.raises(LimitError, match=r"4 runs are queued or running.* Try again"):
        admit(admission, task("e"))


def test_the_seconds_per_hour_of_a_visitor_are_limited():
    now = 0.0
    admission = Admission(Rules(seconds_per_hour=100), lambda: now)
    admit(admission, task(seconds=60.0)).stop()
    now = 600.0
    admit(admission, task(seconds=50.0)).stop()
    with pytest.raises(LimitError, match=r"took 2 min within an hour.* again in 50 min"):
        admit(admission, task())
    admit(admission, task("b"))
    now = 3601.0
    admit(admission, task())
