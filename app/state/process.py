"""The one worker of this server process, and the name under which this tab queues its runs."""

import secrets
from typing import Final, cast

import streamlit as st

from app.server import model_cache, rules
from app.server.getting import Getting
from app.server.model_cache import ModelCache
from app.server.worker import Worker
from eab.models.packaged import SMOLLM2

WARM_UP_AFTER: Final = 3.0  # seconds; the first page is drawn before torch is imported
_OWNER: Final = "owner"


@st.cache_resource(show_spinner=False)
def worker() -> Worker:
    """The worker that all tabs share."""
    made, offered = Worker(ModelCache(), rules=rules.current()), rules.current().models
    models = [name for name in model_cache.KEPT if not model_cache.missing(name)]
    made.warm_up([name for name in models if not offered or name in offered], WARM_UP_AFTER)
    return made


@st.cache_resource(show_spinner=False)
def getting() -> Getting:
    """What fetches the chat model for all tabs."""
    return Getting(SMOLLM2, then=lambda: worker().warm_up([SMOLLM2.name], after=0.0))


def owner() -> str:
    """Who asks, as the rules count visitors: the random name of this tab, or the network address.

    The run queue is fair between owners.
    """
    if rules.current().visitor == "address" and st.context.ip_address:
        return st.context.ip_address
    return cast(str, st.session_state.setdefault(_OWNER, secrets.token_hex(8)))
