"""What tests of several pages do: type a prompt, press Run, wait for the end, read the page."""

import json
import time
from collections.abc import Iterator
from typing import Any

from places import MAIN
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block

from eab.lessons.bundled_runs import Recording


def opened(page: str = "explore", **query: object) -> AppTest:
    """A tab that was opened with this query and then went to this page."""
    tab = AppTest.from_file(MAIN, default_timeout=60)
    for name, value in query.items():
        tab.query_params[name] = str(value)
    tab.run()
    return tab if page == "explore" else tab.switch_page(f"../pages/{page}.py").run()


def boards(page: AppTest) -> list[dict[str, Any]]:
    """The newest message to each board of this page, from the top."""
    found = [
        one.proto for one in page.get("bidi_component") if one.proto.component_name == "eab_board"
    ]
    return [dict(json.loads(one.json)[0]) for one in found]


def board_message(page: AppTest) -> dict[str, Any]:
    """The newest message to the first board."""
    return boards(page)[0]


def words(page: AppTest) -> list[str]:
    """The sentences on the page."""
    return [text.value for text in page.text]


def start(page: AppTest, prompt: str, new_tokens: int) -> AppTest:
    """Press Run with this prompt and this number of new tokens."""
    page.text_area(key="prompt").set_value(prompt)
    page.slider(key="set_max_new_tokens").set_value(new_tokens)
    return page.button(key="run_button").click().run()


def open_example(page: AppTest, recording: Recording) -> AppTest:
    """Choose this example in the popover "Open"."""
    page.session_state["open_run"] = True
    page.run()
    return page.radio(key="recording").set_value(recording).run()


def open_file(page: AppTest, name: str, data: bytes) -> AppTest:
    """Upload this run file in the popover "Open"."""
    page.session_state["open_run"] = True
    page.run()
    return page.file_uploader(key="upload").set_value((name, data, "")).run()


def status(page: AppTest) -> str:
    """The words of the status line, without escapes."""
    line = container(page, "status")
    [words] = [one.value for one in (*line.error, *line.caption)]
    return str(words).replace("\\", "")


def container(page: AppTest, key: str) -> Block:
    """The container of the main area that has this key."""

    def blocks(block: Block) -> Iterator[Block]:
        for child in block.children.values():
            if isinstance(child, Block):
                yield child
                yield from blocks(child)

    return next(
        block for block in blocks(page.main) if getattr(block.proto, "id", "").endswith(f"-{key}")
    )


def run_to_its_end(page: AppTest, stop: str = "stop_button") -> AppTest:
    """Draw the page again until nothing is active.

    Args:
        page: The tab.
        stop: The key of the button that stops it.
    """
    deadline = time.monotonic() + 600  # a busy machine is no failure
    while any(button.key == stop and not button.disabled for button in page.button):
        assert time.monotonic() < deadline, "it did not end"
        time.sleep(0.2)
        page.run()
    return page
