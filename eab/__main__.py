"""Makes `python -m eab` the same as `eab`."""

from eab.cli.commands import main

main()
