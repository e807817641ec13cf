"""The branching policies: where a path forks, which children it gets, what they weigh, and which
paths the path limit drops.

- `fair` forks where the entropy is high. The sum of weight x f(leaf) is an unbiased estimate of E f
  under the processed distribution: in expectation, a child weighs its parent's weight times its
  probability, and pruning keeps every weight.
- `original` is the published rule of entropy-adaptive branching, to reproduce it.
- `arithmetic` follows evenly spaced codes over the tree; it is also unbiased.
- `stochastic-beam` draws different texts without replacement and weighs them by importance.
- `greedy` takes the most likely token and never forks; it probes a prompt for the rank
  threshold.
- `independent` is ordinary sampling, for comparison: max_paths texts that depend on the prompt
  only, not on each other.
"""

from eab.branching.arithmetic import ArithmeticPolicy
from eab.branching.fair import FairPolicy
from eab.branching.original import OriginalPolicy
from eab.branching.own import GivenPolicy, check_is_there, own_policy
from eab.branching.policy import Policy
from eab.branching.stochastic_beam import StochasticBeamPolicy
from eab.branching.without_forks import GreedyPolicy, IndependentPolicy
from eab.config import BranchingConfig


def make_policy(
    config: BranchingConfig, threshold_nats: float, given: GivenPolicy | None = None
) -> Policy:
    """The policy of one run: the given one, or the one that the config names.

    Raises:
        ConfigError: The config names a custom policy that is not given, or `given` creates none.
    """
    check_is_there(config, given)
    if given is not None:
        return own_policy(given, config, threshold_nats)
    match config.policy:
        case "fair":
            return FairPolicy(config, threshold_nats)
        case "original":
            return OriginalPolicy(config, threshold_nats)
        case "arithmetic":
            return ArithmeticPolicy(config)
        case "stochastic-beam":
            return StochasticBeamPolicy(config)
        case "greedy":
            return GreedyPolicy(config)
        case "independent":
            return IndependentPolicy(config)
    raise AssertionError(f"BranchingConfig lets no policy {config.policy} pass")
