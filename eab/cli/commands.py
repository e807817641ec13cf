"""The same without a browser: `eab run`, `eab replay`, `eab what-if`, `eab compare-caches`, `eab
export`, `eab app`.

Exit codes: 0 done, 1 an error that is explained on stderr, 2 wrong usage, 130 stopped by Ctrl-C
(what was generated so far is still printed and saved).
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from eab import record
from eab.analysis.answers import Answers, check_part, group_answers
from eab.analysis.sweep import Sweep, cache_sweep
from eab.cli import options, terminal
from eab.cli.app_server import open_app
from eab.config import BranchingConfig
from eab.errors import EabError, RecordError, SweepError
from eab.events import Event, RunEnded, RunStarted, StepTimed
from eab.figures.captions import sweep_sentence
from eab.run import Run, RunFold, fold
from eab.share.html_page import save_html

if TYPE_CHECKING:
    from eab.models.huggingface import HuggingFaceModel

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False
)
DEFAULT = BranchingConfig()
RunFile = Annotated[Path, typer.Argument(help="a run file written by --record or by the app")]
STOPPED = 128 + signal.SIGINT
AnswerPart = Annotated[
    str, typer.Option(help="group equal answers: text (all of it), sentence (the first)")
]


@app.command()
def run(
    prompt: options.Prompt,
    model: options.Model = "embedded",
    threshold: options.Threshold = DEFAULT.entropy_threshold,
    unit: options.Unit = DEFAULT.threshold_unit,
    branch_factor: options.BranchFactor = DEFAULT.branch_factor,
    min_fork_weight: options.MinForkWeight = DEFAULT.min_fork_weight,
    max_paths: options.MaxPaths = DEFAULT.max_paths,
    max_new_tokens: options.MaxNewTokens = DEFAULT.max_new_tokens,
    temperature: options.Temperature = DEFAULT.temperature,
    top_k: options.TopK = DEFAULT.top_k,
    top_p: options.TopP = DEFAULT.top_p,
    r: options.R = DEFAULT.r,
    seed: options.Seed = DEFAULT.seed,
    policy: options.Policy = DEFAULT.policy,
    chat: options.Chat = DEFAULT.chat,
    system: options.System = DEFAULT.system,
    kv_limit_mib: options.KvLimitMib = DEFAULT.kv_limit_mib,
    cache: options.Cache = DEFAULT.cache,
    attention: options.Attention = DEFAULT.attention,
    drafter: options.Drafter = DEFAULT.drafter,
    draft_length: options.DraftLength = DEFAULT.draft_length,
    draft: options.Draft = "embedded-draft",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    json_file: Annotated[
        str, typer.Option("--json", help="write the samples as JSON; - for standard output")
    ] = "",
    record_file: Annotated[
        str, typer.Option("--record", help="write the run, for eab replay and the app")
    ] = "",
    answers: AnswerPart = "",
) -> None:
    """Generate from PROMPT, branching where the model hesitates."""
    config = _config(locals())
    _check_writable(json_file, record_file)
    if answers:
        check_part(answers)  # before the work
    guessing = _load(draft, device, dtype) if config.drafter == "model" else None
    events, state = _generate(_load(model, device, dtype), _text(prompt), config, guessing)
    if json_file != "-":
        _print(state.run, answers)
    _save(events, _as_json(state.run, answers), json_file, record_file)
    _exit_like(state.ended)
    state.started_run().raise_if_failed()


@app.command("compare-caches")
def compare_caches(
    prompt: options.Prompt,
    model: options.Model = "embedded",
    threshold: options.Threshold = DEFAULT.entropy_threshold,
    unit: options.Unit = DEFAULT.threshold_unit,
    branch_factor: options.BranchFactor = DEFAULT.branch_factor,
    min_fork_weight: options.MinForkWeight = DEFAULT.min_fork_weight,
    max_paths: options.MaxPaths = DEFAULT.max_paths,
    max_new_tokens: options.MaxNewTokens = DEFAULT.max_new_tokens,
    temperature: options.Temperature = DEFAULT.temperature,
    top_k: options.TopK = DEFAULT.top_k,
    top_p: options.TopP = DEFAULT.top_p,
    r: options.R = DEFAULT.r,
    seed: options.Seed = DEFAULT.seed,
    policy: options.Policy = DEFAULT.policy,
    chat: options.Chat = DEFAULT.chat,
    system: options.System = DEFAULT.system,
    kv_limit_mib: options.KvLimitMib = DEFAULT.kv_limit_mib,
    attention: options.Attention = DEFAULT.attention,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    json_file: Annotated[
        str, typer.Option("--json", help="write the figures as JSON; - for standard output")
    ] = "",
) -> None:
    """Generate from PROMPT once with each KV cache and compare time and bytes; the tokens must be
    the same.
    """
    config = _config(locals())
    _check_writable(json_file)
    sweep = _compare(_load(model, device, dtype), _text(prompt), config)
    if json_file != "-":
        Console().print(terminal.sweep_summary(sweep))
    if json_file:
        _write_json(terminal.sweep_json(sweep), json_file)
    _exit_like(sweep.ended)
    if not sweep.agreed:
        raise SweepError(sweep_sentence(sweep))


@app.command()
def replay(file: RunFile, answers: AnswerPart = "") -> None:
    """Show a recorded run; needs no model."""
    _print(fold(record.load(file)), answers)


@app.command("what-if")
def what_if(
    file: RunFile,
    threshold: Annotated[float | None, typer.Option(help="another threshold, in nats")] = None,
    r: Annotated[int | None, typer.Option(help="another r")] = None,
    record_file: Annotated[
        str, typer.Option("--record", help="write the re-read run as a run file")
    ] = "",
    answers: AnswerPart = "",
) -> None:
    """Show a recorded run as it would be at another threshold or r, as far as its events tell;
    needs no model.
    """
    from eab.figures.what_if import exactness_sentence, rows_sentence, tree_change_sentence
    from eab.what_if.resimulate import resimulate

    _check_writable("", record_file)
    events = record.load(file)
    reading = resimulate(events, threshold, r)
    state = fold(reading.events)
    _print(state, answers)
    exactness = exactness_sentence(state, reading.unknowns, "run the model")
    told = (tree_change_sentence(fold(events), state), exactness)
    Console().print(*told, rows_sentence(events, reading.events), markup=False, highlight=False)
    if record_file:
        record.save(reading.events, record_file)


@app.command()
def export(
    file: RunFile,
    html: Annotated[
        Path, typer.Option(help="one page that replays the run, without network or Python")
    ],
) -> None:
    """Turn a recorded run into a file for people without this program; needs no model."""
    save_html(record.load(file), html)


app.command("app")(open_app)


def _config(given: dict[str, Any]) -> BranchingConfig:
    """The config in a command's options."""
    settings = {
        name: value for name, value in given.items() if name in BranchingConfig.__dataclass_fields__
    }
    return BranchingConfig.from_settings(
        settings | {"entropy_threshold": given["threshold"], "threshold_unit": given["unit"]}
    )


