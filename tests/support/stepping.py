"""A policy alone, on a table of probabilities: no cache, no events, so many seeds are quick."""

import numpy as np
import torch
from msgspec import structs

from eab.config import BranchingConfig
from eab.engine.branching.beam import BeamPolicy
from eab.engine.branching.own import GivenPolicy
from eab.engine.branching.policies import make_policy
from eab.engine.branching.policy import Child, Leaf, Member, Policy, grown
from eab.engine.branching.random_streams import ROOT
from eab.engine.branching.sampling import Predictions
from eab.lessons.checks.policy import TableModel

Text = tuple[int, ...]
Sample = tuple[Text, Leaf]


@torch.inference_mode()
def samples_of(
    model: TableModel, config: BranchingConfig, given: GivenPolicy | None = None
) -> tuple[list[Sample], Policy]:
    """The texts of a run that starts from token 0, with their leaves, and the run's final policy.
    The threshold of the config is in nats.
    """
    policy = make_policy(config, config.entropy_threshold, given)
    samples: list[Sample] = [((), Leaf(0, ROOT, 1.0, 0.0))]
    longest, computed = config.max_new_tokens, 0
    if isinstance(policy, BeamPolicy):
        policy.ends = lambda leaf, token: leaf.tokens + 1 == longest or token in model.stop_ids
    while live := [leaf for _, leaf in samples if not leaf.finished]:
        leaves = policy.select(live)
        chosen = [(text, leaf) for text, leaf in samples if leaf in leaves]
        step = leaves[0].tokens
        predictions = _predictions(model, config, [text for text, _ in chosen])
        at = [(leaf.stream_key, step) for leaf in leaves]
        predictions.draw_next(policy.uniforms(at), policy.rest_draws(predictions, 0, at))
        families = iter(policy.branch(leaves, predictions, step))
        population: list[tuple[Text, Member]] = []
        for text, leaf in samples:
            members: list[Leaf] | list[Child] = next(families) if leaf in leaves else [leaf]
            population += [(text, member) for member in members]
        weights = policy.prune([member for _, member in population], step)
        samples = [
            _after(model, text, member, weight, config)
            for (text, member), weight in zip(population, weights, strict=True)
            if weight is not None
        ]
        computed += len(leaves)
        if config.policy == "best-first" and computed >= config.max_paths * longest:
            break
    return samples, policy


def leaves_of(model: TableModel, config: BranchingConfig) -> tuple[dict[Text, Leaf], Policy]:
    """The leaves of a run by their texts, which must all differ, and the run's final policy."""
    samples, policy = samples_of(model, config)
    leaves = dict(samples)
    assert len(leaves) == len(samples), "every text is one leaf"
    return leaves, policy


def _predictions(model: TableModel, config: BranchingConfig, texts: list[Text]) -> Predictions:
    rows = np.stack([model.next(text[-1] if text else 0, len(text)) for text in texts])
    return Predictions(torch.from_numpy(rows).log(), config)


def _after(
    model: TableModel, text: Text, member: Member, weight: float, config: BranchingConfig
) -> Sample:
    if isinstance(member, Leaf):
        return text, structs.replace(member, weight=weight)
    leaf = grown(member, 0, weight, len(text))
    ended = leaf.token in model.stop_ids or leaf.tokens == config.max_new_tokens
    return (*text, leaf.token), structs.replace(leaf, finished=ended)
