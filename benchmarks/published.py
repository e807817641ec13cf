"""What the benchmarks share: options, the line that says how the figures were measured, tables, and
output files. The alternatives of a benchmark take turns (eab.timing).
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # for app, scripts and raw_session

import torch  # noqa: E402
import transformers  # noqa: E402

from eab.engine.models.machine import describe_machine  # noqa: E402
from eab.timing import (  # noqa: E402
    Clock,
    Timing,
    with_spread,
)


def command_line(description: str | None, quick: str) -> argparse.ArgumentParser:
    """A parser with the options common to all benchmarks; `quick` is the help text of `--quick`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", metavar="FILE", help="write seconds and ratios")
    parser.add_argument("--table", metavar="FILE", help="write the Markdown tables here too")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def offer_device(parser: argparse.ArgumentParser) -> None:
    """Add the options that `Placement.of` reads."""
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])


@dataclass(frozen=True)
class Placement:
    """The device and the number format of the models in a benchmark."""

    device: str
    dtype: torch.dtype

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        return cls(options.device, getattr(torch, options.dtype))

    @property
    def dtype_name(self) -> str:
        """The name of the dtype for `load_model`."""
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        return f"{self.dtype_name} on {self.device}"


def clocked(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Clock]:
    """The options, with one for the clock, and that clock; sets the threads. Exits with a message if
    the clock does not fit the threads.
    """
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="measure the time of the processor, not of the clock; for --threads 1 on a machine "
        "that does other work, too",
    )
    options = parser.parse_args()
    if options.processor_time and options.threads != 1:
        parser.error("--processor-time adds up the threads; use it with --threads 1")
    torch.set_num_threads(options.threads)
    return options, time.process_time if options.processor_time else time.perf_counter


def where(dtype: str, device: str = "cpu") -> str:
    """The machine, versions, number format, and the command without the names of output files."""
    options = re.sub(r" --(json|table)[= ]\S+", "", " ".join(["", *sys.argv[1:]]))
    command = f"python benchmarks/{Path(sys.argv[0]).name}{options}"
    return (
        f"{describe_machine(device)}, transformers {transformers.__version__}, {dtype}. `{command}`"
    )


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]]) + "\n"


def spread(timing: Timing, digits: int = 2, scale: float = 1.0) -> str:
    """The median with its quartiles, both multiplied by `scale`."""
    return with_spread(timing, lambda value: f"{scale * value:.{digits}f}")


def mib(count: int | None) -> str:
    """A number of bytes in MiB, or a dash."""
    return "-" if count is None else f"{count / 2**20:.1f} MiB"


def ratio_lines(ratios: Mapping[str, float]) -> str:
    return "\n".join(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()) + "\n"


def seconds_of(timings: Mapping[str, Timing]) -> dict[str, tuple[float, ...]]:
    """The repeats of each timing, for a JSON file."""
    return {name: timing.seconds for name, timing in timings.items()}


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
