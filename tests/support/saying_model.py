"""A language model whose answers are known: a table over words, some of them equivalent."""

import math
from collections import defaultdict
from collections.abc import Sequence

from invented_runs import CARD, appended, predicted

from eab.analysis.answer_rules import normalised
from eab.analysis.answers import entropy
from eab.config import BranchingConfig
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold
from eab.run.events import Event, Forked, PathFinished, RunStarted

SAYINGS = [" Paris", " paris.", " the Paris", " Rome", " rome!", " 1.5", " 15"]
STOP = len(SAYINGS)


class SayingModel(TableModel):
    """A table model whose tokens are words, some of them the same answer; the last token ends the
    text.
    """

    def text(self, token: int) -> str:
        return "" if token == STOP else SAYINGS[token]


def saying_model(seed: int, concentration: float = 0.5) -> SayingModel:
    return SayingModel(random_table(seed, STOP + 1, concentration), stop_ids=[STOP])


def exact_answers(model: SayingModel, length: int) -> dict[str, float]:
    """The probability of each answer, by enumeration of all texts."""
    found: defaultdict[str, float] = defaultdict(float)
    for tokens, mass in model.all_texts(0, length):
        found[normalised("".join(model.text(token) for token in tokens))] += mass
    return dict(found)


def flat_run(texts: Sequence[tuple[str, float, float, bool]], policy: str = "fair") -> RunState:
    """A run with one fork at step 0; leaves are given as (text, weight, probability, ended)."""
    config, children = BranchingConfig(policy=policy), tuple(range(1, len(texts) + 1))
    weights = tuple(weight for _, weight, _, _ in texts)
    events: list[Event] = [
        RunStarted("p", (0,), ("p",), CARD, config, 1.0),
        predicted(0, 0, entropy(weights)),
        Forked(0, 0, children, weights, 1),
    ]
    for child, (text, _, probability, _) in zip(children, texts, strict=True):
        events.append(appended(0, child, child, text, math.log(probability)))
    ended = [child for child, (*_, done) in zip(children, texts, strict=True) if done]
    return fold([*events, *(PathFinished(0, child, "stop") for child in ended)])
