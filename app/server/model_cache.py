"""Loaded models, shared by all sessions.

Each model is loaded once per weight format; a slow load blocks only the sessions that need the same
model. Names are those of `eab.engine.models.loading`, followed by the format: `embedded@int8` (see
`eab.weight_formats.full_name`).

A packaged model is downloaded in its own thread, once, when a visitor asks for it.
"""

import ctypes
import gc
import math
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from app.server import rules
from eab.assets import ASSETS
from eab.engine.models import packaged
from eab.engine.models.packaged import PACKAGED, SMOLLM2, PackagedModel
from eab.errors import LimitError
from eab.weight_formats import split_name

if TYPE_CHECKING:
    from eab.engine.models.base import LanguageModel


EMBEDDED: Final = "embedded"
DRAFT: Final = "embedded-draft"  # the draft model of the embedded model
KEPT: Final = (SMOLLM2.name, EMBEDDED)  # loaded in advance, and never dropped
FREE: Final = 2**30  # bytes; the chat model needs about 800 MiB, with torch
IDLE: Final = 1.0  # seconds in which an idle process computes at most this share of the time:
IDLE_SHARE: Final = 0.05
MAX_OTHERS: Final = 2  # models besides those and the draft model


class ModelCache:
    """Loads models by name, and drops the least recently used ones if there are too many."""

    def __init__(self, load: "Callable[[str], LanguageModel] | None" = None) -> None:
        self._load = load or _load
        self._lock = threading.Lock()
        self._models: OrderedDict[str, LanguageModel] = OrderedDict()
        self._loading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def get(self, name: str) -> "LanguageModel":
        """The model of this name, loaded if necessary. Raises ModelError if that fails."""
        with self._lock:
            one_at_a_time = self._loading[name]
        with one_at_a_time:
            with self._lock:
                if name in self._models:
                    self._models.move_to_end(name)
                    return self._models[name]
            model = self._load(name)
            gc.collect()
            gc.freeze()  # the garbage collector can skip torch's modules from now on
            with self._lock:
                self._models[name] = model
                others = [known for known in self._models if known not in (*KEPT, DRAFT)]
                for known in others[: max(0, len(others) - MAX_OTHERS)]:
                    del self._models[known]
            return model

    def warm_up(self, names: Sequence[str]) -> None:
        """Load models in the background, so that the first run need not wait: as soon as this
        process is idle, because the first page is drawn, and while there is enough free memory.
        """
        threading.Thread(target=self._warm_up, args=(names,), daemon=True).start()

    def _warm_up(self, names: Sequence[str]) -> None:
        used, before = time.process_time(), -math.inf
        while used - before > IDLE_SHARE * IDLE:
            time.sleep(IDLE)
            used, before = time.process_time(), used
        from eab.engine.models.machine import free_memory

        for name in names:
            if free_memory() < FREE:
                return
            with suppress(Exception):  # the next run reports the error
                self.get(name)

    def peek(self, name: str) -> "LanguageModel | None":
        """The model of this name; None if it is not loaded."""
        with self._lock:
            return self._models.get(name)


def recommended(name: str, model: "LanguageModel | None") -> dict[str, float]:
    """The sampling settings that a model recommends, as far as known without loading it."""
    known = PACKAGED.get(split_name(name)[0])
    if known is not None:
        return dict(known.recommended)
    return dict(getattr(model, "recommended", {}))


def missing(name: str) -> str:
    """Why no run can start with this model, as far as known without loading it; empty if it can."""
    model, _ = split_name(name)
    if model == EMBEDDED and not (ASSETS / "model" / "model.safetensors").is_file():
        return "the embedded model is not on this machine (assets/model is incomplete)"
    if model in PACKAGED and not PACKAGED[model].is_here:
        return f"{PACKAGED[model].title} is not on this machine yet; get it first"
    return ""


def _load(name: str) -> "LanguageModel":
    import torch

    from eab.engine.remote.model import load_model

    torch.set_num_threads(max(1, rules.cores() - 1))  # leave a core for the page
    model, weights = split_name(name)
    return load_model(model, weights=weights)


class ModelDownload:
    """Downloads one model."""

    def __init__(self, model: PackagedModel, then: Callable[[], None] = lambda: None) -> None:
        self.model = model
        self.share, self.problem = 0.0, ""  # share done, from 0 to 1; why it failed
        self._then = then
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def active(self) -> bool:
        """Whether the download is running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_allowed(self) -> bool:
        """Whether visitors may download it: the rules list it, or a private server lists none."""
        allowed = rules.current()
        return self.model.name in allowed.models if allowed.models else not allowed.public

    def start(self) -> None:
        """Start, unless it is running or done. Raises LimitError if visitors may not start it."""
        if not self.is_allowed:
            raise LimitError(
                f"{self.model.title} cannot be downloaded on this server; choose another model"
            )
        with self._lock:
            if self.active or self.model.is_here:
                return
            self.share, self.problem = 0.0, ""
            self._stop.clear()
            self._thread = threading.Thread(target=self._get, name="eab-download", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the download; nothing is kept."""
        self._stop.set()

    def _get(self) -> None:
        try:
            if packaged.get(self.model, self._report, self._stop.is_set):
                self._then()
        except Exception as error:  # otherwise nobody would learn why it failed
            self.problem = str(error) or type(error).__name__

    def _report(self, share: float) -> None:
        self.share = share


def give_back() -> None:
    """Collect garbage, and return free memory if the C library can (takes a tenth of a second)."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # macOS, musl and Windows cannot
        ctypes.CDLL(None).malloc_trim(0)