def _text(prompt: str) -> str:
    return sys.stdin.read() if prompt == "-" else prompt


def _load(name: str, device: str, dtype: str) -> "HuggingFaceModel":
    with Console(stderr=True).status(f"Loading {name} ..."):
        from eab.models.loading import load_model

        return load_model(name, device, dtype)


def _generate(
    model: "HuggingFaceModel",
    prompt: str,
    config: BranchingConfig,
    draft: "HuggingFaceModel | None",
) -> tuple[list[Event], RunFold]:
    from eab.engine.loop import generate, stop_when
    from eab.engine.request import Request

    events: list[Event] = []
    state = RunFold()
    with _interrupt_flag() as interrupted, _progress_bar() as bar:
        task = bar.add_task("probing", total=config.max_new_tokens)
        for event in stop_when(generate(model, Request(prompt, config), draft), interrupted.is_set):
            events.append(event)
            state.apply(event)
            if isinstance(event, RunStarted | StepTimed):
                _advance(bar, task, state.run)
    return events, state


def _advance(bar: Progress, task: TaskID, run: Run | None) -> None:
    if run is not None:
        words = f"{len(run.leaves())} paths"
        bar.update(task, completed=len(run.steps), description=words)


def _compare(model: "HuggingFaceModel", prompt: str, config: BranchingConfig) -> Sweep:
    from eab.engine.loop import stop_when
    from eab.engine.request import Request
    from eab.engine.sweeping import run_sweep

    sweep = cache_sweep()
    with _interrupt_flag() as interrupted, _progress_bar() as bar:
        task = bar.add_task("warming up", total=config.max_new_tokens)
        events = run_sweep(model, Request(prompt, config), sweep.variants)
        for event in stop_when(events, interrupted.is_set):
            sweep.apply(event)
            if isinstance(event, RunStarted | StepTimed):
                bar.update(task, completed=sweep.current_step, description=sweep.current)
    return sweep


@contextmanager
def _interrupt_flag() -> Iterator[Flag]:
    """Ctrl-C sets the flag, once; a second one interrupts as usual."""
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


def _progress_bar() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("step {task.completed}/{task.total}"),
    )
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def _group(state: Run, part: str) -> Answers | None:
    return group_answers(state, part) if part else None


def _print(state: Run | None, answers: str) -> None:
    if state is None:
        Console().print("The run has not started.")
        return
    grouped = _group(state, answers)
    console = Console()
    console.print(terminal.summary(state))
    if grouped is not None:
        console.print(terminal.answers_summary(grouped, state.started.config.policy))


def _as_json(state: Run | None, answers: str) -> dict[str, Any]:
    if state is None:
        return {"samples": []}
    grouped = _group(state, answers)
    return terminal.as_json(state) | (
        {} if grouped is None else {"answers": terminal.answers_as_json(grouped)}
    )


def _save(events: list[Event], value: dict[str, Any], json_file: str, record_file: str) -> None:
    """Write what was asked for; one file that cannot be written does not cost the other."""
    problems: list[str] = []
    if record_file:
        with _collecting(problems):
            record.save(events, record_file)
    if json_file:
        with _collecting(problems):
            _write_json(value, json_file)
    if problems:
        raise RecordError("; ".join(problems))


@contextmanager
def _collecting(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except RecordError as error:
        problems.append(str(error))


def _check_writable(json_file: str, record_file: str = "") -> None:
    """Find out before the work, not after it."""
    if record_file == "-":
        raise RecordError("--record needs a file name; only --json can go to standard output")
    for file in (json_file, record_file):
        if file not in ("", "-") and (
            Path(file).is_dir() or (Path(file).exists() and not os.access(file, os.W_OK))
        ):
            raise RecordError(f"{file} cannot be written: it is a folder or read-only")
        folder = Path(file).parent
        if file not in ("", "-") and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise RecordError(
                f"{file} cannot be written: the folder {folder} is missing or read-only"
            )


def _write_json(value: dict[str, Any], file: str) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if file == "-":
        print(text)
        return
    try:
        Path(file).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{file} cannot be written: {error.strerror}") from error


def _exit_like(ended: RunEnded | None) -> None:
    if ended is not None and ended.stopped:
        raise typer.Exit(STOPPED)


def main() -> None:
    """Entry point: errors of this project become one line on stderr and exit code 1."""
    try:
        app()
    except EabError as error:
        Console(stderr=True).print(
            "Error:", str(error), style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)
