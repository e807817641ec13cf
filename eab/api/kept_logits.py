"""The logits of chosen steps of a run, for callers who need more than the recorded candidates."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from numbers import Integral
from typing import Any, Final

from torch import Tensor

from eab.engine.models.base import LanguageModel
from eab.engine.request import Request
from eab.errors import ConfigError
from eab.formatting import human_bytes, quoted
from eab.run.events import Event, Predicted
from eab.text_values import is_iterable

MOST_BYTES: Final = 2**30
_MOST_NAMED: Final = 10**6  # steps; far more than a run can have


class KeptLogits:
    """Keeps the logits of these steps, counted from 0, during a run.

    Raises:
        ConfigError: `steps` is invalid, names no step of the run, or could take more than 1 GiB.
    """

    def __init__(self, steps: Any, model: LanguageModel, request: Request) -> None:
        named, last = _steps(steps), request.config.max_new_tokens - 1
        self._steps = frozenset(step for step in named if step <= last)
        if named and not self._steps:
            raise ConfigError(
                f"keep_logits names no step of the run; with max_new_tokens={last + 1} they are "
                f"0 to {last}"
            )
        self._rows: dict[tuple[int, int], Tensor] = {}
        if self._steps and model.kv_shape.blocks is not None:
            raise ConfigError(
                f"keep_logits is given, but {model.card.name} runs on a server, which names only "
                "its most likely tokens; load the model on this machine"
            )
        row_bytes = model.card.vocab_size * model.kv_shape.dtype.itemsize
        paths = request.config.max_paths
        if len(self._steps) * paths * row_bytes > MOST_BYTES:
            most = max(MOST_BYTES // (paths * row_bytes), 0)
            raise ConfigError(
                f"keep_logits names {len(self._steps)} steps of up to {paths} paths with "
                f"{human_bytes(row_bytes)} each; at most {human_bytes(MOST_BYTES)} are kept. "
                f"Name at most {most} steps, or lower max_paths"
            )

    def added_to(self, request: Request) -> Request:
        """The request, changed so that the logits of its run are kept here."""
        return replace(request, logits_reader=self._keep) if self._steps else request

    def _keep(self, path: int, step: int, logits: Tensor) -> None:
        if step in self._steps:
            self._rows[path, step] = logits.to("cpu", copy=True)

    def of(self, events: Iterable[Event]) -> dict[tuple[int, int], Tensor]:
        """The logits of the steps that the run decided, (V,) each, by path and step."""
        decided = [
            (seen.path, event.step)
            for event in events
            if isinstance(event, Predicted)
            for seen in event.predictions
        ]
        return {key: self._rows[key] for key in decided if key in self._rows}


def _steps(given: Any) -> list[int]:
    named = given.tolist() if isinstance(given, Tensor) else given
    if is_iterable(named) and not isinstance(named, str | bytes):
        first = islice(named, _MOST_NAMED + 1)
        steps = [int(step) if isinstance(step, Integral) else -1 for step in first]
        if len(steps) > _MOST_NAMED:
            raise ConfigError(f"keep_logits names more than {_MOST_NAMED:,} steps; name fewer")
        if min(steps, default=0) >= 0:
            return steps
    raise ConfigError(f"keep_logits is {quoted(given)}; give steps from 0 on, such as range(5)")
