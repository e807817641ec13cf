"""Checks with pip-audit whether packages in requirements.lock have known vulnerabilities.

Fails if one has. If the database cannot be reached, or knows none of the packages, it says so; that
proves nothing.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

LOCK: Final = Path(__file__).resolve().parent.parent / "requirements.lock"
SECONDS: Final = 120


def main() -> None:
    with TemporaryDirectory() as folder:
        asked = Path(folder) / "requirements.txt"
        # The database lists versions without build labels.
        asked.write_text(LOCK.read_text(encoding="utf-8").replace("+cpu", ""), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(asked), "--disable-pip"]
        report, why = _answer([*command, "--format=json", "--progress-spinner=off"])
    sys.exit(verdict(report, why))


def _answer(command: list[str]) -> tuple[dict[str, Any] | None, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        return json.loads(done.stdout), ""
    except subprocess.TimeoutExpired:
        return None, f"no answer within {SECONDS} s"
    except json.JSONDecodeError:
        return None, (done.stderr.strip() or "no report").splitlines()[-1]


def verdict(report: dict[str, Any] | None, why: str) -> int:
    """Print the findings of a report, and return the exit status."""
    packages = report["dependencies"] if report else []
    known = [package for package in packages if "skip_reason" not in package]
    if not known:
        print(f"Not audited: {why or 'the database knows none of the packages'}.")
        return 0
    flaws = [(package, flaw) for package in known for flaw in package["vulns"]]
    for package, flaw in flaws:
        fixed = ", ".join(flaw["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {flaw['id']}; fixed in {fixed}")
    for package in packages:
        if "skip_reason" in package:
            print(f"Not audited: {package['name']}: {package['skip_reason']}")
    print(f"{len(known)} packages audited, {len(flaws)} known vulnerabilities.")
    return int(bool(flaws))


if __name__ == "__main__":
    main()
