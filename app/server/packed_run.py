"""A run that has ended, as a run file: a tenth of the memory of its events, or less."""

import threading
import weakref

from app.server.live_run import LiveRun
from eab import record


class PackedRun:
    """The file, and the run itself as long as a page holds it.

    RecordError if the run fits into no file.
    """

    def __init__(self, live: LiveRun) -> None:
        self._file = record.dumps(live.events)
        self._whole = weakref.ref(live)
        self._unpacking = threading.Lock()  # two pages unpack it once
        self.outline = live.without_events()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._file)

    def run(self) -> LiveRun:
        """The run, with its events."""
        with self._unpacking:
            live = self._whole()
            if live is None:
                live = self.outline.without_events()
                live.events.extend(record.loads(self._file))
                for event in live.events:
                    live.state.apply(event)
                self._whole = weakref.ref(live)
            return live
