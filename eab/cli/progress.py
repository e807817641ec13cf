"""Generate with a progress bar on stderr; Ctrl-C stops after the step and keeps the result. Output
files are checked before the work, and written after it.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from eab.cli.options import ModelOptions
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import RecordError, RunsError
from eab.formatting import counted
from eab.labs.measurement import Report
from eab.labs.variants import cache_variants
from eab.run import RunFold, record
from eab.run.events import Event, Progressed, RunStarted, StepTimed
from eab.run.events.chat import notices
from eab.run.record.files import STANDARD_STREAM as STANDARD_STREAM
from eab.run.record.files import save_whole

if TYPE_CHECKING:
    from eab.engine.caches.prefix_cache import PrefixCache
    from eab.engine.models.base import LanguageModel


STOPPED: Final = 128 + signal.SIGINT  # the exit code after Ctrl-C


def load(source: ModelOptions) -> "LanguageModel":
    """Load a model while showing a status message."""
    with Console(stderr=True).status(f"Loading {source.model} ..."):
        from eab.engine.remote.model import load_model

        return load_model(source.model, source.device, source.dtype, source.weights, source.layout)


def advise(model: "LanguageModel", config: BranchingConfig) -> None:
    """Print the model's recommended settings if the given settings leave them open."""
    from eab.engine.models.configuration import advice

    if words := advice(model, config):
        Console(stderr=True).print(words, style="dim", markup=False, highlight=False)


def note(requests: Iterable[Request]) -> None:
    """Print what the prompts of these requests may not be meant to have."""
    each = (notices(request.messages or request.prompt) for request in requests)
    for words, count in Counter(chain.from_iterable(each)).items():
        many = f" ({count} prompts)" if count > 1 else ""
        Console(stderr=True).print(
            words + many, style="dim", markup=False, highlight=False, soft_wrap=True
        )


def prefixes_of(model: "LanguageModel", wanted: bool) -> "PrefixCache | None":
    """A new prefix cache for a command, if wanted."""
    from eab.engine.caches.prefix_cache import prefix_cache

    return prefix_cache(model.kv_shape) if wanted else None


def load_draft(name: str, source: ModelOptions) -> "LanguageModel":
    """Load a draft model with the options of the model that it drafts for."""
    return load(replace(source, model=name))


def generate_run(
    model: "LanguageModel",
    request: Request,
    draft: "LanguageModel | None",
    note: Callable[[Event], None] | None,
    prefixes: "PrefixCache | None",
) -> RunFold:
    """Generate a run and fold its events; `note` gets each event as it happens."""
    from eab.engine.loop import event_stream

    state = RunFold()
    with interrupt_flag() as interrupted, progress_bar() as bar:
        task = bar.add_task("probing", total=request.config.max_new_tokens)
        for event in event_stream(model, request, draft, interrupted.is_set, prefixes):
            if note is not None:
                note(event)
            state.apply(event)
            if state.run is not None and isinstance(event, RunStarted | StepTimed):
                paths = counted(len(state.run.leaves()), "path")
                done = round(state.progress.share * request.config.max_new_tokens)
                bar.update(task, completed=done, description=paths)
    return state


def compare_caches(
    model: "LanguageModel", prompt: str, config: BranchingConfig, repeats: int
) -> Report:
    """Make the same run with each cache, then repeat them in alternation to measure times."""
    from eab.engine.loop import stop_when
    from eab.labs.measure_runs import run_variants

    report, request = Report(), Request(prompt, config)
    events = run_variants(model, request, "caches", cache_variants(), repeats=repeats)
    with interrupt_flag() as interrupted, progress_bar("percent") as bar:
        task = bar.add_task("caches", total=100)
        for event in stop_when(events, interrupted.is_set):
            report.apply(event)
            if isinstance(event, Progressed):
                bar.update(task, completed=round(100 * event.share), description=event.words)
    return report


def end_with(failures: str, stopped: str) -> None:
    """After Ctrl-C, print what is left and exit; otherwise raise RunsError if anything failed."""
    if stopped:
        text = f"{failures}\n{stopped}" if failures else stopped
        Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(STOPPED)
    if failures:
        raise RunsError(f"{failures}\n  Repeat the command to try them again")


@contextmanager
def interrupt_flag() -> Iterator[Flag]:
    """A flag that the first Ctrl-C sets; a second one interrupts as usual."""
    flag = Flag()
    before = signal.getsignal(signal.SIGINT)

    def on_interrupt(*_: Any) -> None:
        flag.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)


def progress_bar(unit: str = "step") -> Progress:
    """A bar on stderr that disappears when done; none if stderr is not a terminal."""
    console = bar_console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{unit} {{task.completed}}/{{task.total}}"),
    )
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=console.quiet,
    )


def bar_console() -> Console:
    """Stderr for a progress bar, silent if it is not a terminal, because disabled bars of rich
    before 14.3 still print an empty line."""
    console = Console(stderr=True)
    console.quiet = not console.is_terminal
    return console


def check_writable(json_file: str, record_file: str = "") -> None:
    """Check, before the work, that its results can be written; RecordError if not."""
    if record_file == STANDARD_STREAM:
        raise RecordError("--record needs a file name; only --json can write to standard output")
    for name in (json_file, record_file):
        if name in ("", STANDARD_STREAM):
            continue
        file, folder = Path(name), Path(name).parent
        if os.path.isdir(file) or (os.path.exists(file) and not os.access(file, os.W_OK)):
            raise RecordError(f"{name} cannot be written: it is a folder or read-only")
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise RecordError(
                f"{name} cannot be written: the folder {folder} is missing or read-only"
            )


@contextmanager
def recorded(record_file: str) -> Iterator[record.RunFile | None]:
    """A run file to write during a run, or None without a name; it remains if the run breaks."""
    file = record.RunFile(record_file) if record_file else None
    try:
        yield file
    finally:
        if file is not None:
            file.abandon()


def save(value: dict[str, Any], json_file: str, run_file: record.RunFile | None) -> None:
    """Complete the run file and write JSON, if requested; RecordError only after trying both."""
    problems: list[str] = []
    if run_file is not None:
        with _collecting(problems):
            run_file.close()
    if json_file:
        with _collecting(problems):
            write_json(value, json_file)
    if problems:
        raise RecordError("; ".join(problems))


def write_json(value: dict[str, Any], file: str) -> None:
    """Write a value as JSON, to standard output if the file is `-`."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if file == STANDARD_STREAM:
        print(text)
        return
    save_whole(file, f"{text}\n".encode())


@contextmanager
def _collecting(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except RecordError as error:
        problems.append(str(error))
