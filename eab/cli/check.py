"""The command `eab check`: assignments of a course that check themselves."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer

import eab
from eab.assets import ASSETS
from eab.errors import AssignmentError
from eab.formatting import as_sentence


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

    from eab.lessons.checks.assignment import hand_in, load, outcome_of

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
    settings = [assignment, eab.__version__, seed]
    shown = f"{assignment}, version {eab.__version__}, seed {seed}"
    print(f"Hand in: eab check {shown}: {hand_in(settings, file, found)}")
    return not any(outcome.fault for outcome in found)
