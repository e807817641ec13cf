"""The GPU report, tried on the CPU: it holds every part, however that part ended."""

import json
import sys
from pathlib import Path

import pytest

from scripts import gpu_report
from scripts.gpu_report import PARTS, Part, main

pytestmark = pytest.mark.slow

TRY = ["--quick", "--device", "cpu", "--dtype", "float32"]
SMALL = ("--prompt", "20", "--paths", "4", "--tokens", "8")


def report(folder: Path, *arguments: str) -> tuple[int, str, dict[str, dict[str, object]]]:
    """Return the exit code, the Markdown page and the parts of the JSON file."""
    code = main([*arguments, *TRY, "--out", str(folder)])
    held = json.loads((folder / "gpu-report.json").read_text())
    return code, (folder / "gpu-report.md").read_text(), held["parts"]


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the parts by ones that finish, fail, time out or do not fit."""
    parts = {
        "tests": PARTS["tests"],
        "engine-embedded": Part(
            "How fast?", (*PARTS["engine-embedded"].command, *SMALL), memory_gib=1
        ),
        "bmc": Part("Broken?", ("-c", "import json; json.loads('a kernel failed')")),
        "serving": Part("Slow?", ("-c", "import time; print('begun', flush=True); time.sleep(60)")),
        "engine-8b": Part("Large?", ("-c", "raise SystemExit('never run')"), memory_gib=20),
    }
    monkeypatch.setattr(gpu_report, "PARTS", parts)
    monkeypatch.setattr(gpu_report, "_device_gib", lambda device: 2.0)


def test_every_part_is_in_the_report_however_it_ended(endings: None, tmp_path: Path) -> None:
    code, page, parts = report(tmp_path, "bmc", "serving", "engine-8b", "--limit", "5")
    assert code == 1
    assert {name: part["status"] for name, part in parts.items()} == {
        "bmc": "failed",
        "serving": "too long",
        "engine-8b": "left out",
    }
    for words in (
        "json.decoder.JSONDecodeError",
        "begun",
        "It needs 40.0 GiB, and the device has 2.0.",
    ):
        assert words in page
    code, page, parts = report(tmp_path, "engine-embedded")
    assert list(parts) == ["engine-embedded", "bmc", "serving", "engine-8b"], "the others are kept"
    assert parts["engine-embedded"]["status"] == "done"
    assert "| engine, cache tree |" in page
    assert "batched_over_tree" in parts["engine-embedded"]["result"]["ratios"]
    for folder in (tmp_path, Path.home(), Path(sys.prefix)):
        assert str(folder) not in page
    assert "--json" not in page


def test_a_report_of_another_machine_is_replaced(endings: None, tmp_path: Path) -> None:
    report(tmp_path, "engine-8b")
    file = tmp_path / "gpu-report.json"
    file.write_text(file.read_text().replace('"device": "cpu"', '"device": "H100"'))
    _, _, parts = report(tmp_path, "bmc")
    assert list(parts) == ["bmc"]


def test_failed_tests_are_named(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text(
        "<testsuites><testsuite><testcase classname='tests.test_gpu' name='test_a'/>"
        "<testcase classname='tests.test_gpu' name='test_b'><failure message='3 is not 4'/></testcase>"
        "<testcase classname='tests.test_gpu' name='test_c'><skipped/></testcase>"
        "</testsuite></testsuites>"
    )
    counted = gpu_report.count_tests(file)
    assert counted == {
        "passed": 1,
        "skipped": 1,
        "failed": {"tests.test_gpu::test_b": "3 is not 4"},
    }
    words = gpu_report.tests_sentence(counted)
    assert words.startswith("1 passed, 1 skipped, 1 failed.\n")
    assert "tests.test_gpu::test_b\n3 is not 4" in words


def test_without_a_gpu_the_script_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit):
        main([])
    assert "finds no CUDA device. docs/install.md says how" in capsys.readouterr().err
