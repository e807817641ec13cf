"""The estimate before a run: an upper bound of its tokens, and seconds only from measurements."""

from cells import cell
from page_walk import Tab, opened

from app.server import estimate
from app.server.job import Job, run_job
from app.server.live_run import LiveTask
from app.widgets.starting_values import START
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.events import RunEnded
from eab.labs.tuning.report import TuningReport
from eab.lessons import bundled_runs
from eab.run import RunFold


def timed(model: str, max_paths: int, turns: int, seconds: float) -> LiveTask[RunFold]:
    task = LiveTask(run_job("a prompt", BranchingConfig(max_paths=max_paths), model))
    task.turns, task.seconds = turns, seconds
    return task


def test_there_are_no_seconds_without_a_measurement_of_this_model() -> None:
    config = BranchingConfig(max_paths=16, max_new_tokens=48)
    assert estimate.most_tokens(config) == 768
    assert estimate.seconds(config, "embedded", []) is None
    assert estimate.seconds(config, "embedded", [timed("gpt2", 16, 10, 1.0)]) is None
    assert estimate.seconds(config, "embedded", [timed("embedded", 16, 0, 0.0)]) is None


def test_the_pace_is_that_of_the_newest_run_with_the_nearest_limit_of_paths() -> None:
    config = BranchingConfig(max_paths=16, max_new_tokens=50)
    earlier = [
        timed("embedded", 12, 10, 1.0),
        timed("embedded", 20, 10, 2.0),
        timed("embedded", 64, 10, 9.0),
    ]
    assert estimate.seconds(config, "embedded", earlier) == 10.0


def test_a_sweep_takes_as_long_as_the_newest_one_of_this_model_per_run_and_token() -> None:
    config = BranchingConfig(max_new_tokens=10)

    def swept(model: str, runs: int, seconds: float) -> LiveTask[TuningReport]:
        asked = (Request("a prompt", config),)
        task = LiveTask(Job("sweep", model, TuningReport(), lambda _: iter(()), asked))
        for seed in range(runs):
            task.apply(cell(0.3, seed))
            task.apply(cell(0.9, seed, made="resimulated", seconds=None))
        task.apply(RunEnded(0, "finished"))
        task.seconds = seconds
        return task

    longer = BranchingConfig(max_new_tokens=20)
    earlier = [swept("embedded", 4, 99.0), swept("embedded", 4, 2.0), swept("gpt2", 4, 50.0)]
    assert estimate.sweep_seconds(2, 6, longer, "embedded", earlier) == 4 * 20 * 2.0 / 40
    assert estimate.sweep_seconds(2, 6, longer, "other", earlier) is None
    assert estimate.sweep_seconds(2, 6, longer, "other", [swept("other", 0, 0.0)]) is None


def test_no_run_makes_more_tokens_than_estimated_and_the_page_says_how_many() -> None:
    page = opened()
    config = bundled_runs.events_of(bundled_runs.recordings()[0])[0].config  # type: ignore[union-attr]
    most = estimate.most_tokens(config)
    assert most == config.max_paths * config.max_new_tokens
    assert f"at most {most:,} tokens" in _sentence(page)
    page.generate(prompt="The cat sat on the", set_max_new_tokens=3)
    most = 3 * START.max_paths
    assert f"at most {most} tokens, about 1 s" in _sentence(page)
    message = page.session_state["past_runs"][0].run
    assert sum(len(path.tokens) for path in message.paths) <= most


def _sentence(page: Tab) -> str:
    return next(one.value for one in page.sidebar.caption if one.value.startswith("Run: "))
