"""Which run is served next: passes within the budget, turns between owners, newcomers first. And many
runs through one scheduler, which split the time of a pass.
"""

import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from equality import PROMPT, decisions
from saying_model import saying_model
from served_together import BASE, LONG, chain, chain_request, serve_all

from eab.config import BranchingConfig
from eab.engine import scheduler
from eab.engine.fairness import NewcomersFirst
from eab.engine.handle import Handle
from eab.engine.loop import ActiveRun, ManyRuns, event_stream
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.lessons.checks.policy import TableModel, random_table
from eab.run.events import RunEnded, StepTimed, TokensAppended

WIDE = BranchingConfig(entropy_threshold=0, max_new_tokens=60, max_paths=60, r=1)
LONG_AND_WIDE = replace(WIDE, min_fork_weight=0, max_new_tokens=200)
# The threshold needs a probe of many passes.
PROBED = Request("0 1", replace(BASE, threshold_unit="rank", entropy_threshold=3.0))


def endless(**settings: Any) -> Scheduler:
    """A scheduler of a model that has no stop token."""
    return Scheduler(TableModel(random_table(3, 12)), **settings)


def submit(scheduler: Scheduler, config: BranchingConfig, owners: list[str]) -> list[Handle]:
    """Submit a run for each of these owners, each with its own seed."""
    return [
        scheduler.submit(Request("0", replace(config, seed=seed)), owner=owner)
        for seed, owner in enumerate(owners)
    ]


def steps(scheduler: Scheduler, count: int) -> None:
    for _ in range(count):
        scheduler.step()


def has_new_token(handle: Handle) -> bool:
    return any(isinstance(event, TokensAppended) for event in handle.new_events())


def tokens_of(handles: list[Handle]) -> int:
    return sum(handle.tokens for handle in handles)


def test_no_run_waits_for_a_long_prompt(twins):
    """The prompt gets what other runs leave of the budget, and they miss no pass."""
    scheduler = Scheduler(twins("llama").ours, token_budget=24)
    quick = scheduler.submit(Request(PROMPT, replace(BASE, max_paths=4)), owner="a")
    scheduler.step()
    slow = scheduler.submit(Request(LONG, BASE), owner="b")
    while not quick.ended:
        assert quick in scheduler.step()
    chunks = [event.tokens for event in slow.new_events() if isinstance(event, StepTimed)]
    assert len(chunks) > 2
    assert all(20 <= chunk <= 24 for chunk in chunks[:2])


def test_a_pass_keeps_within_the_budget_and_serves_the_owner_served_least():
    scheduler = endless(token_budget=20)
    often = [
        scheduler.submit(chain_request(seed=seed, max_new_tokens=40), owner=owner)
        for seed, owner in enumerate("aaaaab")
    ]
    once = often.pop()
    while not once.ended:
        served = scheduler.step()
        assert once in served, "who was served least is in every pass"
        tokens = [
            [event for event in handle.new_events() if isinstance(event, StepTimed)][-1].tokens
            for handle in served
        ]
        assert sum(tokens) <= 20
    assert once.tokens > 100
    assert not any(handle.ended for handle in often)
    shares = [handle.tokens for handle in often]
    assert max(shares) - min(shares) <= 20


@pytest.mark.parametrize("paths", [[60] * 3, [150]])
def test_a_greedy_owner_does_not_make_the_passes_of_others_long(paths):
    """Thirty small runs are in every pass beside those of a greedy owner, which add at most 64
    tokens to a pass on average.
    """
    scheduler = endless(max_running=40)
    asked = [Request("0", replace(WIDE, max_paths=width, seed=width)) for width in paths]
    greedy = [scheduler.submit(request, owner="greedy") for request in asked]
    steps(scheduler, 12)  # the greedy owner's trees reach their full width
    asked = [chain_request(seed=seed, max_paths=1, max_new_tokens=30) for seed in range(30)]
    small = [scheduler.submit(request, owner=f"small {n}") for n, request in enumerate(asked)]
    scheduler.step()  # the prompts of the small runs
    before, passes = tokens_of(greedy), 0
    while not any(handle.ended for handle in small):
        assert set(small) <= set(scheduler.step())
        passes += 1
    assert passes >= 10
    assert tokens_of(greedy) - before <= 64 * (passes + 1)
    serve_all(scheduler, [*greedy, *small])
    assert all(handle.ended for handle in greedy)


