"""The explorer: `streamlit run app/main.py`. Page settings and navigation, nothing else."""

import sys
from pathlib import Path

import streamlit as st

# The folder of `app/`: it is the checkout, or a folder inside the installed package. Streamlit adds
# only the folder of this file to the path. It comes first, so that another project's `app` is not
# taken for ours.
HOME = str(Path(__file__).resolve().parent.parent)
if HOME not in sys.path:
    sys.path.insert(0, HOME)
from eab.assets import ASSETS  # noqa: E402 - found in a checkout that is not installed, too

st.set_page_config(page_title="EAB Explorer", layout="wide")
# Less margin above the board. In the dark theme, white text on the light primary colour is too
# faint. The style is sent as a component: the browser then already fetches Streamlit's script for
# components, which the board needs too, while this process imports the page.
st.components.v2.component(
    "eab_style",
    css="""
        .stMainBlockContainer { padding-top: 2rem; }
        button[data-testid='stBaseButton-primary'] p { color: light-dark(#ffffff, #171614); }
    """,
    isolate_styles=False,
)()
from app.state import tab  # noqa: E402 - only after the style was sent

tab.forget_what_polls()
st.navigation(
    [
        st.Page(
            "../pages/explore.py", title="Explore", icon=":material/account_tree:", default=True
        ),
        st.Page("../pages/compare.py", title="Compare", icon=":material/difference:"),
        st.Page("../pages/memory.py", title="Memory", icon=":material/memory:"),
        st.Page("../pages/bmc.py", title="BMC", icon=":material/view_week:"),
        st.Page(
            "../pages/speculative.py", title="Speculative decoding", icon=":material/fast_forward:"
        ),
    ]
).run()
# Last: Streamlit imports numpy for the icon, and the board should not wait for that.
st.set_page_config(page_icon=str(ASSETS / "icon.svg"))
