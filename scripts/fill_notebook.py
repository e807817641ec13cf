"""Executes `notebooks/explore.ipynb` and keeps its outputs: `make notebook`.

Only text and still pictures are kept, which can be viewed without widgets.
"""

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from eab.share.widget import WIDGET

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "explore.ipynb"


def main() -> None:
    os.environ["PYTHONPATH"] = str(ROOT)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=300,
            store_widget_state=False,
            resources={"metadata": {"path": folder}},
        ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = [one for one in cell.outputs if WIDGET not in one.get("data", {})]
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
