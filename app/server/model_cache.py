"""Loaded models, shared by all sessions. Each is loaded once; a slow one keeps only those waiting
who want it.
"""

import gc
import os
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from eab.assets import ASSETS

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

EMBEDDED: Final = "embedded"
DRAFT: Final = "embedded-draft"  # guesses for it
KEPT: Final = 2  # besides the embedded ones


class ModelCache:
    """`get(name)` loads a model or finds it loaded; the longest unused ones go when there are too
    many.
    """

    def __init__(self, load: "Callable[[str], LanguageModel] | None" = None) -> None:
        self._load = load or _load
        self._books = threading.Lock()
        self._models: OrderedDict[str, LanguageModel] = OrderedDict()
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def get(self, name: str) -> "LanguageModel":
        """The model; ModelError if it cannot be loaded (then the others stay)."""
        with self._books:
            one_at_a_time = self._loading[name]
        with one_at_a_time:
            with self._books:
                if name in self._models:
                    self._models.move_to_end(name)
                    return self._models[name]
            model = self._load(name)
            gc.collect()
            gc.freeze()  # torch's modules need no further look by the collector
            with self._books:
                self._models[name] = model
                others = [known for known in self._models if known not in (EMBEDDED, DRAFT)]
                for known in others[: max(0, len(others) - KEPT)]:
                    del self._models[known]
            return model


def missing(name: str) -> str:
    """Why no run can be started with this model, as far as can be told without loading it; empty if
    it can.
    """
    if name == EMBEDDED and not (ASSETS / "model" / "model.safetensors").is_file():
        return "the embedded model is not on this machine (assets/model is incomplete)"
    return ""


def _load(name: str) -> "LanguageModel":
    import torch

    from eab.models.loading import load_model

    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))  # leave a core to the page
    return load_model(name)
