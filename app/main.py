"""The explorer: `streamlit run app/main.py`. Page settings and navigation, nothing else."""

import streamlit as st

from eab.assets import ASSETS

st.set_page_config(page_title="EAB Explorer", layout="wide")
# The picture is the page, not the margin; in the dark, white on the light primary colour cannot be
# read. As a
# component: the browser fetches its script for components, which the board needs too, while this
# process imports the
# page.
st.components.v2.component(
    "eab_style",
    css="""
        .stMainBlockContainer { padding-top: 2rem; }
        button[data-testid='stBaseButton-primary'] p { color: light-dark(#ffffff, #171614); }
    """,
    isolate_styles=False,
)()
from app.state import polling  # noqa: E402 - after the style is on its way

polling.forget_fragments()
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
# Last, since Streamlit imports numpy for it: the picture should not wait.
st.set_page_config(page_icon=str(ASSETS / "icon.svg"))
