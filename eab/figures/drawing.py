"""plotly, which draws the charts, or an error that says how to get it: the app's extra has it."""

# Plotly uses numpy and pandas where it finds them loaded, also when another thread has loaded only
# a part of them. Importing them waits for that thread.
import numpy as np  # noqa: F401
import pandas as pd  # noqa: F401

from eab.errors import need

need("app", "plotly")
import plotly.graph_objects as go  # noqa: E402
from plotly.subplots import make_subplots  # noqa: E402

__all__ = ["go", "make_subplots"]
