"""The commands `eab run`, `replay`, `what-if`, `compare-caches`, `export` and `app`."""

import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from eab import record
from eab.analysis.answers import Answers, check_part, group_answers
from eab.cli import files, options, progress, terminal
from eab.cli.app_server import open_app
from eab.config import BranchingConfig
from eab.errors import EabError, SweepError
from eab.events import RunEnded
from eab.figures.captions import sweep_sentence
from eab.formatting import as_sentence, human_bytes
from eab.run import Run, fold
from eab.share.html_page import save_html

STOPPED: Final = 128 + signal.SIGINT  # the exit code after Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Entropy-adaptive branching (EAB): a language model continues a prompt as a tree of "
    "texts, which branches where the entropy of the next token is high. Each text has a weight, "
    "its share of the probability.",
    epilog="Exit codes: 0 done, 1 an error (explained on stderr), 2 wrong usage, 130 stopped by "
    "Ctrl-C (what was generated so far is printed and saved).",
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        number = version("eab-explorer")
    except PackageNotFoundError:
        number = "(not installed)"
    print(f"eab {number}")
    raise typer.Exit()


@app.callback()
def top_level(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """What comes before a command."""


@app.command()
@options.with_settings()
def run(
    prompt: options.Prompt,
    config: BranchingConfig,
    model: options.Model = "embedded",
    draft: options.Draft = "embedded-draft",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    json_file: options.JsonFile = "",
    record_file: options.RecordFile = "",
    answers: options.AnswerPart = "",
) -> None:
    """Generate from a prompt, branching where the model hesitates."""
    files.check_writable(json_file, record_file)
    if answers:
        check_part(answers)  # before the work
    drafting = progress.load(draft, device, dtype) if config.drafter == "model" else None
    language_model = progress.load(model, device, dtype)
    events, state = progress.generate_run(language_model, _text(prompt), config, drafting)
    if json_file != files.STANDARD_OUTPUT:
        _print(state.run, answers)
    files.save(events, _as_json(state.run, answers), json_file, record_file)
    _exit_like(state.ended)
    state.started_run().raise_if_failed()


@app.command()
@options.with_settings(without=("cache", "drafter", "draft_length"))
def compare_caches(
    prompt: options.Prompt,
    config: BranchingConfig,
    model: options.Model = "embedded",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    json_file: options.JsonFile = "",
) -> None:
    """Generate once with each KV cache and compare time and bytes; the tokens must be the same."""
    files.check_writable(json_file)
    language_model = progress.load(model, device, dtype)
    sweep = progress.compare_caches(language_model, _text(prompt), config)
    if json_file != files.STANDARD_OUTPUT:
        Console().print(terminal.sweep_summary(sweep))
    if json_file:
        files.write_json(terminal.sweep_json(sweep), json_file)
    _exit_like(sweep.ended)
    if not sweep.agreed:
        raise SweepError(sweep_sentence(sweep))


@app.command()
def replay(file: options.RunFile, answers: options.AnswerPart = "") -> None:
    """Show a recorded run; needs no model."""
    _print(fold(record.load(file)), answers)


@app.command()
def what_if(
    file: options.RunFile,
    threshold: Annotated[float | None, typer.Option(help="Another threshold, in nats.")] = None,
    r: Annotated[int | None, typer.Option(help="Another r, see eab run --help.")] = None,
    record_file: options.RecordFile = "",
    answers: options.AnswerPart = "",
) -> None:
    """Show a recorded run at another threshold or r, as far as it is known; needs no model."""
    from eab.figures.what_if import exactness_sentence, marks, rows_sentence, tree_change_sentence
    from eab.what_if.resimulate import resimulate

    files.check_writable("", record_file)
    events = record.load(file)
    reading = resimulate(events, threshold, r)
    state = fold(reading.events)
    unknown = {(path, number) for path, number, _ in marks(state, reading.unknowns)}
    _print(state, answers, frozenset(unknown))
    sentences = (
        tree_change_sentence(fold(events), state),
        exactness_sentence(state, reading.unknowns, "run the model"),
        rows_sentence(events, reading.events),
    )
    Console().print(*sentences, markup=False, highlight=False)
    if record_file:
        record.save(reading.events, record_file)


@app.command()
def export(
    file: options.RunFile,
    html: Annotated[
        Path,
        typer.Option(help="The page to write: it replays the run, offline and without Python."),
    ],
) -> None:
    """Turn a recorded run into a page for people without this program; needs no model."""
    save_html(record.load(file), html)
    size = human_bytes(html.stat().st_size)
    print(f"Wrote {html} ({size}): a page that replays the run in any browser, without network.")


app.command("app")(open_app)


def _text(prompt: str) -> str:
    return sys.stdin.read() if prompt == files.STANDARD_OUTPUT else prompt


def _group(state: Run, part: str) -> Answers | None:
    return group_answers(state, part) if part else None


def _print(
    state: Run | None, answers: str, unknown: frozenset[terminal.Place] = frozenset()
) -> None:
    """Print a run; with `unknown` places marked, and with its answers if they are wanted."""
    console = Console()
    if state is None:
        console.print("The run has not started.")
        return
    grouped = _group(state, answers)
    narrow = console.width < terminal.WIDE
    console.print(terminal.summary(state, narrow=narrow, unknown=unknown))
    if grouped is not None:
        policy = state.started.config.policy
        console.print(terminal.answers_summary(grouped, policy, narrow=narrow))


def _as_json(state: Run | None, answers: str) -> dict[str, Any]:
    if state is None:
        return {"samples": []}
    grouped = _group(state, answers)
    return terminal.as_json(state) | (
        {} if grouped is None else {"answers": terminal.answers_as_json(grouped)}
    )


def _exit_like(ended: RunEnded | None) -> None:
    if ended is not None and ended.stopped:
        raise typer.Exit(STOPPED)


def main() -> None:
    """Run the command line: an error of this project is one line on stderr and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not know all signs
    try:
        app()
    except (EabError, OSError) as error:
        Console(stderr=True).print(
            "Error:",
            as_sentence(str(error)),
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        sys.exit(1)
