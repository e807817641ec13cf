"""Many runs by one call."""

import eab
from eab.engine.loop import event_stream
from eab.events import RunEnded, StepTimed


def requests(*prompts: str) -> list[eab.Request]:
    config = eab.BranchingConfig(max_new_tokens=6, max_paths=4)
    return [eab.Request(prompt, config) for prompt in prompts]


def test_every_request_has_the_run_that_it_has_alone(twins):
    model, asked = twins("llama").ours, requests("w5 w9", "w3", "w7 w1 w2")
    for handle, request in zip(eab.serve(model, asked, max_running=2), asked, strict=True):
        served, alone = eab.Run(handle), eab.Run(event_stream(model, request))
        assert [one.token_ids for one in served.samples] == [one.token_ids for one in alone.samples]
        assert served.ended == alone.ended
        assert handle.ended


def test_iterating_one_serves_the_others(twins):
    first, second = eab.serve(twins("llama").ours, requests("w5 w9", "w3"))
    assert isinstance(list(first)[-1], RunEnded)
    assert any(isinstance(event, StepTimed) for event in second.new_events())
