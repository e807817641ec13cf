"""A bare page with one board that gets its messages as Streamlit would send them, for tests of the
board alone.
"""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

from eab.board import javascript, stylesheet
from eab.board.messages import board_message
from eab.run import RunState

BOARD = "document.getElementById('host').shadowRoot.querySelector('.eab')"
LIGHT = "--st-text-color:#31333f;--st-background-color:#fff;--st-secondary-background-color:#f8f8f7"
DARK = (
    "--st-text-color:#faf9f5;--st-background-color:#171614;--st-secondary-background-color:#2d2b27"
)
_MOUNT = """async ([code, css]) => {
  const root = document.getElementById("host").attachShadow({ mode: "open" });
  const style = document.createElement("style");
  style.textContent = css;
  root.append(style);
  const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  Object.assign(window, { triggers: [], requests: [] });
  const setTriggerValue = (name, value) => {
    triggers.push(name);
    requests.push(value);
  };
  const host = { parentElement: root, setTriggerValue };
  window.feed = (message) => {
    const data = new TextEncoder().encode(JSON.stringify(message));
    window.leave = module.default({ data, ...host });
  };
}"""

# The visible elements matching a selector that are cut off or not entirely inside their panel.
_NOT_WHOLE = """(parts) => {
  const found = [];
  for (const panel of document.getElementById("host").shadowRoot.querySelectorAll(".panel")) {
    const { left, right, top, bottom } = panel.getBoundingClientRect();
    for (const one of panel.querySelectorAll(parts)) {
      const box = one.getBoundingClientRect();
      const isIn = box.left >= left && box.right <= right && box.top >= top && box.bottom <= bottom;
      const isCut = getComputedStyle(one).overflow !== "visible" &&
        (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight + 1);
      if (box.width > 1 && (!isIn || isCut)) found.push(one.outerHTML);
    }
  }
  return found;
}"""


class BoardPage:
    """A page with one board, and methods that feed messages to it and act on it."""

    def __init__(self, page: Page, theme: str) -> None:
        self.page = page
        page.set_content(f'<title>calm</title><body style="{theme}"><div id="host"></div></body>')
        page.evaluate(_MOUNT, [javascript("streamlit"), stylesheet()])
        self.root = page.locator(".eab")

    def feed(
        self, run: RunState, since: int = 0, mode: str = "replay", name: str = "one", **more: Any
    ) -> None:
        extra = {"run": name, "mode": mode, "autoplay": False} | more
        self.page.evaluate("message => feed(message)", board_message(run, since) | extra)

    def not_whole(self, parts: str) -> list[str]:
        """The elements of the panels matching this selector that cannot be seen in full."""
        return list(self.page.evaluate(_NOT_WHOLE, parts))

    def inside(self, expression: str) -> Any:
        """The value of an expression of the board's object, such as `view.selection`."""
        return self.page.evaluate(f"{BOARD}.getRootNode().__board.{expression}")

    def data(self, name: str) -> int:
        return int(self.root.get_attribute(f"data-{name}") or -1)

    def expect_cursor(self, step: int) -> None:
        expect(self.root).to_have_attribute("data-cursor", str(step))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def keys(self, *keys: str) -> None:
        """Press keys on the board."""
        self.root.focus()
        self.press(*keys)

    def select(self, path: int, token: int) -> None:
        """Select a token, as a click on it does."""
        self.inside(f"send('select', {path}, {token})")

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    def box(self, path: int) -> Locator:
        return self.page.locator(f'.box.path[data-path="{path}"]')

    def point_at(self, path: int, token: int, clicks: bool = False) -> None:
        """Move the pointer to a token in the box of a path (-1: the last), and click if asked."""
        x, y = self.page.evaluate(
            f"""async ([path, token]) => {{
            for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
            const box = {BOARD}.getRootNode().__board.tree.boxes.get(path);
            const {{ line, left, right }} = box.cells.at(token);
            const place = new DOMPoint((left + right) / 2, box.strip.top(line) + 1);
            const {{ x, y }} = place.matrixTransform(box.group.getScreenCTM());
            return [x, y]; }}""",
            [path, token],
        )
        self.page.mouse.move(x, y)
        if clicks:
            self.page.mouse.click(x, y)

    def drawn_paths(self) -> set[int]:
        boxes = self.page.locator(".box.path:not(.hidden)").all()
        return {int(box.get_attribute("data-path") or -1) for box in boxes}

    def selected(self) -> dict[str, int]:
        """The selected path and token."""
        selection = self.inside("view.selection")
        return {name: selection[name] for name in ("path", "token")}


Boards = Callable[..., BoardPage]  # fixtures that make a board, see tests/browser/conftest.py
