"""The time from Enter to the first new token on the screen, in a headless Chromium.

    python benchmarks/first_token_screen.py [--rounds N]

Every round starts a server and opens its page in a new browser. Cold: the first question, asked
`--pause` seconds after the page is drawn (0: at once, while the chat model is not loaded yet).
Warm: other questions in the same tab. The load of the machine is printed, too: it should be below
0.5 when the rounds begin.
"""

import argparse
import os
import time

from explorer import BOARD, opened
from playwright.sync_api import Page

from eab.timing import Timing
from scripts.servers import serving_explorer

FIRST = "Why do cats purr?"
OTHERS = ("What is the capital of France?", "Name a colour.", "Tell me a joke.")
# Of a frame: whether the board shows at least one token after this prompt.
ON_SCREEN = f"""question => {{ const root = ({BOARD})?.querySelector('.eab');
  const prompt = root?.querySelector('.box.prompt')?.getAttribute('aria-label') ?? '';
  return prompt.includes(question) && root.querySelector('.box.path:not(.hidden)') !== null; }}"""


def seconds_on_screen(page: Page, question: str) -> float:
    """Ask, wait for the first token, and let the run end."""
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill(question)
    start = time.perf_counter()
    prompt.press("Enter")
    page.wait_for_function(ON_SCREEN, arg=question, timeout=120_000)
    seconds = time.perf_counter() - start
    page.wait_for_timeout(1000)  # the page shows Stop instead of Run
    page.get_by_role("button", name="Run", exact=True).wait_for(timeout=120_000)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds to type (default: 5)")
    options = parser.parse_args()
    print(f"load: {os.getloadavg()[0]:.2f}")
    cold, warm = [], []
    for _ in range(options.rounds):
        with serving_explorer() as (address, _), opened(address) as page:
            page.locator(".eab .box.path").first.wait_for()
            page.wait_for_timeout(1000 * options.pause)
            cold.append(seconds_on_screen(page, FIRST))
            warm += [seconds_on_screen(page, question) for question in OTHERS]
    for name, seconds in (("cold", cold), ("warm", warm)):
        timing = Timing(tuple(seconds))
        print(
            f"{name}: {timing.median:.2f} s (quartiles {timing.low:.2f} to {timing.high:.2f}, "
            f"slowest {max(seconds):.2f}, {len(seconds)} questions)"
        )


if __name__ == "__main__":
    main()
