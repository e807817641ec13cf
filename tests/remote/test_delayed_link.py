"""The artificial delay of benchmarks/remote.py: everything arrives, in order, and not earlier."""

import socket
import socketserver
import threading
import time

from benchmarks.delayed_link import delayed_link

ROUND_TRIP = 0.1  # seconds


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while content := self.request.recv(2**16):
            self.request.sendall(content)


def received(connection: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        part = connection.recv(2**16)
        assert part, "the connection ended early"
        content += part
    return content


def test_everything_arrives_in_order_and_delayed() -> None:
    long = bytes(range(256)) * 1000
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with delayed_link(f"http://127.0.0.1:{server.server_address[1]}", ROUND_TRIP) as url:
            port = int(url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
                start = time.monotonic()
                connection.sendall(b"a few bytes")
                assert received(connection, 11) == b"a few bytes"
                assert time.monotonic() - start >= 0.95 * ROUND_TRIP  # clocks are not exact
                connection.sendall(long)
                assert received(connection, len(long)) == long
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1) == b"", "the end arrives, too"
        server.shutdown()
