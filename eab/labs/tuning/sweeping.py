"""A sweep: every setting of a grid on every prompt, with every seed.

    for step in sweep(model, prompts, Grid({"entropy_threshold": [0.3, 0.65]}, seeds=range(8))):
        print(step.done, step.total, step.seconds_left, step.cells)

To stop, stop iterating. With a folder, finished cells are kept and the same sweep can be resumed.
Cells that one run of the model may answer are an item. The recorded sweeps are here, too, and a
smaller one to start with.
"""

import hashlib
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import structs

from eab.config import SETTINGS, BranchingConfig
from eab.engine.branching.own import GivenPolicy
from eab.engine.branching.presets import OF_PRESETS, starting_config
from eab.errors import ConfigError, RecordError
from eab.formatting import counted, human_seconds
from eab.labs.tuning.grid import Cell, Grid
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import TuningPrompt, chat_questions, some_prompts
from eab.labs.tuning.report import Journal, SweepEvent, plan_of, sweep_began
from eab.run.events import ModelCard, Progressed, RunEnded
from eab.settings import Real

if TYPE_CHECKING:
    from eab.engine.models.base import LanguageModel

# Without the model, eab.engine.what_if can recompute a finished run for other values of these.
RESIMULATED: Final = ("entropy_threshold", "r")


@dataclass(frozen=True, slots=True)
class Item:
    """Cells with the same prompt, seed and settings, except for the threshold and r."""

    prompt: TuningPrompt
    configs: tuple[BranchingConfig, ...]  # lowest threshold first
    policy: GivenPolicy | None = None  # the caller's own, which `configs` only name

    @property
    def most_tokens(self) -> int:
        """The most tokens that the cells of the item can generate."""
        return sum(config.max_paths * config.max_new_tokens for config in self.configs)

    @property
    def shared(self) -> tuple[Any, ...]:
        """What its cells have in common."""
        return self.prompt.id, *_shared(self.configs[0])


def _shared(config: BranchingConfig) -> tuple[Any, ...]:
    return tuple(getattr(config, name) for name in SETTINGS if name not in RESIMULATED)


def items_of(prompts: Sequence[TuningPrompt], grid: Grid) -> list[Item]:
    """All cells of a sweep, first seed first; ConfigError if values contradict each other."""
    varied = {*grid.varied} | ({"seed"} if len(grid.seeds) > 1 else set())
    varied |= {"threshold_unit"} if "entropy_threshold" in varied else set()
    varied |= {*OF_PRESETS} if "preset" in varied else set()
    for prompt in prompts:
        if both := sorted(prompt.decided & varied):
            raise ConfigError(
                f"the prompt {prompt.id} sets {both[0]}, which varies in the sweep; leave it out "
                "of one of them"
            )
    groups: dict[Any, list[BranchingConfig]] = {}
    for config in grid.configs():
        groups.setdefault(_shared(config), []).append(config)
    for group in groups.values():
        group.sort(key=lambda config: config.entropy_threshold)
    return [
        Item(
            prompt,
            tuple(prompt.config(replace(config, seed=seed)) for config in group),
            grid.policies.get(group[0].policy) if "policy" not in prompt.settings else None,
        )
        for seed in grid.seeds
        for prompt in prompts
        for group in groups.values()
    ]


def cell_key(card: ModelCard, prompt: TuningPrompt, config: BranchingConfig) -> str:
    """A hash of everything that determines a cell."""
    settings = {
        name: float(value) if isinstance(SETTINGS[name].values, Real) else value
        for name, value in asdict(config).items()
    }
    # All fields: a value that came from another process is not recognised as a default. And
    # probabilities may be numbers of numpy.
    parts = [structs.asdict(card), prompt, settings]
    text = msgspec.json.encode(parts, order="sorted", enc_hook=float)
    return hashlib.sha256(text).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an item, or of a part of it: of some of its settings."""

    item: Item
    cells: tuple[Cell, ...]
    failures: tuple[str, ...] = ()  # why other cells are missing, and which runs could not be kept
    # the contents of the cells' run files by name, if they are kept
    runs: Mapping[str, bytes] = field(default_factory=dict)


class Executor(Protocol):
    """Where items run: in this process (`InProcess`), or on a Ray cluster (`RayActors`)."""

    @property
    def card(self) -> ModelCard:
        """The card of the model that runs the items."""
        ...

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | None]:
        """Run the items, yielding their outcomes in any order, and often None in between, so that
        the caller can stop.
        """
        ...


@dataclass(frozen=True, slots=True)
class SweepStep:
    """The progress of a sweep, and its new cells."""

    cells: tuple[Cell, ...]  # new cells; in the first step, the cells that were already there
    failures: tuple[str, ...]  # why cells have failed since the last step
    done: int
    failed: int  # failed cells so far
    total: int
    resimulated: int  # how many of `done` were resimulated, without the model
    seconds_left: float | None  # estimated from tokens; None before anything is done


def sweep(
    model: "LanguageModel",
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    *,
    folder: Path | None = None,
    measurement: Measurement | None = None,
    draft: "LanguageModel | None" = None,
    known: Iterable[Cell] = (),
) -> Generator[SweepStep]:
    """Make all cells of a grid with this model, several in each forward pass.

    With a folder, finished cells and a table of them are stored there, and are not made again.
    Without a folder, the cells in `known` are not made again.

    Raises:
        ConfigError: There are no prompts, or values of a combination contradict each other.
        RecordError: The folder cannot be used, or has the cells of another model.
    """
    from eab.labs.tuning.executors import InProcess

    measurement = measurement or Measurement()
    executor = InProcess(model, measurement, draft)
    yield from sweep_with(executor, prompts, grid, folder, measurement, known)


def sweep_with(
    executor: Executor,
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    folder: Path | None,
    measurement: Measurement,
    known: Iterable[Cell] = (),
) -> Generator[SweepStep]:
    """`sweep` with the items run by this executor; `measurement` must be the executor's."""
    if not prompts:
        raise ConfigError("there are no prompts; give at least one")
    items = items_of(prompts, grid)
    if folder is None:
        yield from _steps(executor, items, {cell.key: cell for cell in known})
        return
    with Journal(folder, executor.card, measurement) as journal:
        yield from _steps(executor, items, journal.known, journal)


