"""The pages that measure, without a browser: Batching, BMC, Memory, Quantization and Speculative
decoding. Each shows a recording first, measures on demand, stops, and restores its measurement
after a reload. Their messages about a wrong prompt or model are tested in test_refused.py.
"""

import time

import pytest
from made_runs import bundled_run
from page_walk import Tab, opened

from app.state.session import worker
from eab.figures.kv_memory import demand_of
from eab.figures.kv_schemes import allocation_sentence, kv_allocation
from eab.figures.schedule import NOTHING_SERVED
from eab.labs import measure_quantization as measure
from eab.labs.batching import BATCHING, PRESETS, WAYS, shown
from eab.labs.bmc import EXPERIMENTS, LABS, Experiment, steps_measures
from eab.labs.caches import BYTES, CACHES_LAB
from eab.labs.drafts import ONE_PATH_ONLY
from eab.labs.quantization import FORMATS
from eab.labs.variants import CACHES, PROMPT_REUSED, REPEATS
from eab.lessons import bundled_runs
from eab.timing import TOO_FEW
from eab.weight_formats import AS_LOADED

MEASURED = "Measured here: embedded"
BMC_TABS: dict[Experiment, str] = {
    "growth": "Sensitivity to r",
    "sizes": "Time and memory by model size",
    "rejection": "Rejected drafts",
}
CAT = "The cat sat on the"


