"""`python -m eab` is the same as `eab`."""

from eab.cli.commands import main

main()
