"""Make the README's picture again: `make picture`. The real page in Chromium, the first bundled run
at its end.
"""

import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PORT = 8599
ADDRESS = f"http://127.0.0.1:{PORT}"


def main() -> None:
    """Start the page, wait for the board, save `assets/picture.png`."""
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "app/main.py",
        f"--server.port={PORT}",
        "--server.headless=true",
    ]
    server = subprocess.Popen([*command, "--server.address=127.0.0.1"], cwd=ROOT)
    try:
        _wait_until_it_answers()
        _take(ROOT / "assets" / "picture.png")
    finally:
        server.terminate()


def _wait_until_it_answers() -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{ADDRESS}/_stcore/health", timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("the page does not answer")


def _take(file: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1500, "height": 1490}, color_scheme="light")
        page.goto(ADDRESS)
        page.locator(".eab .box.path").first.wait_for()
        page.get_by_role("button", name="Last step, and follow").click()
        page.locator(".eab .box.path .label").nth(1).click(force=True)
        page.mouse.move(5, 5)
        page.wait_for_timeout(1500)
        page.locator(".stMain").screenshot(path=file)
        browser.close()


if __name__ == "__main__":
    main()
