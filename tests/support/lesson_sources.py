"""The data of a lesson in the tests: the recordings that come with the project."""

from collections.abc import Sequence

from eab.lessons import bundled_runs
from eab.lessons.lesson import Lesson
from eab.lessons.measures import Sources, bundled_sources
from eab.run import fold
from eab.run.events import Event


def example_events(lesson: Lesson) -> Sequence[Event]:
    """The events of the bundled run of a lesson."""
    return bundled_runs.events_of(bundled_runs.named(lesson.run))


def example_sources(lesson: Lesson) -> Sources:
    """The data of a lesson before the user has run anything."""
    return bundled_sources(fold(example_events(lesson)))


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
