"""What this server does and allows, for its operator; opened with the key in the rules."""

import pandas as pd
import streamlit as st

from app.server import http, rules
from app.state.session import worker
from eab.formatting import human_bytes


@st.fragment(run_every=2.0)
def now() -> None:
    made = worker()
    columns = st.columns(3)
    columns[0].metric("Running or waiting", made.active)
    columns[1].metric("Waiting for a slot", made.waiting)
    columns[2].metric(
        "KV memory", f"{human_bytes(made.kv_bytes)} of {human_bytes(made.kv_limit_bytes)}"
    )


def allowed() -> None:
    st.header("Rules")
    current = rules.current()
    rows = [
        (
            declared.label,
            "(hidden)" if name == "key" else str(getattr(current, name)),
            declared.help,
        )
        for name, declared in rules.RULES.items()
    ]
    st.table(pd.DataFrame(rows, columns=["Rule", "Value", "Meaning"]).set_index("Rule"))


st.title("What is this server doing?")
if not rules.current().key:
    st.info("This server has no key. Set `key` in the file that EAB_RULES names, and restart it.")
    st.stop()
given = st.text_input("Key", type="password", help="The key from the rules of this server.")
if http.is_key(given):
    import torch

    from eab.engine.models.machine import describe_machine

    st.caption(describe_machine("cuda" if torch.cuda.is_available() else "cpu"))
    now()
    allowed()
elif given:
    st.error("This is not the key of this server. Look it up in the file that EAB_RULES names.")
