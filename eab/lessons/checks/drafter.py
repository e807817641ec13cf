"""The assignment `drafter`: draft tokens, and the rule that accepts them. Drafts may save forward
passes, and must change no token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import ModuleType
from typing import Final

from eab.config import BranchingConfig
from eab.engine.build import build
from eab.engine.forward_pass import Part, run_pass
from eab.engine.generation import Generation
from eab.engine.loop import event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.models.loading import load_model
from eab.engine.request import Request
from eab.engine.speculation.drafter import Drafter, DraftRequest
from eab.engine.speculation.speculator import FixedLength, Speculator
from eab.formatting import quoted
from eab.lessons.checks import Fault, Property
from eab.run import fold
from eab.run.events import Event, Speculated

NEEDS: Final = {"MyDrafter": Drafter, "accept": None}
# All short drafts of two tokens, with all that a run may draw; the shortest first
ACCEPTED: Final = [
    (list(draft), list(drawn))
    for length in range(4)
    for draft in product((0, 1), repeat=length)
    for drawn in product((0, 1), repeat=length + 1)
]


@dataclass(frozen=True)
class Case:
    """A run of the embedded model. Without entropy_threshold it has one path."""

    prompt: str = "Anna has a red ball. Ben has a red ball. Anna has a red"
    policy: str = "fair"
    entropy_threshold: float = 20.0  # nats
    max_new_tokens: int = 24
    draft_length: int = 4

    def request(self, seed: int) -> Request:
        names = ("policy", "entropy_threshold", "max_new_tokens")
        chosen = {name: getattr(self, name) for name in names}
        return Request(self.prompt, BranchingConfig(max_paths=8, seed=seed, **chosen))


CASES: Final = (
    *(Case(policy="greedy"), Case(), Case(entropy_threshold=0.5)),
    Case("Once upon a time, there was a", policy="greedy", max_new_tokens=40),
    Case("I tossed a coin and it landed on", entropy_threshold=0.5),
)


def properties(student: ModuleType, seed: int) -> Iterator[Property]:
    """What is checked, with runs of this seed."""
    model, counts = load_model("embedded", dtype="float64"), [0, 0]  # drafts verified, accepted

    def accepts(example: tuple[list[int], list[int]]) -> None:
        draft, drawn = example
        right = next((at for at, token in enumerate(draft) if token != drawn[at]), len(draft))
        if (found := student.accept([*draft], [*drawn])) != right:
            raise Fault(f"accept returned {quoted(found)} instead of {right}")

    def same(case: Case) -> None:
        request = case.request(seed)
        drafter = Watched(student.MyDrafter(), model.card.vocab_size)
        events = drafted(model, request, drafter, case.draft_length)
        drafts = [event for event in events if isinstance(event, Speculated)]
        counts[0] += sum(one.verified for one in drafts)
        counts[1] += sum(one.accepted for one in drafts)
        runs = (fold(events), fold([*event_stream(model, request)]))
        found, expected = ([(one.token_ids, one.text) for one in run.samples] for run in runs)
        if found != expected:
            texts = (quoted([text for _, text in samples]) for samples in (found, expected))
            raise Fault("the texts with drafts are {}, and without {}".format(*texts))

    def helps(_: Sequence[Case]) -> None:
        if not counts[1]:
            raise Fault(f"of {counts[0]} draft tokens that were verified, none was accepted")

    rate = lambda: f"acceptance rate {counts[1] / counts[0]:.0%}, of {counts[0]}"  # noqa: E731
    yield Property(
        "accept ends at the first draft token that was not drawn",
        ACCEPTED,
        accepts,
        shown=lambda example: f"accept(draft={example[0]}, drawn={example[1]})",
    )
    yield Property("greedy, sampled and branching texts are the same", CASES, same, _smaller)
    yield Property("some draft tokens are accepted", [CASES], helps, shown=_lines, found=rate)


class Watched(Drafter):
    """Passes the calls on to a drafter. Raises Fault if it breaks a promise."""

    def __init__(self, own: Drafter, vocabulary: int) -> None:
        self._own, self._vocabulary = own, vocabulary

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        before = [[*request.tokens] for request in requests]
        drafts = self._own.propose(requests)
        if [[*request.tokens] for request in requests] != before:
            raise Fault("propose changes the tokens of a request, which belong to the run")
        if len(drafts) != len(requests):
            raise Fault(f"propose returns {len(drafts)} drafts for {len(requests)} requests")
        for request, draft in zip(requests, drafts, strict=True):
            if len(draft) > request.limit:
                raise Fault(f"propose returns {len(draft)} tokens, but limit is {request.limit}")
            for token in draft:
                if type(token) is not int or not 0 <= token < self._vocabulary:
                    raise Fault(f"propose returns {quoted(token)}, which is not the id of a token")
        return drafts

    def fork(self, path: int, children: Sequence[int]) -> None:
        self._own.fork(path, children)

    def release(self, path: int) -> None:
        self._own.release(path)


def drafted(model: LanguageModel, request: Request, drafter: Drafter, length: int) -> list[Event]:
    """The events of a run with this drafter, which proposes `length` tokens at most."""
    plain = build(model, request, request.config.entropy_threshold)
    speculator = Speculator(drafter, FixedLength(length), model.stop_ids)
    generation = Generation(model, plain.started, plain.cache, plain.policy, speculator)
    events: list[Event] = [plain.started]
    while generation.live:
        run_pass(model, [part := Part(generation)])
        if part.error is not None:
            raise part.error
        events += part.events
    return events


def _lines(cases: Sequence[Case]) -> str:
    return "\n".join(map(str, cases))


def _smaller(case: Case) -> Iterator[Case]:
    for fewer in sorted({1, case.max_new_tokens // 2, case.max_new_tokens - 1}):
        if 0 < fewer < case.max_new_tokens:
            yield replace(case, max_new_tokens=fewer)
    if case.draft_length > 1:
        yield replace(case, draft_length=case.draft_length - 1)
    if " " in case.prompt:
        yield replace(case, prompt=case.prompt.split(" ", 1)[1])
