"""Assignments of a course that check themselves: `eab check policy|cache|drafter|sampler FILE`.

Each module has `NEEDS`, what a student's file defines, and `properties`, what is checked of it.
What they have in common is here: the student's file, properties that are checked on examples, the
smallest example that fails, and a line to hand in.
"""

import hashlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from eab.errors import AssignmentError
from eab.formatting import reason_of

ALARM: Final = 1e-3  # the chance that a statistical check fails a correct solution
_ROUNDS: Final = 100  # of looking for a smaller example
_MODULE: Final = "solution"  # whatever the file is called, even random.py


class Fault(Exception):
    """What is wrong with a solution, as a sentence without a full stop."""


@dataclass(frozen=True)
class Property:
    """Something that holds of every correct solution."""

    name: str
    examples: Sequence[Any]
    check: Callable[[Any], None]  # raises Fault, or whatever the student's code raises
    smaller: Callable[[Any], Iterable[Any]] = lambda _: ()  # simpler examples, the simplest first
    shown: Callable[[Any], str] = str  # an example
    found: Callable[[], str] = lambda: ""  # what was measured on the way


class Outcome(NamedTuple):
    """What the check of a property found; `fault` and `example` are empty if it holds."""

    name: str
    found: str
    fault: str = ""
    example: str = ""


def load(file: Path, needs: Mapping[str, type | None]) -> ModuleType:
    """Run a Python file, and return what it defines.

    Args:
        needs: The names that it must define: classes with their base, functions with None.

    Raises:
        AssignmentError: It cannot be read or run, or lacks one of the names.
    """
    spec = spec_from_file_location(_MODULE, file) if file.is_file() else None
    if spec is None or spec.loader is None:
        raise AssignmentError(f"there is no Python file {file}; --template prints a beginning")
    module = module_from_spec(spec)
    sys.modules[_MODULE] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise AssignmentError(f"{file} does not run: {_reason(error, file)}") from error
    for name, base in needs.items():
        given = getattr(module, name, None)
        if not callable(given) or (base and base not in getattr(given, "__mro__", ())):
            wanted = f"a class {name}({base.__name__})" if base else f"a function {name}"
            raise AssignmentError(f"{file} must define {wanted}; --template prints a beginning")
    return module


def outcome_of(checked: Property, file: Path) -> Outcome:
    """Check a property on its examples. Where it fails, look for the smallest example."""

    def fault(example: Any) -> str:
        try:
            checked.check(example)
        except Fault as found:
            return str(found)
        except (Exception, SystemExit) as error:
            return f"the code fails with {_reason(error, file)}"
        return ""

    example = next(filter(fault, checked.examples), None)
    if example is None:
        return Outcome(checked.name, checked.found())
    for _ in range(_ROUNDS):
        smaller = next(filter(fault, checked.smaller(example)), None)
        if smaller is None:
            break
        example = smaller
    return Outcome(checked.name, "", fault(example), checked.shown(example))


def _reason(error: BaseException, file: Path) -> str:
    """What an error says, and which line of the student's file caused it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    where = f" (line {lines[-1]})" if lines else ""
    return reason_of(error) + where


def hand_in(settings: Sequence[Any], file: Path, found: Sequence[Outcome]) -> str:
    """What to hand in: the result, and hashes of the file and of all together. The same file gives
    the same again.
    """
    passed = [(one.name, not one.fault) for one in found]
    content = hashlib.sha256(file.read_bytes()).hexdigest()
    total = hashlib.sha256(json.dumps([*settings, content, passed]).encode()).hexdigest()
    count = sum(right for _, right in passed)
    return f"{count} of {len(passed)}, file {content[:16]}, result {total[:16]}"
