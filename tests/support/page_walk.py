"""A tab of the explorer without a browser: type a prompt, press Run, wait for the run to end, and
read the page.
"""

import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from places import MAIN
from streamlit import config
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from waiting import wait_until

from app.state.session import worker
from eab.lessons import bundled_runs

# Otherwise, each new tab would read the metadata of all installed packages to find components.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
config.set_option("runner.magicEnabled", False)  # as `app.serve` does


class Tab(AppTest):
    """Streamlit's AppTest; a page that shows an exception fails the test."""

    def _run(self, *args: Any, **options: Any) -> "Tab":
        super()._run(*args, **options)
        shown = [one.value for one in self.exception]
        assert not shown, shown
        return self

    @property
    def words(self) -> list[str]:
        """The sentences on the page, one string each."""
        return [text.value for text in self.text]

    @property
    def said(self) -> str:
        """All sentences on the page as one string."""
        return " ".join(self.words)

    @property
    def captions(self) -> str:
        """The captions of the page without its sidebar, as one string without escapes."""
        return " ".join(one.value for one in self.main.caption).replace("\\", "")

    @property
    def errors(self) -> list[str]:
        """The error messages on the page, without escapes."""
        return [one.value.replace("\\", "") for one in self.error]

    @property
    def status(self) -> str:
        """The text of the status line, without escapes."""
        line: Any = self.get_by_key("status")
        [words] = [one.value for one in (*line.error, *line.caption)]
        return str(words).replace("\\", "")

    @property
    def charts(self) -> int:
        """The number of plotly charts."""
        return len(self.get("plotly_chart"))

    @property
    def boards(self) -> list[dict[str, Any]]:
        """The newest message to each board of this page, from top to bottom."""
        found = [one.proto for one in self.get("bidi_component")]
        boards = [one for one in found if one.component_name == "eab_board"]
        return [dict(json.loads(one.bytes)) for one in boards]

    @property
    def board(self) -> dict[str, Any]:
        """The newest message to the first board."""
        return self.boards[0]

    def value(self, key: str) -> Any:
        """The value of the widget with this key."""
        widget: Any = self.get_by_key(key)
        return widget.value

    def put(self, **values: Any) -> "Tab":
        """Set the widgets with these keys to these values, and rerun the page."""
        self._set(values)
        self.run()
        return self

    def _set(self, values: dict[str, Any]) -> None:
        for key, value in values.items():
            widget: Any = self.get_by_key(key)
            widget.set_value(value)

    def remember(self, **values: Any) -> "Tab":
        """Put these values into the session state, and rerun the page."""
        for name, value in values.items():
            self.session_state[name] = value
        self.run()
        return self

    def press(self, key: str, **values: Any) -> "Tab":
        """Set the other widgets to these values, then click the button with this key."""
        self._set(values)
        self.button(key=key).click().run()
        return self

    def go_to(self, page: str) -> "Tab":
        """Open another page in this tab."""
        self.switch_page(f"../pages/{page}.py").run()
        return self

    def start(self, prompt: str, new_tokens: int) -> "Tab":
        """Press Run with this prompt and this number of new tokens."""
        return self.press("run_button", prompt=prompt, set_max_new_tokens=new_tokens)

    def generate(self, **values: Any) -> "Tab":
        """Set widgets to these values, press Run, and wait for the run to end."""
        return self.press("run_button", **values).run_to_its_end()

    def open_example(self, name: str) -> "Tab":
        """Choose this example in the popover "Open"."""
        return self.remember(open_run=True).put(recording=bundled_runs.named(f"{name}.eab"))

    def open_file(self, name: str, data: bytes) -> "Tab":
        """Upload this run file in the popover "Open"."""
        return self.remember(open_run=True).put(upload=(name, data, ""))

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> "Tab":
        """Rerun the page until the condition holds."""
        wait_until(condition, seconds, pause=lambda: (time.sleep(0.1), self.run()))
        return self

    def run_to_its_end(self, stop: str = "stop_button") -> "Tab":
        """Rerun the page until nothing is active.

        Args:
            stop: The key of the button that stops it.
        """
        active = {stop}

        def ended() -> bool:
            if not active & {one.key for one in self.button if not one.disabled}:
                return True
            look_again = time.monotonic() + 2.0  # a rerun costs as much as many decode steps
            while worker().active and time.monotonic() < look_again:
                time.sleep(0.02)
            return False

        return self.until(ended, 600)  # long, for busy machines


def opened(page: str = "explore", **query: object) -> Tab:
    """A tab opened on Explore with this query that has then switched to this page."""
    tab = Tab(MAIN, default_timeout=120)
    for name, value in query.items():
        tab.query_params[name] = str(value)
    tab.run()
    return tab if page == "explore" else tab.go_to(page)
