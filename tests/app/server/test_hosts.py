"""To which names a server answers."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server import http
from app.server.rules import PUBLIC, Rules


def status(host: str, rules: Rules, only_this_machine: bool, monkeypatch: Any) -> int:
    """What a GET request with this header gets."""
    monkeypatch.setattr(http, "current", lambda: rules)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    app = http.KnownHosts(http.PlainTextResponse("ok"), only_this_machine)
    scope = {"type": "http", "headers": [(b"host", host.encode())] if host else []}
    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8501", "LOCALHOST.", "a.localhost:1", "127.0.0.1:8501", "[::1]:8501"],
)
@pytest.mark.parametrize("rules", [Rules(), PUBLIC, Rules(hosts=("example.org",))])
@pytest.mark.parametrize("only_this_machine", [True, False])
def test_localhost_and_addresses_are_always_right(
    host: str, rules: Rules, only_this_machine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status(host, rules, only_this_machine, monkeypatch) == 200


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:8501", "localhost.evil.example", "[", "a@b:c", "::"]
)
def test_a_server_of_this_machine_answers_to_no_other_name(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status(host, Rules(), True, monkeypatch) == 421
    assert status(host, Rules(), False, monkeypatch) == 200, "without names in the rules"
    assert status(host, Rules(hosts=("example.org",)), False, monkeypatch) == 421


@pytest.mark.parametrize("only_this_machine", [True, False])
def test_the_names_in_the_rules_are_answered(
    only_this_machine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Rules(hosts=("Example.org", "b.example"))
    for host in ("example.org", "EXAMPLE.ORG:443", "b.example."):
        assert status(host, rules, only_this_machine, monkeypatch) == 200
    assert status("www.example.org", rules, only_this_machine, monkeypatch) == 421


@given(st.text())
def test_any_header_is_read(header: str) -> None:
    assert isinstance(http.is_this_machine_or_number(http.host_name(header)), bool)
