"""Checks that runs are equal: the same decisions, and the log-probabilities of plain passes."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from eab.config import BranchingConfig
from eab.run import RunState
from eab.run.events import Event, KvMeasured, RowsAllocated, StepTimed

PROMPT = "w5 w9 w33 w2"
EXACT = 1e-9
MEASUREMENTS = (RowsAllocated, KvMeasured, StepTimed)


def filtered(scores: torch.Tensor, config: BranchingConfig) -> torch.Tensor:
    """Scores after temperature and filters, applied by transformers' own code and in its order.
    That code sorts the vocabulary.
    """
    nothing, filters = torch.empty(0, dtype=torch.int64), LogitsProcessorList()
    if config.temperature != 1.0:
        filters.append(TemperatureLogitsWarper(config.temperature))
    if config.top_k:
        filters.append(TopKLogitsWarper(config.top_k))
    if config.top_p < 1:
        filters.append(TopPLogitsWarper(config.top_p))
    if config.min_p:
        filters.append(MinPLogitsWarper(config.min_p))
    return filters(nothing, scores)


def processed(logits: torch.Tensor, config: BranchingConfig) -> torch.Tensor:
    """Log-probabilities as transformers' own `generate` would sample from them."""
    return filtered(logits, config).log_softmax(-1)


@torch.inference_mode()
def plain_log_probs_and_entropies(
    model: torch.nn.Module,
    prompt: Sequence[int],
    texts: Sequence[Sequence[int]],
    config: BranchingConfig,
) -> Iterator[tuple[list[float], list[float]]]:
    """The log-probability and the entropy at each new token of these texts, from one full forward
    pass without a cache. All texts must have the same length.
    """
    whole = torch.tensor([[*prompt, *text] for text in texts])
    for text, logits in zip(texts, model(whole, use_cache=False).logits, strict=True):
        log_probs = processed(logits[len(prompt) - 1 : -1], config)
        entropies = torch.special.entr(log_probs.exp()).sum(-1)
        chosen = log_probs.gather(1, torch.tensor(text)[:, None])[:, 0]
        yield chosen.tolist(), entropies.tolist()


def assert_leaves_match(run: RunState, model: torch.nn.Module, tolerance: float) -> None:
    assert run.started is not None
    prompt, config = run.started.prompt_tokens, run.started.config
    leaves = sorted((list(run.tokens(leaf.id)) for leaf in run.leaves()), key=len)
    alike = [list(group) for _, group in groupby(leaves, key=len)]
    plain = (
        plain_log_probs_and_entropies(
            model, prompt, [[one.id for one in text] for text in group], config
        )
        for group in alike
    )
    for tokens, (log_probs, entropies) in zip(leaves, chain.from_iterable(plain), strict=True):
        assert [token.log_prob for token in tokens] == pytest.approx(log_probs, abs=tolerance)
        assert [token.entropy for token in tokens] == pytest.approx(entropies, abs=tolerance)


def assert_same_decisions(run: RunState, expected: RunState, tolerance: float = EXACT) -> None:
    """Check for the same tree and tokens, and for equal numbers (weights, etc.) up to rounding."""
    assert len(run.paths) == len(expected.paths)
    for path, wanted in zip(run.paths, expected.paths, strict=True):
        assert (path.parent, path.children, path.status) == (
            wanted.parent,
            wanted.children,
            wanted.status,
        )
        assert path.weight == pytest.approx(wanted.weight, abs=tolerance)
        assert [token.id for token in path.tokens] == [token.id for token in wanted.tokens]
        for name in ("log_prob", "entropy"):
            found = [getattr(token, name) for token in path.tokens]
            assert found == pytest.approx(
                [getattr(token, name) for token in wanted.tokens], abs=tolerance
            )


def decisions(events: list[Event]) -> list[Event]:
    return [event for event in events[1:] if not isinstance(event, MEASUREMENTS)]


def untimed(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, StepTimed)]