# What a first visit shows: one sentence, the numbers of sentences and charts, the table's columns.
FIRST = {
    "batching": (BATCHING.answer(bundled_runs.batching()), 3, 2, [*WAYS]),
    "bmc": (LABS["growth"].answer(bundled_runs.bmc("growth")), 2, 2, ["measured"]),
    "memory": (BYTES.answer(bundled_runs.caches()), 4, 3, [*CACHES, PROMPT_REUSED]),
    "quantization": (
        FORMATS.answer(bundled_runs.formats()),
        *(2, 2),
        [*FORMATS.table(bundled_runs.formats())[0][1:]],
    ),
    "speculative": (
        "Drafting pays where the text repeats what stands before it, as in an edit, and not where "
        "every word is new, as in an open story.",
        *(6, 2),
        [*bundled_runs.draft_lengths().runs],
    ),
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_visit_shows_what_was_recorded(name: str) -> None:
    sentence, count, charts, columns = FIRST[name]
    page = opened(name)
    assert not page.error
    assert sentence in page.said
    assert (len(page.words), page.charts) == (count, charts)
    assert page.captions.count("Recorded:") == (3 if name == "speculative" else 1)
    assert "Recorded: embedded, float32, on " in page.captions
    if columns is not None:
        assert [*page.table[0].value.columns] == columns
        assert "None" not in page.table[0].value.to_string()


# A long measurement by page: the values to set first, the key of its Start, the key of its Stop.
LONG = {
    "batching": ({"batching_repeats": 9}, "batching_start", "batching_stop"),
    "bmc": ({}, "run_sizes", "bmc_stop"),
} | dict.fromkeys(
    ("memory", "speculative"),
    ({"prompt": "Once upon a time", "set_max_new_tokens": 256}, "run_button", "stop_button"),
)


@pytest.mark.parametrize("name", LONG)
def test_stop_works_and_leaves_the_page_as_it_was(name: str) -> None:
    values, start, stop = LONG[name]
    page = opened(name, **{"experiment": "sizes"} if name == "bmc" else {})
    before = page.words
    page.press(start, **values)
    assert page.words == before
    assert name != "batching" or page.button(key=start).disabled
    assert not page.button(key=stop).disabled
    page.press(stop).run_to_its_end(stop)
    assert page.words == before
    assert name != "batching" or "Stopped before the first result" in page.captions


# Batching


@pytest.fixture
def batching(monkeypatch: pytest.MonkeyPatch) -> Tab:
    """The Batching page with the preset "All equal" shortened, so that serving it is quick."""
    short = tuple(one._replace(new_tokens=8) for one in PRESETS["All equal"])
    monkeypatch.setitem(PRESETS, "All equal", short)
    return opened("batching")


def test_requests_are_served_here_and_a_reload_restores_the_result(batching: Tab) -> None:
    other = "The chart shows other requests, slots or paths."
    assert other not in batching.put(batching_repeats=1).captions
    assert other in batching.put(batching_slots=2).captions
    assert other in batching.put(batching_slots=4).put(batching_preset="All equal").captions
    batching.put(batching_slots=8)
    batching.press("batching_start").run_to_its_end("batching_stop")
    assert not batching.error
    assert other not in batching.captions
    assert batching.words[0].startswith("8 requests in 8 slots: continuous batching took 8 passes")
    assert MEASURED in batching.captions
    reloaded = opened("batching", batching=batching.query_params["batching"])
    assert reloaded.words == batching.words
    assert MEASURED in reloaded.captions


def test_the_kv_memory_of_the_tree_equals_that_of_the_continuous_batch(batching: Tab) -> None:
    """The tree's bytes are computed from the runs, the schedule's bytes from its passes."""
    found = bundled_runs.batching()
    schedule = shown(found)["continuous"]
    begins = schedule.first_token_passes()
    allocated = kv_allocation(
        [*found.runs.values()], first_steps=[begins[number] for number in sorted(begins)]
    )
    held = [step.total for step in allocated.steps["tree"]]
    assert held == [one.kv_bytes for one in schedule.passes]
    assert allocation_sentence(allocated) in batching.words


# BMC


def bmc_at(name: Experiment, page: Tab | None = None) -> Tab:
    """The BMC page with the tab of this experiment open."""
    return (page or opened("bmc")).remember(bmc_tab=BMC_TABS[name])


def test_each_tab_shows_its_recorded_measurement_and_its_button() -> None:
    page = opened("bmc")
    assert "up to 3.2 times" in page.captions, "as the abstract says"
    for name in EXPERIMENTS:
        bmc_at(name, page)
        sentence = LABS[name].answer(bundled_runs.bmc(name))
        assert sentence in page.words
        assert page.button(key=f"run_{name}").label == "Measure"


def test_changing_r_recomputes_the_run_without_the_model() -> None:
    page, demand = opened("bmc"), demand_of(bundled_run("bridge"))
    for r in (1, 64):
        shown = {one.label: one.value for one in page.put(bmc_r=r).metric}
        assert shown.items() >= steps_measures(demand.at(r)).items()
    assert page.put(bmc_r="auto").metric[0].value != "0"


@pytest.mark.slow
def test_an_experiment_ignores_the_settings_of_runs_and_a_reload_restores_it() -> None:
    page = opened().put(set_chat=True, set_max_new_tokens=256)  # the model has no chat template
    bmc_at("growth", page.go_to("bmc")).put(bmc_rows=256)
    page.press("run_growth").run_to_its_end("bmc_stop")
    assert not page.error
    bmc_at("sizes", page).press("run_sizes").press("bmc_stop").run_to_its_end("bmc_stop")
    bmc_at("growth", page).put(bmc_r=16)  # a new tab begins at the best r, as measured
    assert page.captions.count(MEASURED) == 1
    parameters = {name: page.query_params[name] for name in page.query_params}
    reloaded = opened("bmc", **parameters).put(bmc_r=16)
    assert reloaded.words == page.words
    assert reloaded.captions.count(MEASURED) == 1
    elsewhere = opened("bmc", bmc_sizes=page.query_params["bmc_growth"])
    assert elsewhere.words == opened("bmc").words, "it is found in its own slot only"


def test_a_reload_finds_the_measurement_in_progress() -> None:
    page = bmc_at("sizes").press("run_sizes")
    reloaded = opened("bmc", bmc_sizes=page.query_params["bmc_sizes"])
    assert not reloaded.button(key="bmc_stop").disabled
    reloaded.press("bmc_stop")
    for tab in (page, reloaded):
        tab.run_to_its_end("bmc_stop")
        assert "Time and memory by model size: Stopped." in tab.captions


# Memory


@pytest.fixture
def tab_of_memory() -> Tab:
    return opened("memory")


def test_the_block_size_changes_the_memory_that_blocks_reserve(tab_of_memory: Tab) -> None:
    tree = [bundled_runs.caches().runs["tree"]]
    for size in (128, 8):
        tab_of_memory.put(block_size=size)
        assert tab_of_memory.words[-1] == allocation_sentence(kv_allocation(tree, size))
        assert [*tab_of_memory.table[1].value.columns][1] == f"blocks of {size}"


def test_the_runs_are_shown_before_their_repeats_and_stop_keeps_both(tab_of_memory: Tab) -> None:
    page = tab_of_memory.start("Once upon a time", 16)
    live = worker().remembered[-1]
    while not live.state.rows("repeats", variant=PROMPT_REUSED):
        assert live.active, live.message
        live.mark_watched()  # an unwatched run would be stopped after a while
        time.sleep(0.02)
    page.run()
    assert page.words[1] == "All 6 runs have the same tokens."
    assert TOO_FEW in page.words[0]
    page.press("stop_button").run_to_its_end()
    assert live.state.ended.reason == "stopped"
    assert 1 <= len(live.state.rows("repeats", variant="tree")) < REPEATS
    assert page.words[0] == CACHES_LAB.answer(live.state)
    assert MEASURED in page.captions
    assert [*page.table[0].value.columns] == [*CACHES, PROMPT_REUSED]
    assert "Changed since" not in page.captions
    assert "Changed since this run: temperature" in page.put(set_temperature=0.5).captions


# Quantization


@pytest.fixture
def quantization() -> Tab:
    return opened("quantization")


@pytest.mark.slow
def test_formats_are_measured_here(quantization: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    fables = measure.held_out_texts()[:1]
    monkeypatch.setattr(measure, "held_out_texts", lambda: fables)
    monkeypatch.setattr(measure, "WEIGHT_FORMATS", (AS_LOADED, "int8"))
    monkeypatch.setattr(measure, "ROWS", (1, 3))
    monkeypatch.setitem(measure.SIZES, "cpu", measure.Sizes(2**22, 256, 2))
    page = quantization.press("formats_run", formats_prompt=CAT).run_to_its_end("formats_stop")
    assert not page.error
    assert MEASURED in page.captions
    assert CAT in page.captions
    assert [*page.table[0].value.index] == [AS_LOADED, "int8"]


def test_the_run_of_explore_is_repeated_in_fewer_bits_and_becomes_a_point() -> None:
    page = opened().generate(prompt=CAT, set_max_new_tokens=6).go_to("quantization")
    assert "This prompt has no run in fewer bits yet." in page.said
    assert "to see your run as a point" not in page.captions, "the chart has it"
    page.press("quantized_run", quantized_weights="nf4").run_to_its_end("quantized_stop")
    assert not page.error
    assert "Forks of A that vanish" in [one.label for one in page.metric]
    assert "embedded@nf4" in page.captions


# Speculative decoding


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drafter", "paths"), [("model", "One text"), ("sibling-lookup", "Whole tree")]
)
def test_all_draft_lengths_are_measured_here(drafter: str, paths: str) -> None:
    page = opened("speculative").put(drafter_varied=drafter, decode_varied=paths)
    page.generate(prompt="Anna has a red ball. Ben has a red ball. Anna has", set_max_new_tokens=8)
    assert not page.error
    assert any(words.startswith("All 6 runs have the same tokens.") for words in page.words)
    assert f"Drafter: {drafter}." in page.captions
    assert len(page.table[0].value.columns) == 6
    forked = paths == "Whole tree"
    assert (ONE_PATH_ONLY in page.words) == forked
    assert ("medians of 7 repeats" in page.said) == (not forked)
    assert ("steps per pass (formula)" in page.table[0].value.index) == (not forked)


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
    page.go_to("batching").until(lambda: "Your run" in [metric.label for metric in page.metric])
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
