"""Which runs continue when KV memory runs short."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from eab.engine.fairness import runs_that_fit


@dataclass(eq=False)
class Rows:
    """A run that holds `held` bytes and grows by `grows`; its `fixed` bytes cannot be freed."""

    held: int
    grows: int
    fixed: int = 0

    @property
    def kv_held(self) -> int:
        return self.fixed + self.held

    @property
    def kv_next(self) -> int:
        return self.kv_held + self.grows

    def preempt(self) -> None:
        self.held = 0


def test_the_youngest_run_pauses_first_and_is_freed_only_if_that_is_not_enough():
    first, second, third = runs = [Rows(10, 2), Rows(10, 2), Rows(10, 2)]
    assert runs_that_fit(runs, 36) == runs
    assert runs_that_fit(runs, 34) == [first, second]
    assert third.held == 10
    assert runs_that_fit(runs, 33) == [first, second]
    assert third.held == 0
    assert runs_that_fit(runs, 20) == [first]
    assert second.held == 0
    assert runs_that_fit(runs, 1) == [first], "the oldest always goes on"


@given(
    st.lists(
        st.builds(Rows, st.integers(0, 20), st.integers(0, 9), st.sampled_from([0, 0, 5])),
        min_size=1,
    ),
    st.integers(0, 200),
)
def test_the_runs_that_continue_fit_and_none_is_freed_without_need(runs, limit):
    before = [run.held for run in runs]
    going = runs_that_fit(runs, limit)
    paused = runs[len(going) :]
    assert going == runs[: len(going)] != []
    after = sum(run.kv_next for run in going) + sum(run.kv_held for run in paused)
    assert after <= limit or len(going) == 1
    assert [run.held for run in going] == before[: len(going)]
    if paused:  # with the oldest paused run, too, they would not fit unless others lost rows
        whole = sum(run.kv_next for run in runs[: len(going) + 1])
        held = sum(run.fixed + rows for run, rows in zip(runs, before, strict=True))
        assert whole + held > limit
