"""The machine on which figures were measured, in one line."""

import os
import platform
from pathlib import Path

import torch

from eab.formatting import counted


def describe_machine() -> str:
    """Processor or GPU, threads, and the version of PyTorch."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    threads, cores = (
        counted(torch.get_num_threads(), "thread"),
        counted(os.cpu_count() or 1, "core"),
    )
    return f"{name}, {threads} on {cores}, torch {torch.__version__}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def free_memory() -> int:
    """Bytes of memory that are free now; 0 if the system does not say."""
    return _memory("SC_AVPHYS_PAGES")


def total_memory() -> int:
    """Bytes of memory of this machine; 0 if the system does not say."""
    return _memory("SC_PHYS_PAGES")


def _memory(pages: str) -> int:
    try:
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
