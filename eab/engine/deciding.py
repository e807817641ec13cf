"""When a run may end early because no text that it has not seen can change its leading answer.

The answer is the first sentence of a text. The probability of every answer has certain bounds
(`eab.analysis.answers`), so this is certain, not statistical: an answer wins if no other one,
seen or not, has an upper bound above its lower bound. Live paths count as not seen.
"""

from collections.abc import Sequence

from eab.analysis.answers import group_answers
from eab.config import BranchingConfig
from eab.events import Event
from eab.run import RunFold


class Deciding:
    """Follows the events of a run with the setting `stop_when="decided"`; of others, nothing."""

    def __init__(self, config: BranchingConfig) -> None:
        self._state = RunFold() if config.stop_when == "decided" else None

    def decides(self, events: Sequence[Event]) -> bool:
        """Whether the answer is decided after these events, which follow those of the last call."""
        if self._state is None:
            return False
        for event in events:
            self._state.apply(event)
        return self._state.run is not None and (
            group_answers(self._state.run, "sentence").winner is not None
        )
