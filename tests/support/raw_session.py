"""One tab of the explorer without a browser: it presses Run, polls when Streamlit asks it to, and
keeps the messages to the board.

A machine can run thirty of these, but not thirty browsers. It speaks the protocol of the installed
Streamlit.
"""

import json
import re
import time
from contextlib import ExitStack
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import parse_qs

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets import Origin, Subprotocol
from websockets.sync.client import connect


class RawSession:
    """A tab that is connected to a server and has drawn its page.

    Attributes:
        boards: messages to the board, in order.
        progress: progress texts, without repeats.
        problems: the error messages of the page, in order.
        tabs: the labels of the page's tabs, as drawn last.
        polled: ids of the fragments that Streamlit asked it to poll.
        code: the code of the class on the page; empty without a class.
        answers: the keys of the questions of the class, with their options.
        led: where the class last led the board, and when that arrived (`time.perf_counter`).
        finished: the number of finished runs of the script or of a fragment.
        config: the settings that Streamlit sent.
        session: Streamlit's id of this tab's session.
    """

    def __init__(self, address: str, query: str = "") -> None:
        self._url = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
        self._origin = "/".join(address.split("/")[:3])
        self._tab = ExitStack()
        self._connect()
        self._query = query
        self.session = ""
        # Every message contains the hash of the page; otherwise, Streamlit opens another page.
        self._page = ""
        self._ids: dict[str, str] = {}  # widget key or component name -> widget id
        self._places: dict[str, str] = {}  # the same keys -> id of the fragment; "" for the page
        self._polls: dict[
            str, tuple[float, float]
        ] = {}  # fragment id -> interval in seconds, next time
        self.finished = 0
        self.polled: list[str] = []
        self.boards: list[dict[str, Any]] = []
        self.code = ""
        self.answers: dict[str, list[str]] = {}
        self.led: tuple[dict[str, Any], float] = ({}, 0.0)
        self.progress: list[str] = []
        self.problems: list[str] = []
        self.tabs: list[str] = []
        self.config: Any = None
        self._rerun()
        self.until(lambda: self.finished > 0 and bool(self.boards))

    @property
    def run_id(self) -> str:
        """The id of the run in the address bar."""
        return parse_qs(self._query).get("run", [""])[0]

    @property
    def board(self) -> dict[str, Any]:
        """The newest message to the board."""
        return self.boards[-1]

    def press(self, key: str) -> None:
        """Click a button, as soon as the page has it."""
        self.until(lambda: self.offers(key))
        self._rerun(self._places[key], button=self._ids[key])

    def choose(self, key: str, option: str) -> None:
        """Choose an option of a radio widget."""
        self._rerun(self._places[key], widget={"id": self._ids[key], "string_value": option})

    def report(self, component: str, event: str, value: Any) -> None:
        """Send an event of a component of the page to Python."""
        state = {"id": self._ids[component], "json_value": json.dumps({event: value})}
        self._rerun(self._places[component], widget=state)

    def offers(self, key: str) -> bool:
        """Whether a widget with this key has been on the page."""
        return key in self._ids

    def poll(self, fragment: str) -> None:
        """Request a rerun of a fragment of the page."""
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

    def cut(self) -> None:
        """Lose the connection without closing it, as when a cable is pulled."""
        self._socket.socket.shutdown(SHUT_RDWR)
        self._tab.close()

    def come_back(self) -> None:
        """Connect again as the same tab, as a browser does after `cut`."""
        self._connect(self.session)
        self._rerun()

    def _connect(self, session: str = "") -> None:
        # In a browser, the second name would be a token.
        names = ["streamlit", "none", session] if session else ["streamlit"]
        self._socket = self._tab.enter_context(
            connect(
                self._url,
                origin=Origin(self._origin),
                subprotocols=[Subprotocol(name) for name in names],
                max_size=None,
                max_queue=None,
                ping_interval=None,
            )
        )

    def _rerun(
        self, fragment: str = "", button: str = "", widget: dict[str, Any] | None = None
    ) -> None:
        message = BackMsg()
        message.rerun_script.query_string = self._query
        message.rerun_script.page_script_hash = self._page
        message.rerun_script.fragment_id = fragment
        message.rerun_script.is_auto_rerun = bool(fragment) and not button and widget is None
        if widget is not None:
            message.rerun_script.widget_states.widgets.add(**widget)
        elif button:
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
                self.session = message.new_session.initialize.session_id
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
                self._keep(message.delta.new_element, message.delta.fragment_id)
            case "delta" if message.delta.add_block.WhichOneof("type") == "tab":
                self.tabs.append(message.delta.add_block.tab.label)

    def _keep(self, element: Any, fragment: str) -> None:
        kind = element.WhichOneof("type")
        if kind in ("button", "radio"):
            widget = getattr(element, kind).id
            key = widget.rsplit("-", 1)[-1]
            self._ids[key], self._places[key] = widget, fragment
            if key.startswith("class_answer_"):
                self.answers[key] = list(element.radio.options)
        elif kind == "markdown" and (
            found := re.search(r"lass \*\*(\w+)\*\*", element.markdown.body)
        ):
            self.code = found[1]
        elif kind == "bidi_component" and element.bidi_component.component_name == "eab_class":
            component = element.bidi_component
            self._ids["eab_class"], self._places["eab_class"] = component.id, fragment
            [told] = json.loads(component.json)
            if told["lead"] is not None:
                self.led = (told["lead"], time.perf_counter())
        elif kind == "bidi_component" and element.bidi_component.component_name == "eab_board":
            self.boards.append(json.loads(element.bidi_component.bytes))
        elif kind == "progress" and element.progress.text not in self.progress[-1:]:
            self.progress.append(element.progress.text)
        elif kind == "alert":
            self.problems.append(element.alert.body.replace("\\", ""))  # of Markdown
        assert kind != "exception", element.exception.message
