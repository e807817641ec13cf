"""The command `eab site`: the explorer as files for any web server."""

from pathlib import Path
from typing import Annotated

import typer

from eab.formatting import human_bytes


def site(
    folder: Annotated[Path, typer.Argument(help="Where to write the files.", metavar="DIR")],
) -> None:
    """Write the explorer as static files, for any web server or to open from the disk."""
    from eab.site.build import write_site  # loads all recordings

    write_site(folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder / 'index.html'} and its pages: {human_bytes(size)}")