def test_owners_who_left_are_forgotten():
    scheduler = endless()
    scheduler.submit(chain_request(max_new_tokens=200, max_paths=1), owner="stays")
    known = []
    for number in range(30):
        request = chain_request(max_new_tokens=2, max_paths=1, seed=number)
        short = scheduler.submit(request, owner=str(number))
        while not short.ended:
            scheduler.step()
        known.append(len(scheduler._served.owners))
    assert scheduler.running, "one of them is always there"
    assert max(known) <= 3


def test_a_greedy_owner_does_not_delay_waiting_prompts():
    """A pass with waiting prompts has one of the greedy owner's runs, not all of them."""
    scheduler = endless(max_running=40)
    submit(scheduler, WIDE, ["greedy"] * 3)
    steps(scheduler, 12)
    assert len(scheduler.step()) == 3, "alone, it has the whole pass"
    small = [scheduler.submit(chain_request(seed=seed), owner=f"small {seed}") for seed in range(5)]
    served = scheduler.step()
    assert set(small) <= set(served)
    assert [handle.owner for handle in served].count("greedy") == 1


def test_owners_take_turns_to_start_runs_as_memory_allows():
    row = chain().kv_shape.row_bytes
    scheduler = Scheduler(chain(), max_running=2)
    submit(scheduler, BASE, [*"aaab"])
    scheduler.step()
    assert [handle.owner for handle in scheduler.running] == ["a", "b"]
    assert [handle.owner for handle in scheduler.waiting] == ["a", "a"]
    length = 2**20 // row // 256
    large = chain_request(max_paths=256, max_new_tokens=length, r=length)  # 1 MiB in one allocation
    scheduler = Scheduler(TableModel(random_table(3, 12), context=2**20), kv_limit_mib=1)
    first, second = scheduler.submit(large), scheduler.submit(large)
    scheduler.step()
    assert scheduler.running == [first], "a run that is alone begins, whatever it may need"
    assert scheduler.waiting == [second]
    first.stop()
    scheduler.step()
    assert scheduler.running == [second]


def test_a_newcomer_gets_a_token_while_others_hold_all_slots():
    scheduler = endless(max_running=2, rule=NewcomersFirst())
    submit(scheduler, WIDE, [*"01230123"])
    steps(scheduler, 20)
    assert sorted(handle.owner for handle in scheduler.running) == list("0123")
    assert len(scheduler.waiting) == 4, "their second runs wait"
    new = scheduler.submit(chain_request(), owner="new")
    scheduler.step()
    assert has_new_token(new)
    again = scheduler.submit(chain_request(), owner="new")
    scheduler.step()
    assert again in scheduler.waiting


def test_a_short_prompt_does_not_wait_for_the_chunks_of_long_ones():
    scheduler = Scheduler(chain(), token_budget=16, rule=NewcomersFirst())
    for number in range(8):
        scheduler.submit(chain_request("0 1 " * 200), owner=str(number))
    steps(scheduler, 12)
    assert all(handle.generation.prefilling for handle in scheduler.running)
    new = scheduler.submit(chain_request("0 1 " * 12), owner="new")
    steps(scheduler, 3)  # 24 tokens, 16 in a pass, and a decode step
    assert has_new_token(new)


def test_the_whole_prompt_of_a_newcomer_is_in_its_first_pass():
    """Up to a quarter of the pass is left for it, though others could fill it with their paths."""
    scheduler = endless(token_budget=160, rule=NewcomersFirst())
    submit(scheduler, replace(LONG_AND_WIDE, max_paths=9), [*map(str, range(24))])
    steps(scheduler, 40)
    new = scheduler.submit(chain_request("0 1 " * 20), owner="new")
    scheduler.step()
    assert new.tokens == 40
    assert has_new_token(new)


