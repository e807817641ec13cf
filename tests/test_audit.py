"""How scripts/audit.py turns a report of pip-audit into an exit code and a message."""

from typing import Any

import pytest

from scripts.audit import _answer, verdict

GOOD: dict[str, Any] = {"name": "click", "version": "8.5.1", "vulns": []}
SKIPPED = {"name": "torch", "skip_reason": "not found"}
FLAW = {"id": "PYSEC-2020-1", "fix_versions": ["2.0"], "aliases": [], "description": ""}
BAD = {"name": "jinja2", "version": "1.0", "vulns": [FLAW]}


@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ([GOOD], 0, "1 packages audited, 0 known vulnerabilities"),
        ([GOOD, SKIPPED], 0, "Not audited: torch: not found"),
        ([GOOD, BAD], 1, "jinja2 1.0: PYSEC-2020-1; fixed in 2.0"),
        ([SKIPPED], 0, "Not audited: the database knows none of the packages"),
    ],
)
def test_only_known_vulnerabilities_fail_the_audit_and_unaudited_packages_are_listed(
    packages: list[dict[str, Any]],
    status: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verdict({"dependencies": packages}, "") == status
    assert words in capsys.readouterr().out


def test_an_unreachable_database_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    report, why = _answer(["sh", "-c", "echo no network >&2; exit 1"])
    assert (report, why) == (None, "no network")
    assert verdict(report, why) == 0
    assert "Not audited: no network." in capsys.readouterr().out
