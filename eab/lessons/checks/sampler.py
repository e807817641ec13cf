"""The assignment `sampler`: draw a token from logits, with temperature, top-k and top-p as in
transformers, in this order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

import torch
from torch import Tensor

from eab.config import BranchingConfig
from eab.engine.branching.filters import filtered
from eab.formatting import quoted
from eab.lessons.checks import ALARM, Fault, Property

NEEDS: Final = {"sample": None}
DRAWS: Final = 8000
REPEATED: Final = 40  # draws that are made again


@dataclass(frozen=True)
class Case:
    """Logits, and the settings of the draws; top_k=0 and top_p=1 leave all tokens."""

    # So close to each other that chi-square holds: more than five draws of each are expected.
    logits: tuple[float, ...] = (0.7, -0.4, 1.5, 0.2, 1.2, -0.5, 0.4, -0.1)
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def probabilities(self) -> Tensor:
        """The exact distribution, (V,) float64."""
        config = BranchingConfig(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        return filtered(torch.tensor([self.logits], dtype=torch.float64), config).softmax(-1)[0]


CASES: Final = (
    Case(),
    *(Case(temperature=0.5), Case(temperature=1.7), Case(top_k=3), Case(top_p=0.8)),
    *(Case(temperature=0.6, top_p=0.7), Case(temperature=1.4, top_k=5, top_p=0.75)),
)


def properties(student: ModuleType, seed: int) -> Iterator[Property]:
    """What is checked, with generators that have this seed."""

    def draws(case: Case, count: int, of_generator: int = seed) -> list[int]:
        generator = torch.Generator().manual_seed(of_generator)
        logits = torch.tensor(case.logits, dtype=torch.float64)
        settings = case.temperature, case.top_k, case.top_p
        found = [student.sample(logits.clone(), generator, *settings) for _ in range(count)]
        for token in found:
            if type(token) is not int or not 0 <= token < len(logits):
                raise Fault(f"sample returned {quoted(token)}, which is not the int of a token")
        return found

    def repeats(case: Case) -> None:
        first, again, other = (draws(case, REPEATED, one) for one in (seed, seed, seed + 1))
        if first != again:
            raise Fault(f"the same seed gave {first[:9]} ... and then {again[:9]} ...")
        if first == other:
            raise Fault(f"two seeds gave the same {REPEATED} tokens, {first[:9]} ...")

    def fits(case: Case) -> None:
        counts = torch.tensor(draws(case, DRAWS)).bincount(minlength=len(case.logits))
        p = chi_square_p(counts, case.probabilities)
        if p < ALARM / len(CASES):
            shares = zip((counts / DRAWS).tolist(), case.probabilities.tolist(), strict=True)
            shown = ", ".join(f"{share:.3f} ({exact:.3f})" for share, exact in shares)
            raise Fault(
                f"the shares of the tokens (and their probabilities) are {shown}; p={p:.1g}"
            )

    yield Property("the same seed gives the same tokens", CASES[:1], repeats)
    exact = f"shares are probabilities, in {len(CASES)} x {DRAWS:,} draws by chi-square"
    yield Property(f"{exact}, with a false alarm in {1 / ALARM:,.0f}", CASES, fits, _smaller)


def chi_square_p(counts: Tensor, probabilities: Tensor) -> float:
    """How probable it is that counts of draws are this far from the probabilities, (V,) each, or
    farther, by Pearson's test. It is 0 if something impossible was drawn.
    """
    expected, possible = probabilities * counts.sum(), probabilities > 0
    if counts[~possible].any():
        return 0.0
    distance = ((counts - expected) ** 2 / expected)[possible].sum()
    freedom = possible.sum() - 1
    return float(torch.special.gammaincc(freedom / 2, distance / 2)) if freedom else 1.0


def _smaller(case: Case) -> Iterator[Case]:
    neutral: list[dict[str, Any]] = [{"temperature": 1.0}, {"top_k": 0}, {"top_p": 1.0}]
    yield from (simpler for one in neutral if (simpler := replace(case, **one)) != case)
    for out in range(len(case.logits) if len(case.logits) > 2 else 0):
        yield replace(case, logits=case.logits[:out] + case.logits[out + 1 :])
