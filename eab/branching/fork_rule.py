"""The policy `fair` with another rule for where a path forks."""

from eab.branching.fair import FairPolicy
from eab.branching.own import NextToken, PathSoFar, Rule, plain_name
from eab.branching.policy import At, Leaf, Seeded
from eab.branching.sampling import Predictions, listed
from eab.config import BranchingConfig
from eab.errors import ConfigError


class RulePolicy(FairPolicy):
    """Unbiased for any rule, because the rule does not see which token is drawn."""

    def __init__(self, config: BranchingConfig, rule: Rule) -> None:
        super().__init__(config, threshold_nats=0.0)  # every path may fork, until the rule is asked
        self._rule = rule

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """None is known in advance, because the rule may depend on weights, which change."""
        return Seeded.forced_tokens(self, predictions, at)

    def _may_fork(self, leaf: Leaf, predictions: Predictions, index: int, step: int) -> bool:
        count = listed(self._config)  # there are more if another run of the pass asked for them
        seen = NextToken(
            step,
            predictions.entropies[index],
            tuple(predictions.top_tokens[index][:count]),
            tuple(predictions.top_probabilities[index][:count]),
        )
        said = self._rule(seen, PathSoFar(leaf.path, leaf.weight, leaf.log_prob))
        if said not in (True, False):
            raise ConfigError(
                f"the rule {plain_name(self._rule)} returned a {type(said).__name__}; it must "
                "return True or False. A function that makes a policy names its first parameter "
                "config"
            )
        return bool(said) and leaf.weight >= self._config.min_fork_weight
