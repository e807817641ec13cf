"""Requests served in two slots, pass by pass, as written by hand."""

from eab.analysis.schedule import RunInPass, ScheduledPass
from eab.labs.batching import ServingRequest, Way, pass_rows
from eab.labs.measurement import LabBegan, Report, Row
from eab.run.events import RunEnded

Parts = list[tuple[int, int, int]]  # run, slot, prompt tokens; 0 for a decode pass
# Two slots. Run 0 writes one token, run 1 writes three, and run 2 one.
CONTINUOUS: list[Parts] = [[(0, 0, 4), (1, 1, 4)], [(1, 1, 0), (2, 0, 4)], [(1, 1, 0)]]
STATIC: list[Parts] = [[(0, 0, 4), (1, 1, 4)], [(1, 1, 0)], [(1, 1, 0)], [(2, 0, 4)]]
SINGLE: list[Parts] = [[(0, 0, 4)], [(1, 0, 4)], [(1, 0, 0)], [(1, 0, 0)], [(2, 0, 4)]]


def passes(parts: list[Parts], seconds: float, kv_bytes: int = 1024) -> tuple[ScheduledPass, ...]:
    found = []
    for served in parts:
        new = tuple(RunInPass(run, slot, fed, 0 if fed else 1, 1, 1) for run, slot, fed in served)
        found.append(ScheduledPass(seconds, kv_bytes * len(new), new))
    return tuple(found)


def compared(
    times: dict[Way, list[float]],
    served: dict[Way, list[Parts]] | None = None,
    differing: int = 0,
    slots: int = 2,
) -> Report:
    """A comparison with these seconds per pass, one number per repeat."""
    ways = served or {"continuous": CONTINUOUS, "static batches": STATIC, "one by one": SINGLE}
    given = tuple(ServingRequest(f"prompt <{number}>", 3)._asdict() for number in range(3))
    found = Report().collect(
        [LabBegan("model", "float32", "machine", "batching", {"slots": slots}, given)]
    )
    for way, repeated in times.items():
        for repeat, seconds in enumerate(repeated):
            served_now = passes(ways[way], seconds)
            found.collect(pass_rows(way, repeat, served_now, served_now if repeat else None))
            found.apply(Row("servings", {"way": way, "repeat": repeat, "differing": differing}))
    found.apply(RunEnded(0, "finished"))
    return found


STEADY = compared(
    {
        "continuous": [1.0, 1.1, 0.9, 1.1, 0.9, 1.0, 1.0],
        "static batches": [1.0, 1.1, 0.95, 1.05, 0.95, 1.0, 1.0],
        "one by one": [0.5, 0.53, 0.5, 0.5, 0.5, 0.5, 0.5],
    }
)
