"""One tab of the explorer without a browser: it presses Run, polls when Streamlit asks it to, and
keeps the messages to the board.

Thirty of these fit where thirty browsers would not. It speaks the protocol of the installed
Streamlit.
"""

import json
import time
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets import Subprotocol
from websockets.sync.client import connect


class RawSession:
    """A tab that is connected to a server and has drawn its page.

    Attributes:
        boards: messages to the board, in order.
        progress: progress texts, without repeats.
        tabs: the labels of the page's tabs as they were drawn last.
        polled: ids of the fragments that Streamlit asked it to poll.
        finished: how many runs of the script or of a fragment have ended.
        config: what Streamlit sent of its settings.
    """

    def __init__(self, address: str, query: str = "") -> None:
        url = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
        self._tab = ExitStack()
        self._socket = self._tab.enter_context(
            connect(
                url,
                subprotocols=[Subprotocol("streamlit")],
                max_size=None,
                max_queue=None,
                ping_interval=None,
            )
        )
        self._query = query
        # The hash of the page goes into every message: without it, Streamlit opens another page.
        self._page = ""
        self._ids: dict[str, str] = {}  # widget key -> widget id
        self._polls: dict[
            str, tuple[float, float]
        ] = {}  # fragment id -> interval in seconds, next time
        self.finished = 0
        self.polled: list[str] = []
        self.boards: list[dict[str, Any]] = []
        self.progress: list[str] = []
        self.tabs: list[str] = []
        self.config: Any = None
        self._rerun()
        self.until(lambda: self.finished > 0 and bool(self.boards))

    @property
    def run_id(self) -> str:
        """The run in the address bar."""
        return parse_qs(self._query).get("run", [""])[0]

    @property
    def board(self) -> dict[str, Any]:
        """The newest message to the board."""
        return self.boards[-1]

    def press(self, key: str) -> None:
        """Click a button."""
        self._rerun(button=self._ids[key])

    def poll(self, fragment: str) -> None:
        """Ask for a fragment of the page."""
        self._rerun(fragment)

    def until(self, condition: Any, seconds: float = 120.0) -> None:
        """Receive and poll until the condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            self._poll()
            try:
                self._receive(ForwardMsg.FromString(self._socket.recv(timeout=0.05)))  # type: ignore[arg-type]
            except TimeoutError:
                continue

    def close(self) -> None:
        """Close the tab."""
        self._tab.close()

    def _rerun(self, fragment: str = "", button: str = "") -> None:
        message = BackMsg()
        message.rerun_script.query_string = self._query
        message.rerun_script.page_script_hash = self._page
        message.rerun_script.fragment_id = fragment
        message.rerun_script.is_auto_rerun = bool(fragment)
        if button:
            message.rerun_script.widget_states.widgets.add(id=button, trigger_value=True)
        else:
            message.rerun_script.widget_states.SetInParent()
        self._socket.send(message.SerializeToString())

    def _poll(self) -> None:
        now = time.monotonic()
        for fragment, (every, due) in self._polls.items():
            if now >= due:
                self._polls[fragment] = (every, now + every)
                self.poll(fragment)

    def _receive(self, message: ForwardMsg) -> None:
        match message.WhichOneof("type"):
            case "new_session" if not message.metadata.run.fragment_ids:  # the whole page
                self._page = message.new_session.page_script_hash
                self.config = message.new_session.config
                self._polls.clear()
                self.tabs.clear()
            case "auto_rerun":
                self.polled.append(message.auto_rerun.fragment_id)
                every = message.auto_rerun.interval
                self._polls[message.auto_rerun.fragment_id] = (every, time.monotonic() + every)
            case "page_info_changed":
                self._query = message.page_info_changed.query_string
            case "script_finished":
                self.finished += 1
            case "delta" if message.delta.WhichOneof("type") == "new_element":
                self._keep(message.delta.new_element)
            case "delta" if message.delta.add_block.WhichOneof("type") == "tab":
                self.tabs.append(message.delta.add_block.tab.label)

    def _keep(self, element: Any) -> None:
        kind = element.WhichOneof("type")
        if kind == "button":
            self._ids[element.button.id.rsplit("-", 1)[-1]] = element.button.id
        elif kind == "bidi_component" and element.bidi_component.component_name == "eab_board":
            self.boards += json.loads(element.bidi_component.json)
        elif kind == "progress" and element.progress.text not in self.progress[-1:]:
            self.progress.append(element.progress.text)
        assert kind != "exception", element.exception.message
