"""The commands of `eab`."""

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from eab import __version__
from eab.analysis.answer_rules import SameAnswer, check_part, exact
from eab.analysis.answers import Answers, group_answers
from eab.cli import options, progress, terminal
from eab.cli.other_commands import check, import_samples, models, open_app, site
from eab.cli.sweep import evaluate, sweep
from eab.config import OF_DISTRIBUTION, SETTINGS, BranchingConfig
from eab.engine.request import Request
from eab.errors import EabError, PromptError, RunsError
from eab.formatting import as_sentence, counted, human_bytes
from eab.labs.tuning.measure import load_rule
from eab.labs.variants import REPEATS, agree, variants_sentence
from eab.run import RunState, fold, record
from eab.run.events import RunEnded
from eab.run.events.chat import parse_messages
from eab.run.record.files import read_text
from eab.run.threshold import longer
from eab.share.exports import save_html

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Entropy-adaptive branching (EAB): a language model continues a prompt as a tree of "
    "texts that forks where the entropy of the next token is high. Each text has a weight, "
    "its share of the probability.",
    epilog="Exit codes: 0 done, 1 an error (explained on stderr), 2 wrong usage, 130 stopped by "
    "Ctrl-C (the result so far is printed and saved).",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"eab {__version__}")
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
    """The options before a command."""


@app.command()
@options.with_settings()
@options.with_model
def run(
    config: BranchingConfig,
    source: options.ModelOptions,
    prompt: options.PromptOrNone = None,
    messages: options.Messages = "",
    draft: options.Draft = "embedded-draft",
    prefix_cache: options.PrefixCache = True,
    json_file: options.JsonFile = "",
    record_file: options.RecordFile = "",
    answers: options.AnswerPart = "",
    same_answer: options.SameAnswer = "exact",
) -> None:
    """Generate from a prompt, branching where the model hesitates."""
    progress.check_writable(json_file, record_file)
    same = _rule(answers, same_answer)  # fails before the run, not after it
    request = _request(prompt, messages, config)
    drafting = progress.load_draft(draft, source) if config.drafter == "model" else None
    language_model = progress.load(source)
    progress.advise(language_model, config)
    progress.note([request])
    with progress.recorded(record_file) as run_file:
        note = run_file.add if run_file is not None else None
        # Only the probe for a rank threshold computes the prompt a second time.
        twice = prefix_cache and config.threshold_unit == "rank"
        prefixes = progress.prefixes_of(language_model, twice)
        state = progress.generate_run(language_model, request, drafting, note, prefixes)
        if json_file != progress.STANDARD_STREAM:
            _print(state.run, answers, same)
        progress.save(_as_json(state.run, answers, same), json_file, run_file)
    _exit_like(state.ended)
    state.started_run().raise_if_failed()


_OF_SCORES = (*OF_DISTRIBUTION, "chat", "system", "chat_template_kwargs", "kv_limit_mib")


@app.command()
@options.with_settings(without=tuple(SETTINGS.keys() - {*_OF_SCORES}))
@options.with_model
def score(
    prompt: options.Prompt,
    texts: Annotated[list[str], typer.Argument(help="What the model might write.")],
    config: BranchingConfig,
    source: options.ModelOptions,
    json_file: options.JsonFile = "",
) -> None:
    """Say how likely the model is to write given texts after a prompt."""
    progress.check_writable(json_file)
    progress.note([request := Request(_text(prompt), config)])
    language_model = progress.load(source)
    from eab.api.scores import scores  # it needs torch
    from eab.engine.scoring import Vocabulary

    found = scores(language_model, request, texts, Vocabulary(language_model))
    if json_file != progress.STANDARD_STREAM:
        Console().print(terminal.scores_summary(found))
    if json_file:
        progress.write_json(terminal.scores_json(found), json_file)


@app.command()
@options.with_settings(without=("cache", "drafter", "draft_length"))
@options.with_model
def compare_caches(
    prompt: options.Prompt,
    config: BranchingConfig,
    source: options.ModelOptions,
    repeats: options.Repeats = REPEATS,
    json_file: options.JsonFile = "",
) -> None:
    """Generate with each KV cache and compare time and bytes; the tokens must be the same."""
    progress.check_writable(json_file)
    progress.note([Request(text := _text(prompt), config)])
    language_model = progress.load(source)
    compared = progress.compare_caches(language_model, text, config, repeats)
    if json_file != progress.STANDARD_STREAM:
        console = Console()
        console.print(terminal.caches_summary(compared, console.width))
    if json_file:
        progress.write_json(terminal.caches_json(compared), json_file)
    _exit_like(compared.ended)
    if not agree(compared):
        raise RunsError(variants_sentence(compared))


@app.command()
def replay(
    file: options.RunFile,
    answers: options.AnswerPart = "",
    same_answer: options.SameAnswer = "exact",
) -> None:
    """Show a recorded run; needs no model."""
    events = record.load(file)
    state = fold(events)
    _print(state, answers, _rule(answers, same_answer))
    if record.is_truncated(events):
        print(f"The file breaks off after {counted(len(state.steps), 'step')}.")


