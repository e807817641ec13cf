"""The Now tab of the Batching page, without a browser: this server's batch, live."""

from page_walk import opened

from app.state.process import worker
from eab.figures.schedule import NOTHING_SERVED


def test_now_shows_a_run_in_progress_without_its_prompt_and_is_idle_otherwise() -> None:
    page = opened("batching", view="now")
    assert NOTHING_SERVED in page.words
    assert [metric.value for metric in page.metric][:4] == ["0", "0", "0", "0 B"]
    assert (page.charts, len(page.table)) == (1, _filled_prefix_caches())
    explore = opened().start("Once upon a time, there was a secret", 256)
    page.until(lambda: page.metric[0].value == "1")
    assert page.metric[1].value == "0"
    # The chart is drawn once a second for all tabs.
    page.until(lambda: "run " in page.get("plotly_chart")[0].proto.spec)
    assert "secret" not in page.get("plotly_chart")[0].proto.spec
    explore.press("stop_button").run_to_its_end()
    assert NOTHING_SERVED in page.run().words


def test_a_tab_finds_its_own_run_by_its_number() -> None:
    page = opened().start("Once upon a time", 256)
    page.session_state["batching_view"] = "Now"
    page.go_to("batching").until(lambda: "Your run is number " in page.said)
    for live in worker().remembered:
        live.stop()


def test_now_shows_one_prefix_cache_per_weight_format_of_a_model() -> None:
    prompt = "The red ball of my little dog"
    for weights in ("as-loaded", "int8"):
        opened().generate(prompt=prompt, set_max_new_tokens=8, set_weights=weights)
    page = opened("batching", view="now")
    page.until(lambda: {"embedded", "embedded@int8"} <= {one.value for one in page.subheader})
    assert len(page.table) == _filled_prefix_caches()
    for table in page.table:
        assert prompt not in table.value.to_string(), "another tab's"


def _filled_prefix_caches() -> int:
    """The number of non-empty prefix caches, including those of other tests in this process."""
    return sum(bool(one.segments) for one in worker().prefixes_now(""))
