"""The explorer (`streamlit run app/main.py`): page settings and navigation, nothing else."""

import sys
from pathlib import Path

import streamlit as st

# The folder that contains `app/`: the checkout, or a folder inside the installed package. Streamlit
# adds only the folder of this file to the path. HOME goes first, so that another project's `app` is
# not imported instead.
HOME = str(Path(__file__).resolve().parent.parent)
if HOME not in sys.path:
    sys.path.insert(0, HOME)
from app.server import http  # noqa: E402 - found in a checkout that is not installed, too
from eab.assets import ASSETS  # noqa: E402

ABOUT = """
**EAB Explorer** shows entropy-adaptive branching: a language model writes a text token by token,
and the text branches where the model is unsure of the next token (the entropy is at or above a
threshold). The tree, the entropy trace and the KV cache are three charts of the same run, with one
cursor.

In the prompt, Enter starts the run and Shift+Enter adds a line break. Space plays, and the arrow
keys move the cursor. **Help** above the tree explains the charts and lists all keys.
"""
STATIC = Path(__file__).parent / "widgets" / "static"

# Without an icon here, Streamlit shows the page's icon in the browser tab and fetches it from
# another server. The project's icon is set late, because Streamlit imports numpy for it, which
# would delay the board. In the minimal toolbar, our menu item makes the menu offer the theme, too.
st.set_page_config(
    page_title="EAB Explorer",
    page_icon="🌳",
    layout="wide",
    initial_sidebar_state=260,
    menu_items={"About": ABOUT},
)
# A component, so that the browser fetches Streamlit's script for components, which the board needs
# too, while this process still imports the page.
st.components.v2.component(
    "eab_page",
    css=None if http.is_served else http.style(),
    js=(STATIC / "page.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)(key="eab_page", on_went_back_change=lambda: None)
from app.state import session  # noqa: E402 - only after the style was sent
from app.widgets import classroom, elements, setting_widgets  # noqa: E402

session.forget_fragments()
elements.begin_page()
page = st.navigation(
    [
        st.Page(
            "../pages/explore.py", title="Explore", icon=":material/account_tree:", default=True
        ),
        st.Page("../pages/learn.py", title="Learn", icon=":material/school:"),
        st.Page("../pages/compare.py", title="Compare", icon=":material/difference:"),
        st.Page("../pages/tune.py", title="Tune", icon=":material/tune:"),
        st.Page("../pages/memory.py", title="Memory", icon=":material/memory:"),
        st.Page("../pages/bmc.py", title="BMC", icon=":material/view_week:"),
        st.Page(
            "../pages/speculative.py", title="Speculative decoding", icon=":material/fast_forward:"
        ),
        st.Page("../pages/batching.py", title="Batching", icon=":material/view_timeline:"),
        st.Page("../pages/quantization.py", title="Quantization", icon=":material/compress:"),
        st.Page("../pages/server.py", title="Server", visibility="hidden"),
    ]
)
class_places = classroom.reserve()
with setting_widgets.carried_to(page.url_path):
    page.run()
elements.explain_terms()
st.set_page_config(page_icon=str(ASSETS / "icon.svg"))
# Last, because its board reports at once, and what is not sent by then may be dropped.
classroom.draw(class_places, page.url_path)
