"""The policies, for tests that hold for all of them: a new one is tested without being named."""

from typing import get_args

from eab.config import PolicyName

EVERY = get_args(PolicyName)
FORKING = [name for name in EVERY if name not in ("greedy", "independent")]
