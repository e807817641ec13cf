"""The policies, for tests that apply to all of them. They include a new policy automatically."""

from typing import get_args

from eab.config import PolicyName

EVERY = get_args(PolicyName)
FORKING = [name for name in EVERY if name not in ("greedy", "independent")]
# Those whose paths take every step together: a step is a moment of the run
BY_STEP = [name for name in EVERY if name != "best-first"]
