"""Runs without a model: events in the order in which the engine emits them, with invented words and
numbers.
"""

import random
from typing import Any, Final

from msgspec import structs

from eab.config import BranchingConfig
from eab.run.events import (
    Candidate,
    Event,
    Forked,
    Growth,
    KvMeasured,
    KVUsage,
    ModelCard,
    NewToken,
    PathFinished,
    PathPrediction,
    PathRows,
    Predicted,
    Pruned,
    RowsAllocated,
    RunEnded,
    RunStarted,
    StepTimed,
    TokensAppended,
)

_TEXT = " the| a| little| girl| named| Lily|,| who| loved| to| play|.| One| day| she| saw| big|ger| dogs"
WORDS: Final = _TEXT.split("|")
HOSTILE: Final = [
    "<script>document.title='broken'</script>",
    "<b>",
    "<img src=x onerror=\"document.title='broken'\">",
    "$x^2$",
    "line\nbreak",
    "\udce2\udc82",  # part of a character
    "\u202eright to left",
    "مرحبا",
]
PROMPT: Final = ("Once", " upon", " a", " time")
THRESHOLD: Final = 1.2
CARD: Final = ModelCard("invented", "llama", 4096, 2, 2, 16, "float32", "cpu", 512)


def predicted(
    step: int, path: int, entropy: float, candidates: tuple[Candidate, ...] = ()
) -> Event:
    """The prediction that the decision of one path saw, as an event."""
    return Predicted(step, (PathPrediction(path, entropy, candidates),))


def appended(
    step: int, path: int, token: int, text: str, log_prob: float, special: bool = False
) -> Event:
    """The next token of one path, as an event."""
    return TokensAppended(step, (NewToken(path, token, text, log_prob, special),))


def with_each(event: Event, **fields: Any) -> Event:
    """The event with these fields set in each of its predictions or new tokens."""
    name = {Predicted: "predictions", TokensAppended: "tokens"}.get(type(event))
    if name is None:
        return event
    changed = tuple(one._replace(**fields) for one in getattr(event, name))
    return structs.replace(event, **{name: changed})


def invented_run(seed: int, steps: int, paths: int, words: list[str] | None = None) -> list[Event]:
    """A run with at most about `paths` leaves: some finish, some are pruned, others run on."""
    return _Inventor(seed, steps, paths, words or WORDS).events()


class _Inventor:
    def __init__(self, seed: int, steps: int, paths: int, words: list[str]) -> None:
        self.random = random.Random(seed)
        self.steps, self.paths, self.words = steps, paths, words
        self.live, self.born, self.weight = [0], 1, {0: 1.0}
        self.length = {0: 0}

    def events(self) -> list[Event]:
        config = BranchingConfig(max_new_tokens=max(1, self.steps), max_paths=max(1, self.paths))
        found: list[Event] = [
            RunStarted("".join(PROMPT), tuple(range(len(PROMPT))), PROMPT, CARD, config, THRESHOLD)
        ]
        for step in range(self.steps):
            found += self._step(step)
        last = max(0, self.steps - 1)
        return [
            *found,
            *(PathFinished(last, path, "length") for path in self.live),
            RunEnded(last, "finished"),
        ]

    def _step(self, step: int) -> list[Event]:
        events: list[Event] = [self._measured(step)]
        if step % 16 == 0:
            events.insert(0, RowsAllocated(step, Growth(16 * len(self.live), 0, 0, 0)))
        before, self.live = self.live, []
        seen: list[PathPrediction] = []
        happens: list[Event] = []
        for path in before:
            forks = len(before) + len(self.live) + 2 <= self.paths and self.random.random() < 0.3
            entropy = self.random.uniform(*((THRESHOLD, 3) if forks else (0, THRESHOLD - 0.01)))
            seen.append(PathPrediction(path, round(entropy, 4), self._candidates()))
            happens += self._fork(step, path) if forks else self._grow(step, path)
        events.append(Predicted(step, tuple(seen)))
        return [*events, *happens, StepTimed(step, len(before), 0.01, 0.008)]

    def _fork(self, step: int, path: int) -> list[Event]:
        children = tuple(range(self.born, self.born + self.random.choice((2, 3))))
        self.born = children[-1] + 1
        shares = tuple(self.weight[path] / len(children) for _ in children)
        self.weight |= dict(zip(children, shares, strict=True))
        self.length |= dict.fromkeys(children, self.length[path])
        self.live += children
        return [
            Forked(step, path, children, shares, children[0]),
            *(self._token(step, child) for child in children),
        ]

    def _token(self, step: int, path: int) -> Event:
        self.length[path] += 1
        return appended(step, path, 7, self.random.choice(self.words), -self.random.random())

    def _grow(self, step: int, path: int) -> list[Event]:
        token, chance = self._token(step, path), self.random.random()
        if chance < 0.02:
            return [token, PathFinished(step, path, "stop")]
        if chance < 0.05 and self.live:
            return [token, Pruned(step, path)]
        self.live.append(path)
        return [token]

    def _candidates(self) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(token, word, 0.5 / (token + 1)) for token, word in enumerate(self.words[:4])
        )

    def _measured(self, step: int) -> KvMeasured:
        rows = tuple(PathRows(path, len(PROMPT), self.length[path]) for path in self.live)
        private = sum(row.private for row in rows)
        held = (len(PROMPT) + private + 8) * CARD.row_bytes
        independent = sum(row.shared + row.private for row in rows)
        return KvMeasured(step, KVUsage(held, len(PROMPT), private, 8, independent, rows))