@app.command("continue")
@options.with_model
def go_on(
    file: options.RunFile,
    source: options.ModelOptions,
    text: Annotated[
        int, typer.Option(min=0, help="Continue only the text in this row of the table; 0: all.")
    ] = 0,
    record_file: options.RecordFile = "",
) -> None:
    """Let the texts of a recorded run that were cut at the length limit go on, as long again."""
    from eab.engine.request import continue_from

    progress.check_writable(record_file)
    before = fold(record.load(file))
    started, chosen = before.started, before.samples[max(0, text - 1) : text or None]
    if all(sample.finish_reason != "length" for sample in chosen):
        which = f"text {text}" if text else "every text"
        raise PromptError(f"{which} has ended, or is not there; only cut texts can go on")
    config, taken = (started.config, chosen[0].token_ids) if text else (longer(started), ())
    draft = progress.load_draft("embedded-draft", source) if config.drafter == "model" else None
    model = progress.load(source)
    request = continue_from(model, started, (*started.continued_tokens, *taken), config)
    with progress.recorded(record_file) as run_file:
        note = run_file.add if run_file is not None else None
        prefixes = progress.prefixes_of(model, config.threshold_unit == "rank")
        state = progress.generate_run(model, request, draft, note, prefixes)
        _print(state.run, "", exact)
        progress.save({}, "", run_file)
    _exit_like(state.ended)
    state.started_run().raise_if_failed()


@app.command()
def what_if(
    file: options.RunFile,
    threshold: Annotated[float | None, typer.Option(help="New threshold, in nats.")] = None,
    r: Annotated[int | None, typer.Option(help="New r, see eab run --help.")] = None,
    record_file: options.RecordFile = "",
    answers: options.AnswerPart = "",
    same_answer: options.SameAnswer = "exact",
) -> None:
    """Show a recorded run at another threshold or r and mark what is unknown; needs no model."""
    from eab.engine.what_if.resimulate import resimulate
    from eab.figures.run_comparison import (
        exactness_sentence,
        marks,
        rows_sentence,
        tree_change_sentence,
    )

    progress.check_writable("", record_file)
    events = record.load(file)
    reading = resimulate(events, threshold, r)
    state = fold(reading.events)
    unknown = {(path, number) for path, number, _ in marks(state, reading.unknowns)}
    _print(state, answers, _rule(answers, same_answer), frozenset(unknown))
    sentences = (
        tree_change_sentence(fold(events), state),
        exactness_sentence(state, reading.unknowns),
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
        typer.Option(help="HTML file to write. It replays the run offline and without Python."),
    ],
    live: Annotated[
        bool,
        typer.Option("--live", help="Add the story model, which runs on the page: 10 MB more."),
    ] = False,
) -> None:
    """Export a recorded run as a page for people without this program; needs no model."""
    save_html(record.load(file), html, live)
    size = human_bytes(html.stat().st_size)
    print(f"Wrote {html} ({size}): a page that replays the run in any browser, without a network.")


app.command("import")(import_samples)
app.command("sweep")(sweep)
app.command("check")(check)
app.command("evaluate")(evaluate)


app.add_typer(models, name="models")
app.command("app")(open_app)
app.command("site")(site)


def _text(prompt: str) -> str:
    return sys.stdin.read() if prompt == progress.STANDARD_STREAM else prompt


def _request(prompt: str | None, messages: str, config: BranchingConfig) -> Request:
    if messages and prompt is None:
        return Request("", config, messages=parse_messages(read_text(messages)))
    if prompt is None or messages:
        given = "neither PROMPT nor" if prompt is None else "both PROMPT and"
        raise typer.BadParameter(f"{given} --messages; give one of them")
    return Request(_text(prompt), config)


def _rule(part: str, same_answer: str) -> SameAnswer:
    return load_rule(same_answer) if part and check_part(part) else exact


def _group(state: RunState, part: str, same: SameAnswer) -> Answers | None:
    return group_answers(state, check_part(part), same) if part else None


def _print(
    state: RunState | None,
    answers: str,
    same: SameAnswer,
    unknown: frozenset[terminal.Place] = frozenset(),
) -> None:
    console = Console()
    if state is None:
        console.print("The run has not started.")
        return
    grouped = _group(state, answers, same)
    narrow = console.width < terminal.WIDE
    console.print(terminal.summary(state, narrow=narrow, unknown=unknown))
    if grouped is not None:
        console.print(terminal.answers_summary(state, grouped, narrow=narrow))


def _as_json(state: RunState | None, answers: str, same: SameAnswer) -> dict[str, Any]:
    if state is None:
        return {"samples": []}
    grouped = _group(state, answers, same)
    return terminal.as_json(state) | (
        {} if grouped is None else {"answers": terminal.answers_as_json(state, grouped)}
    )


def _exit_like(ended: RunEnded | None) -> None:
    if ended is not None and ended.stopped:
        raise typer.Exit(progress.STOPPED)


def main() -> None:
    """Run the command line; print errors of this project on stderr and exit with code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack some characters
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
