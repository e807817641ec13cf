"""A widget with a still of itself, for readers without a kernel: a saved notebook, its preview on
GitHub, or a page made from it.

If an output has both a widget and a still, JupyterLab shows only the widget, and "model not found"
if the widget is gone. So the still is an output of its own, before the widget's output. The widget
hides the still while it is alive, and the still hides the error.
"""

from typing import Any, Final
from uuid import uuid4

import ipywidgets as widgets
import traitlets
from IPython.core.getipython import get_ipython
from IPython.display import display

WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_MARK: Final = "data-eab-still"
_IN_JUPYTER: Final = ".jp-OutputArea-child"  # an output; the still is its grandchild
_HIDES_ERROR: Final = (
    f"{_IN_JUPYTER}:has(> * > [{_MARK}]) + {_IN_JUPYTER} > .jupyter-widgets:not(:has(*))"
)


class WithStill(widgets.DOMWidget):  # type: ignore[misc]  # it has no types
    """A widget with a still picture or text for places where the widget cannot be live."""

    hides_still = traitlets.Unicode().tag(sync=True)  # CSS, for a child that the page shows

    def __init__(self, *args: Any, **values: Any) -> None:
        self._still_id = uuid4().hex
        self._displayed = False
        is_it = f'[{_MARK}="{self._still_id}"]'
        style = f"{is_it}, {_IN_JUPYTER}:has(> * > {is_it}) {{ display: none }}"
        super().__init__(*args, hides_still=style, **values)

    def words(self) -> str:
        """The still as text."""
        raise NotImplementedError

    def _still(self) -> str:
        """The still as HTML."""
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        self._publish_still(update=False)
        bundle = self._repr_mimebundle_() or {}
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        display({WIDGET: data[WIDGET]}, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]
        self._displayed = True

    def _publish_still(self, update: bool) -> None:
        """Display the still, or replace it wherever it is already displayed."""
        html = (
            f'<div {_MARK}="{self._still_id}"><style>{_HIDES_ERROR} {{ display: none }}</style>'
            f"{self._still()}<p><em>Run this cell to see it live.</em></p></div>"
        )
        data = {"text/html": html, "text/plain": self.words()}
        display(data, raw=True, display_id=self._still_id, update=update)  # type: ignore[no-untyped-call]

    def _update_still(self) -> None:
        # In a terminal, the update would be printed between the user's lines.
        if self._displayed and hasattr(get_ipython(), "kernel"):
            self._publish_still(update=True)
