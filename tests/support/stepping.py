"""A policy alone, on a table of probabilities: no cache, no events, many seeds in little time."""

from collections.abc import Callable

import numpy as np
import torch
from table_model import TableModel

from eab.branching.policies import make_policy
from eab.branching.policy import Child, Leaf, Member, Policy, grown
from eab.branching.random_streams import ROOT
from eab.branching.sampling import Predictions
from eab.config import BranchingConfig

Text = tuple[int, ...]


def leaves_of(
    model: TableModel,
    config: BranchingConfig,
    each_step: Callable[[dict[Text, Leaf]], None] = lambda texts: None,
) -> tuple[dict[Text, Leaf], Policy]:
    """The leaves of a run that starts from token 0, by their texts, and the policy at the end.

    Args:
        model: Gives the probabilities.
        config: The settings.
        each_step: Called with the leaves after each step.
    """
    policy = make_policy(config, 0.0)
    texts = {(): Leaf(0, ROOT, 1.0, 0.0)}
    for step in range(config.max_new_tokens):
        live = {text: leaf for text, leaf in texts.items() if not leaf.finished}
        if not live:
            break
        predictions = _predictions(model, config, list(live), step)
        at = [(leaf.stream_key, step) for leaf in live.values()]
        predictions.draw_next(policy.uniforms(at), policy.rest_draws(predictions, 0, at))
        families = iter(policy.branch(list(live.values()), predictions, step))
        population: list[tuple[Text, Member]] = []
        for text, leaf in texts.items():
            members: list[Leaf] | list[Child] = [leaf] if leaf.finished else next(families)
            population += [(text, member) for member in members]
        weights = policy.prune([member for _, member in population], step)
        texts = {}
        for (text, member), weight in zip(population, weights, strict=True):
            if weight is not None:
                after, leaf = _after(model, text, member, weight, step)
                assert after not in texts, "every text is one leaf"
                texts[after] = leaf
        each_step(texts)
    return texts, policy


def _predictions(
    model: TableModel, config: BranchingConfig, texts: list[Text], step: int
) -> Predictions:
    rows = np.stack([model.next(text[-1] if text else 0, step) for text in texts])
    return Predictions(torch.from_numpy(rows).log(), config)


def _after(
    model: TableModel, text: Text, member: Member, weight: float, step: int
) -> tuple[Text, Leaf]:
    if isinstance(member, Leaf):
        return text, Leaf(
            member.path, member.stream_key, weight, member.log_prob, member.token, True
        )
    leaf = grown(member, 0, weight, step)
    ended = leaf.token in model.stop_ids
    return (*text, leaf.token), Leaf(
        0, leaf.stream_key, weight, leaf.log_prob, leaf.token, finished=ended
    )
