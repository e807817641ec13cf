"""plotly, which draws the charts; if it is missing, the error names the extra that has it."""

# Plotly uses numpy and pandas if it finds them loaded, even if another thread is still loading
# them. Importing them here waits until they are complete.
import numpy as np  # noqa: F401
import pandas as pd  # noqa: F401

from eab.errors import need

need("app", "plotly")
import plotly.graph_objects as go  # noqa: E402
from plotly.subplots import make_subplots  # noqa: E402

__all__ = ["go", "make_subplots"]
