"""The data that a lesson uses: a run, and the recordings or measurements of other pages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from eab.analysis.schedule import Schedule
from eab.labs.batching.results import shown
from eab.labs.batching.workloads import WAYS
from eab.labs.measurement import Report, Values
from eab.labs.variants.results import CACHES, draft_length_variants
from eab.lessons.bundled_runs import batching, caches, draft_lengths, formats
from eab.run import RunState
from eab.weight_formats import WEIGHT_FORMATS

Source = Literal["run", "caches", "draft lengths", "batching", "formats"]
Part: TypeAlias = RunState | Schedule | Values

# The parts that a lesson can name, with the source and the type of each.
PARTS: Final[dict[str, tuple[Source, type]]] = {
    "run": ("run", RunState),
    **{name: ("caches", RunState) for name in CACHES},
    **{name: ("draft lengths", RunState) for name in draft_length_variants("model")},
    **{way: ("batching", Schedule) for way in WAYS},
    **{name: ("formats", dict) for name in WEIGHT_FORMATS},
}


@dataclass(frozen=True)
class Sources:
    """The data behind the numbers of a lesson; all but the run are loaded when needed."""

    run: RunState
    caches: Callable[[], Report]  # the same run with every cache
    draft_lengths: Callable[[], Report]  # one text, without and with drafts
    batching: Callable[[], Report]  # the same requests served in several ways
    formats: Callable[[], Report]  # a model in every weight format

    def part(self, name: str) -> Part | None:
        """One of `PARTS`; None if it was not recorded or measured."""
        source, _ = PARTS[name]
        if source == "run":
            return self.run
        if source == "batching":
            schedules: Mapping[Any, Schedule] = shown(self.batching())
            return schedules.get(name)
        if source == "formats":
            return next(iter(self.formats().rows("formats", weights=name)), None)
        compared = self.caches() if source == "caches" else self.draft_lengths()
        return compared.runs.get(name)


def bundled_sources(run: RunState) -> Sources:
    """This run with the recordings and measurements that are bundled with the project."""
    return Sources(run, caches, draft_lengths, batching, formats)
