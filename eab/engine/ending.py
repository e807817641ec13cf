"""When a run ends before all its texts have: nothing that it has not seen can change its leading
answer, enough is explored, or its token budget is spent.

The answer is the first sentence of a text, or its label, if the settings name words as labels. The
probability of every answer has certain bounds (`eab.analysis.answers`, `labels`), so the first two
are certain, not statistical: an answer wins if no other one, seen or not, has an upper bound above
its lower bound, and the bounds are 1 - `explored` apart. Live paths count as not seen, unless their
answer is complete.
"""

from collections.abc import Sequence

from eab.analysis.answers import group_answers
from eab.analysis.label_rules import recorded
from eab.analysis.labels import labels_of
from eab.run import RunState
from eab.run.events import EndReason, Event, Predicted, RunStarted


class Ending:
    """Follows the events of a run, as far as its settings need them."""

    def __init__(self, started: RunStarted) -> None:
        self._config = started.config
        self._state = RunState(started) if started.config.stop_when != "ended" else None
        self._budget, self._tokens = started.config.most_tokens, 0

    def reason(self, events: Sequence[Event]) -> EndReason | None:
        """Why the run ends after these events, which follow those of the last call; or None."""
        predicted = [event for event in events if isinstance(event, Predicted)]
        self._tokens += sum(len(event.predictions) for event in predicted)
        if self._state is not None and (reason := self._by_answers(events)):
            return reason
        return "budget" if self._budget and self._tokens >= self._budget else None

    def _by_answers(self, events: Sequence[Event]) -> EndReason | None:
        assert self._state is not None
        for event in events:
            self._state.apply(event)
        winner, explored = self._known(self._state)
        if self._config.stop_when == "decided":
            return "decided" if winner is not None else None
        return "explored" if explored >= self._config.explored_goal else None

    def _known(self, run: RunState) -> tuple[object | None, float]:
        """What has won already, if anything has, and the probability of what is explored."""
        if self._config.label_words:
            labels = labels_of([run], recorded(run.labels))
            return labels.winner, 1.0 - labels.unexplored
        answers = group_answers(run, "sentence")
        return answers.winner, answers.explored
