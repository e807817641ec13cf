"""Run files and report files. They are untrusted, so every field is checked on reading."""

from eab.run.record.files import RunFile, save
from eab.run.record.run_file import SUFFIX, VERSION, dumps, is_truncated, load, loads

__all__ = ["SUFFIX", "VERSION", "RunFile", "dumps", "is_truncated", "load", "loads", "save"]
