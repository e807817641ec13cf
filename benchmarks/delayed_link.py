"""An artificial network delay between a client and a server on this machine.

    with delayed_link("http://127.0.0.1:8080", 0.02) as url: ...

Every byte is delayed by half of the round trip, in each direction, and bytes stay in order. The
bandwidth is not limited, and nothing is lost.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

CHUNK: Final = 2**16  # bytes


@contextmanager
def delayed_link(url: str, round_trip: float) -> Iterator[str]:
    """Forward connections to a server. `round_trip` is the delay in seconds, there and back."""
    parts = urlsplit(url)
    loop = asyncio.new_event_loop()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.gather(
            _late(reader, there[1], round_trip / 2), _late(there[0], writer, round_trip / 2)
        )

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(forward, "127.0.0.1", 0)

    # In a separate thread, because the caller's thread may already run an event loop.
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(timeout=10)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Copy each piece `delay` seconds after it arrived, until the sender closes the connection."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        content = b"?"
        while content:
            content = await reader.read(CHUNK)
            pieces.put_nowait((loop.time() + delay, content))

    reading = asyncio.create_task(read())
    try:
        with suppress(OSError):
            while True:
                due, content = await pieces.get()
                await asyncio.sleep(due - loop.time())
                if not content:
                    return
                writer.write(content)
                await writer.drain()
    finally:
        reading.cancel()
        writer.close()


async def _end(server: asyncio.Server) -> None:
    """Accept no more connections, and wait up to 5 seconds for the open ones to end."""
    server.close()
    if rest := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(rest, timeout=5)
