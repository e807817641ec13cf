"""The students of one class: how soon they see what the lecturer does, and how much memory the
server uses after a hundred questions.

    python benchmarks/class.py [--quick] [--students 30] [--json FILE] [--table FILE]

Starts the app on this machine. The lecturer and the students speak Streamlit's protocol without a
browser (tests/support/raw_session.py). They run in this process and compete with the server for the
processor. One measurement is the time from the lecturer's message (a move of the cursor) to the
message to a student's board; the p95 is over all students and moves. Then the lecturer asks a
hundred questions; each time all students answer, and the answers are revealed. Ten extra questions
before that warm up the memory. `idle_cpu` is the share of a core that the idle server uses.
"""

import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from published import command_line, publish, ratio_lines, where

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
from raw_session import RawSession  # noqa: E402

from scripts.servers import serving_explorer  # noqa: E402

PROMISED = 0.3  # seconds, at the 95th percentile
WARM_UP = 10  # questions
IDLE_SECONDS = 10.0
SETTLED = 0.2  # of a core


class Seat:
    """A student whose messages are received in a separate thread."""

    def __init__(self, address: str, code: str) -> None:
        self.session = RawSession(address, f"class={code}")
        self.session.until(lambda: self.session.offers("class_let_go"))
        self._leaving = False
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        self.session.until(lambda: self._leaving, seconds=3600)

    def close(self) -> None:
        self._leaving = True
        self._thread.join()
        self.session.close()


@contextmanager
def a_class(address: str, students: int) -> Iterator[tuple[RawSession, list[Seat]]]:
    lecturer = RawSession(address)
    lecturer.press("class_start")
    lecturer.until(lambda: bool(lecturer.code))
    seats = [Seat(address, lecturer.code) for _ in range(students)]
    yield lecturer, seats
    for seat in seats:
        seat.close()
    lecturer.close()


def follow_seconds(lecturer: RawSession, seats: Sequence[Seat], moves: int) -> list[float]:
    """Seconds that each move took to reach each student."""
    found = []
    for move in range(moves):
        start = time.perf_counter()
        lead_to(lecturer, seats, move % 20)
        found += [seat.session.led[1] - start for seat in seats]
        time.sleep(0.1)  # the interval at which a lecturer's browser reports
    return found[len(seats) :]  # the first move is the warm-up


def lead_to(
    lecturer: RawSession, seats: Sequence[Seat], step: int, token: list[int] | None = None
) -> None:
    """Move the lecturer's board, and wait until all students have been led there."""
    at = {"run": lecturer.board["run"], "cursor": step, "token": token}
    lecturer.report("eab_class", "look", at)
    lecturer.until(lambda: all(cursor_of(seat) == step for seat in seats))


def pressed(lecturer: RawSession, button: str) -> None:
    """Press a button and wait until the page has been drawn again."""
    lecturer.until(lambda: lecturer.offers(button))
    before = lecturer.finished
    lecturer.press(button)
    lecturer.until(lambda: lecturer.finished > before)


def cursor_of(seat: Seat) -> int | None:
    """The step that this student's board was led to."""
    cursor: int | None = seat.session.led[0].get("cursor")
    return cursor


def ask(lecturer: RawSession, seats: Sequence[Seat], number: int) -> None:
    """Ask for the next token, let all students answer, reveal, and dismiss the question."""
    path = next(path for path in lecturer.board["paths"] if path["tokens"])
    lead_to(lecturer, seats, number % 7, [path["id"], 0])
    pressed(lecturer, "class_ask_next")
    key = f"class_answer_{lecturer.code}_{number}"
    lecturer.until(lambda: all(key in seat.session.answers for seat in seats))
    before = [seat.session.finished for seat in seats]
    for place, seat in enumerate(seats):
        options = seat.session.answers.pop(key)
        seat.session.choose(key, options[place % len(options)])
    drawn = list(zip(seats, before, strict=True))
    lecturer.until(lambda: all(seat.session.finished > count for seat, count in drawn))
    pressed(lecturer, "class_reveal")
    pressed(lecturer, "class_dismiss")


def memory_after_questions(
    lecturer: RawSession, seats: Sequence[Seat], server: psutil.Process, questions: int
) -> tuple[float, float]:
    """Resident bytes of the server before and after these questions."""
    for number in range(1, WARM_UP + 1):
        ask(lecturer, seats, number)
    before = server.memory_info().rss
    for number in range(WARM_UP + 1, WARM_UP + questions + 1):
        ask(lecturer, seats, number)
    return before, server.memory_info().rss


def settle(lecturer: RawSession, server: psutil.Process) -> None:
    """Wait until all pages are drawn and the model, loaded after the first page, is ready."""
    for _ in range(20):
        if busy_share(lecturer, server, 4.0) < SETTLED:
            return
    raise SystemExit(f"the server did not come below {SETTLED:.0%} of a core in 80 seconds")


def busy_share(lecturer: RawSession, server: psutil.Process, duration: float) -> float:
    """The share of one core that the server uses while nobody acts for `duration` seconds."""

    def seconds() -> float:
        times = server.cpu_times()
        return times.user + times.system

    start, used = time.perf_counter(), seconds()
    lecturer.until(lambda: time.perf_counter() - start > duration)
    return (seconds() - used) / (time.perf_counter() - start)


def main() -> None:
    parser = command_line(__doc__, "fewer moves and questions")
    parser.add_argument("--students", type=int, default=30)
    options = parser.parse_args()
    moves, questions = (20, 5) if options.quick else (100, 100)
    with serving_explorer() as (address, process):
        server = psutil.Process(process)
        with a_class(address, options.students) as (lecturer, seats):
            settle(lecturer, server)
            follow = sorted(follow_seconds(lecturer, seats, moves))
            before, after = memory_after_questions(lecturer, seats, server, questions)
            settle(lecturer, server)
            idle = busy_share(lecturer, server, IDLE_SECONDS)
    p95 = follow[int(0.95 * len(follow))]
    ratios = {
        "follow_p95_over_300ms": p95 / PROMISED,
        "memory_after_100_questions_over_before": after / before,
    }
    seconds = {"follow_median": statistics.median(follow), "follow_p95": p95, "idle_cpu": idle}
    lines = [
        f"{options.students} students, {moves} moves of the cursor: they see one after a median of "
        f"{1000 * seconds['follow_median']:.0f} ms, p95 {1000 * p95:.0f} ms.",
        f"While nothing happens, the server takes {idle:.0%} of a core.",
        f"{questions} questions: {before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after.",
        ratio_lines(ratios),
    ]
    result = {"seconds": seconds, "ratios": ratios}
    publish(options, where("no model"), "\n".join(lines), result)


if __name__ == "__main__":
    main()
