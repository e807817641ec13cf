"""What the benchmarks share: their options, the line that says how the figures were measured, and
the files they write.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import transformers

from eab.models.machine import describe_machine


def command_line(description: str | None, quick: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have; `quick` is the help text of `--quick`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", metavar="FILE", help="write seconds and ratios")
    parser.add_argument("--table", metavar="FILE", help="write the Markdown tables here too")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def where(dtype: str) -> str:
    """The machine, the versions, the number format, and the command."""
    command = " ".join([f"python benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return f"{describe_machine()}, transformers {transformers.__version__}, {dtype}. `{command}`"


def publish(options: argparse.Namespace, origin: str, text: str, result: dict[str, Any]) -> None:
    """Print the tables, and write the files that the options name."""
    text = f"{origin}\n\n{text}"
    print(text)
    if options.table:
        Path(options.table).write_text(text, encoding="utf-8")
    if options.json:
        Path(options.json).write_text(
            json.dumps({"machine": origin} | result, indent=2) + "\n", encoding="utf-8"
        )
