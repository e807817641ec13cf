"""The Compare page without a browser: two recordings, a file, independent samples, and a reload."""

from dataclasses import replace

import pytest
from made_runs import bundled, bundled_run
from msgspec import structs
from page_walk import Tab, opened

from app.server.rules import PUBLIC
from app.state.session import worker
from eab.analysis.run_comparison import independent_config
from eab.figures.run_comparison import measures_of, takeaway_sentence
from eab.lessons import bundled_runs
from eab.run import record
from eab.run.events import RunStarted


@pytest.fixture
def page() -> Tab:
    return opened("compare")


def choose(page: Tab, **sides: str) -> Tab:
    """Choose a source for each side: "independent", "file", or the name of a bundled run."""
    for side, name in sides.items():
        other = name in ("independent", "file")
        page.put(**{f"diff_{side}": name if other else bundled_runs.named(f"{name}.eab")})
    return page


def takeaway(a: str, b: str) -> str:
    return takeaway_sentence(bundled_run(a), bundled_run(b))


def test_the_first_visit_compares_a_tree_with_samples_at_the_same_budget(page: Tab) -> None:
    samples = bundled_runs.samples().run
    assert samples is not None
    assert page.words == [takeaway_sentence(bundled_run("coins"), samples)]
    assert set(page.board["sides"]) <= {"both", "a", "b"}
    assert page.table[0].value.columns.tolist() == ["A", "B", "B compared with A"]
    assert page.table[0].value.index.name == "Measure"
    assert "On average over all seeds" in page.captions


def test_the_recorded_samples_have_the_settings_that_the_page_would_sample_with() -> None:
    samples, tree = bundled_runs.samples().run, bundled_run("coins")
    assert samples.started.config == independent_config(tree, "tokens")
    assert samples.started.prompt_tokens == tree.started.prompt_tokens
    assert measures_of(tree)["explored"] > 0.99
    assert measures_of(samples)["explored"] < 0.6


def test_two_recordings_of_one_prompt_share_a_tree_and_a_bad_file_changes_nothing(
    page: Tab,
) -> None:
    choose(page, a="ball", b="original")
    assert page.words == [takeaway("ball", "original")]
    assert "less than 0.01%" in page.said
    assert set(page.board["sides"]) == {"both", "a", "b"}
    choose(page, b="file")
    assert "Choose two runs" in page.info[0].value
    page.put(diff_upload_b=("mine.eab", record.dumps(bundled("long")), ""))
    assert page.words == [takeaway("ball", "long")]
    page.put(diff_upload_b=("bad.eab", b"no run", ""))
    assert "bad" in page.errors[0]
    assert page.words == [takeaway("ball", "long")]


def test_the_engine_makes_independent_samples_at_the_same_budget_and_a_reload_finds_them(
    page: Tab,
) -> None:
    choose(page, a="market", b="independent")
    assert "Press Sample" in page.info[0].value
    count = independent_config(bundled_run("market"), "tokens").max_paths
    assert page.button(key="diff_run").label == f"Sample {count} texts"
    page.press("diff_run").run_to_its_end("diff_stop")
    assert not page.error
    table = page.table[0].value
    assert table.loc["texts", "B"] == str(count)
    assert table.loc["forks", "B"] == "0"
    assert "recorded" not in page.main.caption[1].value
    assert set(page.board["sides"]) <= {"both", "a", "b"}

    reloaded = opened(
        "compare", **{name: page.query_params[name] for name in ("a", "b", "samples")}
    )
    assert reloaded.value("diff_a") == bundled_runs.named("market.eab")
    assert reloaded.value("diff_b") == "independent"
    assert reloaded.words == page.words
    assert reloaded.table[0].value.equals(table)

    assert {one.label: one.value for one in page.metric}["Independent texts"] == str(count)
    assert not page.warning
    page.put(diff_budget="Number of texts")
    texts = len(bundled_run("market").leaves())
    assert page.button(key="diff_run").label == f"Sample {texts} texts"
    assert (
        f"out of date, sample again: it has {count} texts instead of {texts}"
        in page.warning[0].value
    )
    assert not page.metric, "they would speak of samples that are not shown"
    page.put(diff_budget="Tokens through the model")
    assert not page.warning


def test_samples_under_a_smaller_kv_limit_than_run_a_are_not_out_of_date(
    page: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker()._admission, "_rules", PUBLIC)
    choose(page, a="market", b="independent").press("diff_run").run_to_its_end("diff_stop")
    assert worker().remembered[-1].request.config.kv_limit_mib == PUBLIC.kv_limit_mib
    assert page.boards
    assert not page.warning

    events = bundled("market")
    at = next(n for n, event in enumerate(events) if isinstance(event, RunStarted))
    for changed, is_late in ({"entropy_threshold": 0.1}, False), ({"temperature": 0.5}, True):
        started = structs.replace(events[at], config=replace(events[at].config, **changed))
        other = record.dumps([*events[:at], started, *events[at + 1 :]])
        choose(page, a="file").put(diff_upload_a=("other.eab", other, ""))
        assert bool(page.warning) == is_late, "a threshold changes no independent sample"


def test_runs_of_different_prompts_are_compared_by_cost_without_a_common_tree(page: Tab) -> None:
    choose(page, b="coin")
    assert not page.boards
    assert "different prompts" in page.said
    assert len(page.table) == 1
    choose(page, b="independent", a="coin")
    assert "Press Sample" in page.info[0].value, "samples of another prompt are not shown"
    assert not page.boards


def test_a_word_is_asked_for_in_both_runs(page: Tab) -> None:
    choose(page, a="coins", b="capital").put(diff_word=" Paris ")
    assert "“Paris”: " in page.said
    assert "Labels (CSV)" in {button.proto.label for button in page.get("download_button")}


def test_a_link_to_a_run_that_is_not_on_this_server_is_explained() -> None:
    page = opened("compare", a="gone.eab", b="independent")
    assert "Run A of this link is not on this server." in page.errors
    assert page.value("diff_b") == "independent"
    assert (
        "Runs A and B of this link are not on this server."
        in opened("compare", a="gone.eab", b="gone").errors
    )
    assert not opened("compare").error
