"""The worker of this server process, and the name under which this tab queues its runs."""

import secrets
from typing import cast

import streamlit as st

from app.server import model_cache, rules, unfinished
from app.server.model_cache import ModelCache, ModelDownload
from app.server.unfinished import Keeper
from app.server.worker import Worker
from eab.models.packaged import SMOLLM2

_OWNER, CLASS_SCOPE = "owner", "class_scope"


@st.cache_resource(show_spinner=False)
def worker() -> Worker:
    """The worker that all tabs share."""
    allowed = rules.current()
    here = [name for name in model_cache.KEPT if not model_cache.missing(name)]
    offered = [name for name in here if not allowed.models or name in allowed.models]
    models().warm_up(offered)
    made = Worker(models(), rules=allowed)
    if kinds := unfinished.of_this_server():
        Keeper(lambda: made.remembered, kinds)
    return made


@st.cache_resource(show_spinner=False)
def models() -> ModelCache:
    """The loaded models."""
    return ModelCache()


@st.cache_resource(show_spinner=False)
def model_download() -> ModelDownload:
    """The download of the chat model, shared by all tabs."""
    return ModelDownload(SMOLLM2, then=lambda: models().warm_up([SMOLLM2.name]))


def scope() -> str:
    """The scope in which this tab's runs share computed prompts: that of its class, or else its
    owner (see the rule `share_prefixes`).
    """
    return cast(str, st.session_state.get(CLASS_SCOPE, "")) or owner()


def owner() -> str:
    """The visitor, as the rules count them: the random name of this tab, or the network address.
    The run queue is fair between owners.
    """
    allowed, address = rules.current(), st.context.ip_address
    if allowed.visitor == "address" and address:
        return allowed.visitor_at(address)
    return cast(str, st.session_state.setdefault(_OWNER, secrets.token_hex(8)))
