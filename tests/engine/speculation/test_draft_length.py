"""The adaptive draft length saves time or drafts nothing, on simulated machines of known speed."""

import numpy as np
import pytest

from eab.engine.speculation.speculator import AdaptiveLength, PassOutcome


def run_of(
    start: float, per_token: float, draft: float, alpha: float, paths: int = 1
) -> tuple[list[int], float]:
    """Return the lengths that AdaptiveLength chooses, and its time divided by that of plain
    decoding, where a pass of T tokens takes start + per_token * T seconds.
    """
    length, chosen, random, taken, plain = AdaptiveLength(), [], np.random.default_rng(0), 0.0, 0.0
    for _ in range(120):
        limit = length.choose()
        chosen.append(limit)
        accepted = [int(np.argmin([*(random.random(limit) < alpha), False])) for _ in range(paths)]
        drafts = [(limit, count) for count in accepted] if limit else []
        tokens = paths * (1 + limit)
        seconds = start + per_token * tokens
        steps, drafting = 1 + min(accepted), draft * limit * paths
        outcome = (tokens, seconds, drafting, limit * paths, limit > 0, drafts, paths, steps)
        length.observe(PassOutcome(*outcome))
        taken += seconds + drafting
        plain += steps * (start + per_token * paths)
    return chosen, taken / plain


def test_the_adaptive_length_saves_time_or_drafts_almost_nothing():
    sure, faster = run_of(start=1.0, per_token=0.01, draft=0.01, alpha=0.9)
    assert np.mean(sure[20:]) > 6
    assert faster < 0.3
    fair, faster = run_of(start=1.0, per_token=0.1, draft=0.05, alpha=0.6)
    assert 1 <= np.median(fair[20:]) <= 4
    assert faster < 0.8
    for costly, slower in (
        # The draft model is as slow as the target.
        run_of(start=1.0, per_token=0.01, draft=1.5, alpha=0.9),
        # A longer pass costs what it saves.
        run_of(start=0.1, per_token=1.0, draft=0.0, alpha=0.7),
        # Draft tokens are never accepted, and cost only their place in the pass.
        run_of(start=1.0, per_token=0.03, draft=0.0, alpha=0.0),
        # In every pass some path has a rejected token.
        run_of(start=1.0, per_token=0.3, draft=0.1, alpha=0.5, paths=20),
        run_of(start=1.0, per_token=0.03, draft=0.03, alpha=0.7, paths=8),
    ):
        assert np.mean(costly[20:]) < 0.6
        assert slower < 1.08, "trials cost a bounded share of the time, and the first drafts more"


def server_run(
    round_trip: float, per_token: float, alpha: float, paths: int = 1
) -> tuple[list[int], float]:
    """The same for a server that runs ahead: one step per pass, and no request while every path
    follows the server's predictions.
    """
    length, chosen, random, taken, steps = AdaptiveLength(), [], np.random.default_rng(0), 0.0, 200
    left, drafts = [0] * paths, []  # predictions left for each path
    for _ in range(steps):
        limit = length.choose()
        asked = left.count(0)
        seconds = (round_trip + per_token * asked * (1 + limit)) if asked else 0.0
        outcome = (asked * (1 + limit), seconds, 0.0, asked * limit, limit > 0, drafts, paths, 1)
        length.observe(PassOutcome(*outcome))
        left = [(have or 1 + limit) - 1 for have in left]
        drafts = [(1, int(random.random() < alpha)) for have in left if have]
        followed = iter(drafts)
        left = [have if have and next(followed)[1] else 0 for have in left]
        taken += seconds
        if asked:
            chosen.append(limit)
    return chosen, taken / (steps * (round_trip + per_token * paths))


def test_a_run_ahead_is_as_long_as_the_round_trip_justifies() -> None:
    far, faster = server_run(round_trip=20.0, per_token=1.0, alpha=0.55)
    assert 2 <= np.median(far) <= 6
    assert faster < 0.7
    near, faster = server_run(round_trip=1.0, per_token=1.0, alpha=0.55)
    assert np.median(near) <= 2
    assert faster < 1.02
    assert server_run(round_trip=1.0, per_token=3.0, alpha=0.3)[1] < 1.05
    assert server_run(round_trip=20.0, per_token=1.0, alpha=0.6, paths=2)[1] < 0.95


@pytest.mark.parametrize("round_trip", [1.0, 20.0])
def test_many_paths_do_not_run_ahead(round_trip: float) -> None:
    many, slower = server_run(round_trip=round_trip, per_token=1.0, alpha=0.6, paths=20)
    assert np.mean(many) < 0.1
    assert slower < 1.02


def test_a_slow_drafter_that_finds_nothing_is_rarely_asked():
    length = AdaptiveLength()
    asked = 0
    for _ in range(120):
        limit = length.choose()
        asked += limit > 0
        length.observe(PassOutcome(4, 1.0, 0.5 if limit else 0.0, 0, limit > 0, [], 4, 1))
    assert 1 <= asked <= 10