def _steps(
    executor: Executor,
    items: Sequence[Item],
    known: Mapping[str, Cell],
    journal: Journal | None = None,
) -> Generator[SweepStep]:
    """Make the cells whose keys are not in `known`."""
    left, before = list[Item](), list[Cell]()
    for item in items:
        keys = {config: cell_key(executor.card, item.prompt, config) for config in item.configs}
        before += [known[key] for key in keys.values() if key in known]
        if missing := tuple(config for config, key in keys.items() if key not in known):
            left.append(replace(item, configs=missing))
    start, total = time.monotonic(), sum(len(item.configs) for item in items)
    to_do = sum(item.most_tokens for item in left)
    done = resimulated = failed = tokens = 0

    def step(cells: Sequence[Cell], failures: tuple[str, ...] = ()) -> SweepStep:
        nonlocal done, resimulated
        done += len(cells)
        resimulated += sum(cell.made == "resimulated" for cell in cells)
        spent = time.monotonic() - start
        seconds = spent * (to_do - tokens) / tokens if tokens else None
        return SweepStep(tuple(cells), failures, done, failed, total, resimulated, seconds)

    yield step(before)
    with closing(executor.outcomes(left)) as outcomes:
        for outcome in outcomes:
            if outcome is None:
                yield step(())
                continue
            if journal is not None:
                journal.add(outcome.cells, outcome.runs)
            tokens += outcome.item.most_tokens
            failed += len(outcome.item.configs) - len(outcome.cells)
            yield step(outcome.cells, outcome.failures)


def report_sweep(
    model: "LanguageModel",
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    known: Sequence[Cell] = (),
) -> Iterator[SweepEvent]:
    """Make the cells of a grid that are not known; the sweep ends as `failed` if any cell failed.
    RecordError if the known cells, from a stopped sweep, were made with another model.
    """
    from eab.engine.models.machine import describe_machine

    card, failures = model.card, list[str]()
    for index, step in enumerate(sweep(model, prompts, grid, known=known)):
        if index == 0:
            _check_known(step, known)
            machine, done = describe_machine(card.device), len(step.cells)
            yield sweep_began(card.full_name, card.dtype, machine, plan_of(prompts, grid), done)
        failures += step.failures
        yield from step.cells
        yield Progressed((step.done + step.failed) / step.total, _progress(step))
    if failures:
        words = f"{counted(len(failures), 'cell')} failed; the first: {failures[0]}"
        yield RunEnded(0, "failed", words)
    else:
        yield RunEnded(0, "finished")


def _check_known(first: SweepStep, known: Sequence[Cell]) -> None:
    if first.done < len(known):
        raise RecordError(
            "the cells so far were made with another model or number format than this server's, "
            "or with another memory limit, so the sweep cannot be resumed here. Press Run to make "
            "all cells"
        )


def _progress(step: SweepStep) -> str:
    left = f", about {human_seconds(step.seconds_left)} left" if step.seconds_left else ""
    return f"{step.done:,} of {step.total:,} cells{left}"


# The recorded sweep, and the initial values of the Tune page
RECORDED_SET: Final = "chances"
PILOT_PROMPTS: Final = "stories"  # long texts, so that the threshold affects the number of paths
RECORDED_PROMPTS: Final = 6
THRESHOLD_RANGE: Final = (0.3, 1.2)  # nats
THRESHOLDS: Final = (0.3, 0.48, 0.76, 1.2)  # evenly spaced over the range on a log scale
VARIED: Final[Mapping[str, tuple[Any, ...]]] = {
    "max_paths": (2, 4, 8, 16, 32),
    "branch_factor": (2, 4),
    "policy": ("fair", "independent"),
}
SEEDS: Final = 8
NEW_TOKENS: Final = 12
# Initial values of the controls; such a sweep takes less than 30 seconds on two cores.
START_PROMPTS: Final = 4
START_SEEDS: Final = 6
START_FACTORS: Final = (2,)
POLICIES: Final = ("fair", "best-first", "arithmetic", "stochastic-beam", "beam", "independent")


def recorded_grid() -> Grid:
    """The settings and seeds of the recorded sweep."""
    base = BranchingConfig(max_new_tokens=NEW_TOKENS, min_fork_weight=0.0, kv_limit_mib=1024)
    varied = {"entropy_threshold": THRESHOLDS, **VARIED}
    return Grid(varied, base, tuple(range(1, SEEDS + 1)))


def recorded_prompts() -> tuple[TuningPrompt, ...]:
    """The prompts of the recorded sweep."""
    return some_prompts(RECORDED_SET, RECORDED_PROMPTS)


def policies_grid() -> Grid:
    """The recorded sweep of policies on a chat model; `fair` may fork more than on Explore."""
    base = starting_config(max_new_tokens=20, entropy_threshold=0.3, min_fork_weight=0.0)
    return Grid({"policy": POLICIES, "max_paths": (4, 8, 16, 32)}, base, (1, 2, 3))


def policies_prompts() -> tuple[TuningPrompt, ...]:
    """Every tenth question."""
    return tuple(
        TuningPrompt(f"facts-{number:03d}", question)
        for number, question in enumerate(chat_questions()[2::10], start=1)
    )
