"""`python -m eab` is the same as `eab`."""

from eab.cli import main

main()