def test_passes_are_short_while_a_newcomer_has_no_token():
    """Runs that have tokens share 64 in every eighth pass, and get none in the other passes."""
    scheduler = endless(rule=NewcomersFirst())
    crowd = submit(scheduler, replace(LONG_AND_WIDE, max_paths=20), [*map(str, range(12))])
    steps(scheduler, 12)

    def tokens_of_a_pass() -> int:
        before = tokens_of(crowd)
        scheduler.step()
        return tokens_of(crowd) - before

    assert tokens_of_a_pass() == 240
    new, of_crowd = scheduler.submit(PROBED, owner="new"), []
    while new.starting:
        of_crowd.append(tokens_of_a_pass())
    assert len(of_crowd) > 10
    for number, tokens in enumerate(of_crowd, 1):
        assert tokens == 0 if number % 8 else 0 < tokens <= 64
    assert tokens_of_a_pass() == 240


def test_a_wide_run_gets_turns_while_newcomers_start():
    scheduler = endless(rule=NewcomersFirst())
    [run] = submit(scheduler, replace(LONG_AND_WIDE, max_paths=100), ["wide"])
    steps(scheduler, 12)
    before = run.tokens
    for number in range(12):
        new = scheduler.submit(PROBED, owner=str(number))
        while new.starting:
            scheduler.step()
    assert run.tokens > before


SAYING = saying_model(3)


def saying(seed: int, prompt: str = "0") -> Request:
    return Request(prompt, BranchingConfig(max_new_tokens=4, max_paths=6, seed=seed))


def ended_runs(runs: ManyRuns[int]) -> list[ActiveRun[int]]:
    """All runs, in the order in which they end."""
    ended = []
    while runs.busy:
        ended += runs.step()
    return ended


def test_every_run_equals_the_same_run_alone() -> None:
    runs: ManyRuns[int] = ManyRuns(SAYING)
    for seed in range(scheduler.MAX_RUNNING + 8):  # more than run at the same time
        runs.add(seed, saying(seed))
    start = time.perf_counter()
    ended = ended_runs(runs)
    seconds = [run.seconds for run in ended]
    assert min(seconds) > 0
    assert sum(seconds) < time.perf_counter() - start, "no pass counts twice"
    assert sorted(run.tag for run in ended) == [*range(scheduler.MAX_RUNNING + 8)]
    for run in ended[::7]:
        alone = [*event_stream(SAYING, saying(run.tag))]
        assert decisions(run.events) == decisions(alone)
        assert run.problem == ""


def test_the_first_run_has_the_model_for_itself_so_that_its_result_is_early() -> None:
    runs: ManyRuns[int] = ManyRuns(SAYING, first_alone=True)
    for seed in range(4):
        runs.add(seed, saying(seed))
    while not (ended := runs.step()):
        assert [run.tag for run in runs.active] == [0]
    assert [run.tag for run in ended] == [0]
    runs.step()
    assert [run.tag for run in runs.active] == [1, 2, 3]


def test_a_run_that_is_added_first_starts_before_those_that_wait() -> None:
    runs: ManyRuns[int] = ManyRuns(SAYING)
    runs._scheduler.max_running = 1
    for seed in range(3):
        runs.add(seed, saying(seed))
    runs.step()
    assert [run.tag for run in runs.active] == [0]
    runs.add(9, saying(9), first=True)
    assert [run.tag for run in ended_runs(runs)] == [0, 9, 1, 2]


def test_a_run_that_cannot_start_reports_why_and_the_others_continue() -> None:
    runs: ManyRuns[int] = ManyRuns(SAYING)
    runs.add(0, saying(0, " "))
    runs.add(1, saying(1))
    with closing(runs):
        failed, good = ended_runs(runs)
    assert (failed.tag, failed.problem[:19]) == (0, "the prompt is empty")
    assert good.events[-1] == RunEnded(good.step, "finished")
