"""Runs and reports in files, which are untrusted: every field is checked when they are read.

`run_file` is the format of runs, `event_json` converts events, `report` keeps measurements, and
`whole_file` writes files whole or not at all.
"""

from eab.record.run_file import SUFFIX, VERSION, dumps, load, loads, save

__all__ = ["SUFFIX", "VERSION", "dumps", "load", "loads", "save"]
