"""The command `eab import`: run files from samples that others made."""

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eab.cli import progress
from eab.errors import ConfigError
from eab.figures.captions import file_stem
from eab.formatting import counted
from eab.run import record
from eab.run.record import SUFFIX
from eab.run.record.files import make_folder, save_whole

if TYPE_CHECKING:
    from eab.api.run import Run


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
    from eab.api.imported import runs_from_samples  # it needs torch

    if out.suffix == SUFFIX:
        progress.check_writable("", str(out))
    with closing(runs_from_samples(file, prompt or None, tokenizer or None)) as runs:
        for path, run in _placed(runs, out):
            data = record.dumps(run.events)
            record.loads(data, f"the run for {path}")  # refuses what could not be opened
            save_whole(path, data)
            print(f"Wrote {path}: {_sentence(run)}")


def _placed(runs: "Iterator[Run]", out: Path) -> "Iterator[tuple[Path, Run]]":
    """The file of each run; ConfigError if `out` is one file for several runs."""
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


def _sentence(run: "Run") -> str:
    texts = counted(len(run.leaves()), "text")
    drawn = any(path.limited_steps for path in run.paths)
    limit = ", of which some were drawn and stand for others" if drawn else ""
    return f"{counted(run.started.imported, 'sample')} as a tree of {texts}{limit}."
