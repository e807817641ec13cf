"""One report about a CUDA GPU: the GPU tests, and every benchmark that runs on it.

    python scripts/gpu_report.py [PART ...] [--quick] [--out FOLDER]

Writes gpu-report.md and gpu-report.json to the folder, by default docs/. Each part runs in its own
process. If one fails or takes too long, the report shows the end of its output, and the next part
runs. The report is written after each part; parts that are not named keep their earlier results.
Nothing else should run on the machine. `--device cpu` tries out the report itself.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import torch
import transformers
from rich.console import Console

ROOT: Final = Path(__file__).resolve().parents[1]
GIB: Final = 2**30
OUTPUT_ENDS: Final = 1500  # characters at each end of the output of a part that failed
console = Console(stderr=True)


@dataclass(frozen=True)
class Part:
    question: str
    # arguments of `python`; fills in `{device}`, `{dtype}` and `{seconds}`, 2/3 of the limit
    command: tuple[str, ...]
    memory_gib: float = 0  # needed on the device for 16-bit weights
    quick: bool = True  # the command takes --quick


@dataclass
class Outcome:
    command: str  # as executed
    status: str  # `done`, `failed`, `too long` or `left out`
    seconds: float
    words: str  # tables, or the end of the output
    result: dict[str, Any] = field(default_factory=dict)  # its figures


def _benchmark(name: str, *options: str) -> tuple[str, ...]:
    return (f"benchmarks/{name}.py", "--device", "{device}", "--dtype", "{dtype}", *options)


def _engine(shape: str) -> tuple[str, ...]:
    return _benchmark("engine", "--shape", shape, "--seconds", "{seconds}")


PARTS: Final[Mapping[str, Part]] = {
    "tests": Part(
        "Does a GPU compute what a CPU computes?",
        ("-m", "pytest", "tests/test_gpu.py", "-q"),
        quick=False,
    ),
    "engine-embedded": Part("How fast is the bundled model?", _engine("embedded")),
    "engine-135m": Part("And a model of 135 million parameters?", _engine("135m")),
    "engine-0.5b": Part("And one of half a billion?", _engine("0.5b")),
    "engine-8b": Part("And one of 8 billion?", _engine("8b"), memory_gib=20),
    "bmc": Part("What do spare rows save?", _benchmark("bmc")),
    "speculative": Part("What does speculative decoding save?", _benchmark("speculative")),
    "serving": Part("What does continuous batching save?", _benchmark("serving")),
    "quantization": Part("What do fewer bits cost and save?", _benchmark("quantization")),
}


def run_part(part: Part, options: argparse.Namespace) -> Outcome:
    filled_in = vars(options) | {"seconds": f"{options.limit * 2 / 3:.0f}"}
    words = [word.format(**filled_in) for word in part.command]
    words += ["--quick"] if options.quick and part.quick else []
    shown = " ".join(["python", *words])
    needed = part.memory_gib * getattr(torch, options.dtype).itemsize / 2
    if (held := _device_gib(options.device)) < needed:
        reason = f"It needs {needed:.1f} GiB, and the device has {held:.1f}.\n"
        return Outcome(shown, "left out", 0.0, reason)
    with tempfile.TemporaryDirectory() as folder:
        files = {kind: Path(folder, kind) for kind in ("json", "table", "junitxml")}
        wanted = ["junitxml"] if "pytest" in words else ["json", "table"]
        started = time.monotonic()
        status, output_tail = _run(
            [*words, *(f"--{kind}={files[kind]}" for kind in wanted)], options
        )
        seconds = time.monotonic() - started
        if wanted == ["junitxml"] and files["junitxml"].exists():
            result = count_tests(files["junitxml"])
            status = status if result["passed"] or status != "done" else "left out"
            return Outcome(shown, status, seconds, tests_sentence(result), result)
        if status != "done":
            return Outcome(shown, status, seconds, output_tail)
        result = json.loads(files["json"].read_text(encoding="utf-8"))
        return Outcome(shown, status, seconds, files["table"].read_text(encoding="utf-8"), result)


def _run(words: Sequence[str], options: argparse.Namespace) -> tuple[str, str]:
    command = [sys.executable, *words]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=output, stderr=output, timeout=options.limit
            )
            status = "done" if done.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            status = "too long"
        output.seek(0)
        return status, f"```text\n{both_ends(without_paths(output.read()).strip())}\n```\n"


def both_ends(words: str) -> str:
    """A long text without its middle; an error is named at its start or at its end."""
    if len(words) <= 2 * OUTPUT_ENDS:
        return words
    return f"{words[:OUTPUT_ENDS]}\n...\n{words[-OUTPUT_ENDS:]}"


def without_paths(words: str) -> str:
    """The text without this machine's folders, which do not belong in a published report."""
    for folder in (ROOT, sys.prefix, sys.base_prefix, tempfile.gettempdir(), Path.home()):
        words = words.replace(str(folder), "...")
    return words


