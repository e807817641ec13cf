"""The explorer: `streamlit run app/main.py`. Page settings and navigation, nothing else."""

import streamlit as st

st.set_page_config(page_title="EAB Explorer", page_icon=":material/account_tree:", layout="wide")
st.navigation(
    [
        st.Page("../pages/explore.py", title="Explore", icon=":material/account_tree:", default=True),
    ]
).run()
