"""Runs and reports in files, which are untrusted: every field is checked when they are read."""

from eab.record.growing_file import RunFile
from eab.record.run_file import SUFFIX, VERSION, breaks_off, dumps, load, loads, save

__all__ = ["SUFFIX", "VERSION", "RunFile", "breaks_off", "dumps", "load", "loads", "save"]
