"""Finds a model by name, on this machine or on a server: `llama.cpp:NAME` and `vllm:NAME`.

NAME is one that `eab.models.loading` accepts, because the tokenizer and the configuration are read
on this machine: `embedded`, a folder, or a Hub id. For vLLM it is also the model's name there.
"""

import os
import re
from typing import Final

from eab.errors import ModelError
from eab.formatting import quoted
from eab.models import loading
from eab.models.base import LanguageModel
from eab.models.ollama import PREFIX as OLLAMA
from eab.models.sources import EMBEDDED
from eab.remote.checks import harmless_token
from eab.remote.connection import SECONDS, Connection
from eab.remote.dialect import Dialect
from eab.remote.llama_cpp import LlamaCpp
from eab.remote.model import RemoteModel
from eab.remote.operator import DIALECTS, configured_address
from eab.remote.vllm import Vllm
from eab.weight_formats import AS_LOADED, AUTO

_PREFIX: Final = re.compile(r"([A-Za-z][\w.+-]+):(.*)", re.DOTALL)  # one letter: a Windows drive


def load_model(
    name: str = EMBEDDED,
    device: str = AUTO,
    dtype: str = AUTO,
    weights: str = AS_LOADED,
    layout: str = AUTO,
) -> LanguageModel:
    """Load a model and its tokenizer, or connect to the server that runs it.

    Args:
        name: As in `eab.models.loading.load_model`, or with `llama.cpp:` or `vllm:` before it.
        device, dtype, weights, layout: As there; a server decides them itself.

    Raises:
        ModelError: Says what is missing.
    """
    is_local = os.path.exists(os.path.expanduser(name)) or name.startswith(OLLAMA)
    match = None if is_local else _PREFIX.fullmatch(name)
    if match is None:
        return loading.load_model(name, device, dtype, weights, layout)
    if match[1] not in DIALECTS:
        raise ModelError(
            f"there is no kind of server {quoted(match[1])}. Give llama.cpp: or vllm: and the "
            "name of a model. The server must accept prompts as token ids and return the "
            "log-probabilities of the most likely tokens. EAB_REMOTE sets its address"
        )
    if (device, dtype, weights, layout) != (AUTO, AUTO, AS_LOADED, AUTO):
        raise ModelError(
            f"{quoted(name)} runs on a server, which has its own device and number formats; "
            "leave out device, dtype, weights and layout"
        )
    return connect(match[1], match[2])


def connect(dialect: str, name: str, seconds: float = SECONDS) -> RemoteModel:
    """Connect to the server that the operator has set, and check what it can do. ModelError if
    something is missing.
    """
    address = configured_address()
    tokenizer, config, generation = loading.load_tokenizer(name)
    connection = Connection(address, seconds)
    server: Dialect = (
        Vllm(connection, name)
        if dialect == Vllm.name
        else LlamaCpp(connection, harmless_token(tokenizer))
    )
    try:
        return RemoteModel(server, connection, name, tokenizer, config, generation)
    except BaseException:
        connection.close()
        raise
