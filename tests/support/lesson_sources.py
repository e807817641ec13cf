"""The data of a lesson in the tests: the recordings that come with the project."""

from collections.abc import Sequence

import numpy as np

from app.server import weight_matrices
from eab.events import Event
from eab.labs.quantization.rounding import Floats
from eab.lessons import bundled_runs
from eab.lessons.lesson import Lesson
from eab.lessons.sources import Sources
from eab.run import RunState, fold


def example_events(lesson: Lesson) -> Sequence[Event]:
    """The events of the bundled run of a lesson."""
    return bundled_runs.events_of(bundled_runs.named(lesson.run))


def sources_of(run: RunState) -> Sources:
    """This run, with the recordings of the other pages."""
    return Sources(
        run,
        bundled_runs.caches,
        bundled_runs.draft_lengths,
        bundled_runs.batching,
        bundled_runs.formats,
        first_matrix,
    )


def example_sources(lesson: Lesson) -> Sources:
    """The data of a lesson before the user has run anything."""
    return sources_of(fold(example_events(lesson)))


def first_matrix() -> Floats:
    """A matrix from the first layer of the embedded model."""
    name = "model.layers.0.self_attn.q_proj"
    return np.asarray(weight_matrices.matrix("embedded", name, _no_model)[0])


def _no_model(name: str) -> None:
    raise AssertionError(f"{name} is not to be loaded")


# The shortest valid lesson.
SMALL = """+++
title = "Small"
summary = "As short as a lesson can be."
run = "coin.eab"
+++
What you will see: little.

## One
Look.

```step
cursor = "first fork"
```

## Guess
How many forks?

```predict
measure = "forks"
bounds = [1, 3]
```

{{forks}} forks.

## Two
Look again: {{bytes copied of deep-copy over tree}}.

```step
select = [0, 0]
threshold = 0.4
```

## Do
Prune.

```exercise
[[goals]]
measure = "forks"
at_most = 0
```

Done.

## Where
`eab/run`
"""
