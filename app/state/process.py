"""The one worker of this server process, and the name under which this tab queues its runs."""

import secrets
from typing import Final, cast

import streamlit as st

from app.server import rules
from app.server.model_cache import ModelCache
from app.server.worker import Worker

WARM_UP_AFTER: Final = 5.0  # seconds; the first page is drawn before torch is imported
_OWNER: Final = "owner"


@st.cache_resource(show_spinner=False)
def worker() -> Worker:
    """The worker that all tabs share."""
    made = Worker(ModelCache(), rules=rules.current())
    made.warm_up("embedded", after=WARM_UP_AFTER)
    return made


def owner() -> str:
    """Who asks, as the rules count visitors: the random name of this tab, or the network address.

    The run queue is fair between owners.
    """
    if rules.current().visitor == "address" and st.context.ip_address:
        return st.context.ip_address
    return cast(str, st.session_state.setdefault(_OWNER, secrets.token_hex(8)))