def count_tests(file: Path) -> dict[str, Any]:
    """The numbers of tests passed and skipped, and the failed tests with their messages."""
    cases = [*ElementTree.parse(file).getroot().iter("testcase")]
    failed = {
        f"{case.get('classname')}::{case.get('name')}": both_ends(
            without_paths(reason.get("message", ""))
        )
        for case in cases
        for reason in (*case.iter("failure"), *case.iter("error"))
    }
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - skipped - len(failed), "skipped": skipped, "failed": failed}


def tests_sentence(counted: Mapping[str, Any]) -> str:
    """The numbers as a sentence, followed by the messages of failed tests."""
    words = f"{counted['passed']} passed, {counted['skipped']} skipped, {len(counted['failed'])} failed."
    failed = [f"{name}\n{message}\n" for name, message in counted["failed"].items()]
    return "\n".join([words, *(["", "```text", *failed, "```"] if failed else [])]) + "\n"


def _device_gib(device: str) -> float:
    if device != "cuda":
        return float("inf")
    # mem_get_info would create a context, which takes memory from the parts.
    return float(torch.cuda.get_device_properties(0).total_memory) / GIB


def describe(options: argparse.Namespace) -> dict[str, str]:
    device = options.device
    versions = {
        "dtype": options.dtype,
        "rounds": "few (--quick)" if options.quick else "all",
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "commit": _first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
    }
    if device != "cuda":
        return {"device": "cpu"} | versions
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "memory": f"{_device_gib(device):.0f} GiB",
        "compute capability": f"{properties.major}.{properties.minor}",
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "CUDA": str(torch.version.cuda),
    } | versions


def _first_line(*command: str) -> str:
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.strip().partition("\n")[0]


def markdown(machine: Mapping[str, str], outcomes: Mapping[str, Outcome]) -> str:
    lines = ["# GPU report", "", "Written by `python scripts/gpu_report.py`.", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in machine.items())]
    lines += ["", "| part | question | outcome | minutes |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {PARTS[name].question} | {outcome.status} | {outcome.seconds / 60:.1f} |"
        for name, outcome in outcomes.items()
    ]
    for name, outcome in outcomes.items():
        lines += ["", f"## {name}", "", f"`{outcome.command}`", "", outcome.words.rstrip()]
    return "\n".join(lines) + "\n"


def earlier(file: Path, machine: Mapping[str, str]) -> dict[str, Outcome]:
    """The parts of an earlier report on the same device, versions and commit."""
    if not file.exists():
        return {}
    held = json.loads(file.read_text(encoding="utf-8"))
    if held["machine"] != machine:
        console.print(
            f"{file.name} is of another device, version, commit, dtype or number of rounds; it is replaced"
        )
        return {}
    return {name: Outcome(**one) for name, one in held["parts"].items() if name in PARTS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a part failed or took too long."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"by default all: {', '.join(PARTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, too few to compare")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", metavar="FOLDER")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--limit", type=float, default=1800, help="seconds for each part")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            f"PyTorch {torch.__version__} finds no CUDA device. docs/install.md says how to install "
            "PyTorch for CUDA; --device cpu tries the report itself"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    machine = describe(options)
    outcomes = earlier(options.out / "gpu-report.json", machine)
    for name in options.parts or PARTS:
        console.print(f"{name} ...")
        outcomes[name] = run_part(PARTS[name], options)
        console.print(f"{name}: {outcomes[name].status}")
        write(options.out, machine, {part: outcomes[part] for part in PARTS if part in outcomes})
    return int(any(outcome.status in ("failed", "too long") for outcome in outcomes.values()))


def write(folder: Path, machine: Mapping[str, str], outcomes: Mapping[str, Outcome]) -> None:
    held = {"machine": machine, "parts": {name: asdict(one) for name, one in outcomes.items()}}
    (folder / "gpu-report.json").write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
    (folder / "gpu-report.md").write_text(markdown(machine, outcomes), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
