"""The size limits of run files leave room for every run that its settings allow."""

import gzip

import pytest
from invented_runs import invented_run

from eab.config import BranchingConfig
from eab.errors import RecordError
from eab.record import dumps, loads, run_file
from eab.run import fold


@pytest.mark.parametrize(("paths", "tokens"), [(256, 4096), (256, 400), (64, 2000)])
def test_the_largest_settings_have_room_within_the_limits(paths: int, tokens: int) -> None:
    """The limits are twice what a token of a run was measured to need."""
    amounts = run_file.Amounts("the run")
    amounts.allow(BranchingConfig(max_paths=paths, max_new_tokens=tokens))
    limits, most = amounts.limits, paths * tokens
    assert limits.text_bytes >= 1000 * most
    assert limits.lines >= 8 * most
    assert limits.values >= 90 * most
    assert limits.paths >= most


def test_a_run_beyond_the_limits_of_small_runs_is_saved_and_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = run_file.Limits(200_000, 1000, 10_000, 50)
    monkeypatch.setattr(run_file, "SMALL", small)
    events = invented_run(3, 60, 60)
    data = dumps(events)
    text = gzip.decompress(data).decode()
    assert len(text) > small.text_bytes
    assert text.count("\n") > small.lines
    assert text.count(",") > small.values
    assert len(fold(events).paths) > small.paths
    assert loads(data) == events
    with pytest.raises(RecordError, match="more than 80 paths"):
        loads(data, most_tokens=40)


def test_a_long_run_with_many_finished_texts_is_saved_and_read() -> None:
    """Its leaves repeat what they share, so their texts are much longer than the tree's."""
    events = invented_run(5, 300, 64, [" " + letter * 40 for letter in "abcdef"])
    run = fold(events)
    text = sum(len(run.text(leaf.id)) for leaf in run.leaves())
    assert text > max(run_file.SMALL_TREE_BYTES, 64 * 64 * 300)
    assert loads(dumps(events)) == events
