"""The KV allocation section, alone on a page: runs that have no rows in a tree are left out."""

from streamlit.testing.v1 import AppTest

from eab.analysis.kv_allocation import kv_allocation
from eab.figures.kv_allocation import allocation_sentence, allocation_table
from eab.lessons import bundled_runs


def all_caches() -> None:
    from app.widgets.measured import kv_allocation_section
    from eab.lessons import bundled_runs

    kv_allocation_section(
        [*bundled_runs.caches().runs.values()][:4], "all"
    )  # the fifth run uses a tree, too


def own_memory() -> None:
    from msgspec import structs

    from app.widgets.measured import kv_allocation_section
    from eab.lessons import bundled_runs
    from eab.run import fold

    first, *others = bundled_runs.caches().runs["tree"].events
    card = structs.replace(first.model, own_memory="Nothing is shared.", shares_rows=False)
    kv_allocation_section([fold([structs.replace(first, model=card), *others])], "own")


def test_a_model_that_shares_no_rows_is_left_out() -> None:
    page = AppTest.from_function(own_memory).run()
    assert not page.exception
    assert [note.value for note in page.caption] == ["Left out: 1 run without rows in a tree."]


def test_runs_of_other_caches_are_left_out() -> None:
    page = AppTest.from_function(all_caches).run()
    assert not page.exception
    found = kv_allocation([bundled_runs.caches().runs["tree"]])
    assert [text.value for text in page.text] == [allocation_sentence(found)]
    assert [note.value for note in page.caption] == ["Left out: 3 runs without rows in a tree."]
    assert page.table[0].value.equals(allocation_table(found))
