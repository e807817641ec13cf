"""Installs requirements.txt for this Python: `make app` and `make test` call it.

On Linux, package indexes usually offer PyTorch's CUDA build, which brings gigabytes of NVIDIA
packages. A machine without an NVIDIA driver cannot use them. So it gets the CPU build if the
configured index offers it; if not, the CUDA build is installed, with a notice. If PyTorch is
already installed at the version in requirements.txt, it is kept.
"""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements.txt"
PIP = [sys.executable, "-m", "pip"]
CPU_NOTICE = "No NVIDIA driver was found: PyTorch's CPU build is installed ({build})."
CUDA_NOTICE = """
No NVIDIA driver was found, but the package index that pip is configured for only offers
PyTorch's CUDA build. It works without a GPU; several gigabytes are downloaded.
To avoid that, press Ctrl-C and install the CPU build of {torch} first:

    {python} -m pip install {torch} --index-url URL

The URL is at https://pytorch.org/get-started/locally/ (choose Linux, Pip, Python, CPU).
Then start this again: it keeps the PyTorch that it finds.
"""


def main() -> None:
    torch = re.search(r"^torch==\S+", REQUIREMENTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert torch is not None, "requirements.txt pins no torch"
    chosen = _cpu_build(torch[0]) if sys.platform == "linux" and not _nvidia_driver() else []
    command = [*PIP, "install", "-r", str(REQUIREMENTS), *chosen]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


def _nvidia_driver() -> bool:
    """Whether an NVIDIA driver is installed, judging by files; also works under WSL."""
    folders = ("/proc/driver/nvidia", "/usr/lib/wsl/lib/nvidia-smi")
    return (
        shutil.which("nvidia-smi") is not None
        or any(Path(path).exists() for path in folders)
        or any(Path("/dev").glob("nvidia*"))
    )


def _cpu_build(torch: str) -> list[str]:
    """The extra requirement for the CPU build; none if it is installed or not offered."""
    if _installed("torch") == torch.removeprefix("torch=="):
        return []
    build = f"{torch}+cpu"
    if _found(build) is not None:
        print(CPU_NOTICE.format(build=build), flush=True)
        return [build]
    if any(name.startswith(("nvidia-", "cuda-")) for name in _found(torch) or ()):
        print(CUDA_NOTICE.format(torch=torch, python=sys.executable), flush=True)
    return []


def _installed(package: str) -> str:
    """The installed version without its build label (`+cpu`); empty if there is none."""
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return ""


def _found(requirement: str) -> list[str] | None:
    """The requirements of the package that pip would install; None if the index lacks it."""
    options = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-"]
    done = subprocess.run(
        [*PIP, "install", *options, requirement], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return None
    [package] = json.loads(done.stdout)["install"]
    return list(package["metadata"].get("requires_dist", []))


if __name__ == "__main__":
    main()
