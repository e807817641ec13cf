"""The engine on a real vLLM server gives the same tokens as on this machine.

Runs on request: EAB_VLLM_URL names a server with the embedded model (see docs/remote.md).
"""

from dataclasses import replace

import pytest

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.run import fold

pytestmark = pytest.mark.vllm

PROMPTS = ("Once upon a time, there was a", "The cat sat on the", "One day, a girl named")
SETTINGS = {
    "default": BranchingConfig(top_k=20, max_new_tokens=24),
    "run ahead": BranchingConfig(
        top_k=20, max_new_tokens=24, max_paths=8, drafter="run-ahead", draft_length=3
    ),
    "one path ahead": BranchingConfig(
        top_k=20, max_new_tokens=40, max_paths=1, drafter="run-ahead"
    ),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_same_seed_gives_the_same_tokens(vllm, embedded, prompt, name, seed):
    config = replace(SETTINGS[name], seed=seed)
    here = replace(config, drafter="none", draft_length=0)
    found = fold(event_stream(vllm, Request(prompt, config)))
    wanted = fold(event_stream(embedded, Request(prompt, here)))
    assert len(found.paths) == len(wanted.paths)
    for path, expected in zip(found.paths, wanted.paths, strict=True):
        assert [token.id for token in path.tokens] == [token.id for token in expected.tokens]
        entropies = [token.entropy for token in expected.tokens]
        assert [token.entropy for token in path.tokens] == pytest.approx(entropies, abs=1e-3)
