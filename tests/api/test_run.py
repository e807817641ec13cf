"""A run as a value: its events, files, what-ifs, answers and tables."""

import re
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from msgspec import structs

import eab
from eab import Run
from eab.analysis.answer_rules import RULES
from eab.analysis.answers import NO_ANSWER, group_answers
from eab.analysis.uncertainty import uncertainty
from eab.api.run import as_run
from eab.engine.what_if.resimulate import resimulate
from eab.errors import ApproximateWarning, PromptError
from eab.lessons import bundled_runs
from eab.run import fold, record
from eab.run.events import RunStarted

ROOT = Path(__file__).parents[2]
COIN = bundled_runs.events_of(bundled_runs.named("coin.eab"))


@pytest.fixture
def run() -> Run:
    return Run(COIN)


def test_the_methods_of_a_run_return_what_the_functions_return(run: Run) -> None:
    assert run.what_if(threshold=1.5).events == list(resimulate(run.events, 1.5).events)
    assert run.what_if(r=8).started.config.r == 8
    assert run.answers("sentence") == group_answers(run, "sentence")
    assert run.uncertainty("sentence") == uncertainty(run, group_answers(run, "sentence"))
    table = run.to_pandas()
    assert isinstance(table, pd.DataFrame)
    assert [*table["text"]] == [sample.text for sample in run.samples]
    assert len(ElementTree.fromstring(run.to_graphml()).findall(".//{*}node")) == len(run.paths)


def test_a_notebook_shows_the_tree_and_the_first_texts() -> None:
    shown = Run(COIN)._repr_html_()
    assert "<svg" not in shown, "JupyterLab drops it where the notebook is not trusted"
    assert '<img src="data:image/svg+xml;base64,' in shown
    assert shown.count("<li>") <= 5
    [first, *_] = Run(COIN).samples
    assert f"{first.weight:.1%}" in shown
    started = next(event for event in COIN if isinstance(event, RunStarted))
    hostile = Run([started])
    hostile.started = structs.replace(started, prompt="<script>")
    assert "<script>" not in hostile._repr_html_()


def test_a_notebook_describes_the_memory_of_an_unusual_model() -> None:
    words = "Nothing is shared between paths, because of <b>this</b>."
    started = next(event for event in COIN if isinstance(event, RunStarted))
    card = structs.replace(started.model, own_memory=words, shares_rows=False)
    events = [
        structs.replace(event, model=card) if isinstance(event, RunStarted) else event
        for event in COIN
    ]
    assert f"<p>{escape(words)}</p>" in Run(events)._repr_html_()
    assert "Nothing is shared" not in Run(COIN)._repr_html_()


def test_a_run_is_given_as_a_run_its_events_or_its_path_everywhere(tmp_path: Path) -> None:
    path, copy = tmp_path / "coin.eab", tmp_path / "copy.eab"
    Run(COIN).save(path)
    for given in (Run(COIN), fold(COIN), [*COIN], iter(COIN), path, str(path)):
        eab.save(given, copy)
        for loaded in (Run(copy), Run.load(copy), eab.load(str(copy)), as_run(copy)):
            assert loaded.events == record.load(copy) == Run(COIN).events
            assert loaded.samples == Run(COIN).samples
    for given in (fold(COIN), [*COIN], path, str(path)):
        assert Run(given).events == Run(COIN).events
        eab.save_html(given, copy)
        assert copy.read_text("utf-8") == Run(COIN).to_html()
        assert eab.show(given) is not None
        assert eab.show_lesson("forks", given) is not None


@pytest.mark.parametrize("path", [10**6, -1, "0", None, 1.0])
def test_an_unknown_path_is_refused_at_the_call(path: Any) -> None:
    run = Run(COIN)
    for ask in (run.tokens, run.text, run.lineage, lambda path: run.continuation(path, 0)):
        with pytest.raises(PromptError, match="there is no path"):
            ask(path)
    for index, candidate in ((None, 0), (0, "1"), (10**6, 0)):
        with pytest.raises(PromptError):
            run.continuation(0, index, candidate)


def test_a_what_if_threshold_may_be_a_numpy_number() -> None:
    run = Run(COIN)
    fewer = run.what_if(np.float32(1.25), r=np.int64(2))
    assert fewer.samples == run.what_if(1.25, r=2).samples


def test_answers_take_the_names_of_rules_and_functions() -> None:
    run = Run(COIN)
    for name, rule in RULES.items():
        assert run.answers("text", name) == run.answers("text", rule)
        assert run.uncertainty("text", name) == run.uncertainty("text", rule)
    pattern = run.answers(re.compile(r"(heads|tails)"))
    by_function = run.answers(
        lambda text: match[1] if (match := re.search("(heads|tails)", text)) else None
    )
    assert by_function == pattern
    assert run.answers(lambda text: None).ranked[0].name == NO_ANSWER
    assert run.answers(same=lambda question, one, other: np.bool_(True)).ranked[0].low > 0.3


def test_tables_have_the_columns_of_the_documentation() -> None:
    documented = (ROOT / "docs" / "library.md").read_text().partition("| rows | columns |")[2]
    run = Run(COIN)
    lengths = [len(run.samples), sum(len(path.tokens) for path in run.paths), len(run.steps)]
    for rows, length in zip(("texts", "tokens", "steps"), lengths, strict=True):
        table = run.to_pandas(rows)
        assert len(table) == length
        line = next(line for line in documented.splitlines() if line.startswith(f"| `{rows}` |"))
        assert re.findall("`(.*?)`", line.split("|")[2]) == [*table.columns]
    steps = run.to_pandas("steps")
    kv = run.steps[-1].kv
    assert kv is not None
    assert [*steps.iloc[-1][["rows", "rows_spare", "held_bytes"]]] == [
        kv.rows_shared + kv.rows_private,
        kv.rows_spare,
        kv.bytes_held,
    ]
    assert {*run.what_if(r=8).to_pandas("steps")["r"]} == {8}


def test_a_continuation_counts_in_the_text_that_one_sees() -> None:
    run = Run(COIN)
    for leaf in run.leaves():
        tokens = [token.id for token in run.tokens(leaf.id)]
        for index in range(len(tokens)):
            assert run.continuation(leaf.id, index) == tuple(tokens[: index + 1])
        with pytest.raises(PromptError, match=f"has {len(tokens)} tokens"):
            run.continuation(leaf.id, len(tokens))


def test_an_approximate_what_if_says_so(tmp_path: Path) -> None:
    run = Run(COIN)
    lowest = min(token.entropy for path in run.paths for token in path.tokens)
    with pytest.warns(ApproximateWarning, match="would fork too.*run the model for the exact tree"):
        lower = run.what_if(threshold=lowest / 2)
    lower.save(tmp_path / "lower.eab")
    for each in (lower, eab.load(tmp_path / "lower.eab")):
        assert each.is_approximate
        assert repr(each).endswith(", approximate>")
    higher = run.what_if(threshold=20.0)
    assert not higher.is_approximate
    assert not run.is_approximate
    assert "approximate" not in repr(higher)
