"""Which build of PyTorch `make` installs: scripts/install.py decides, pip is asked but not run."""

import importlib.util
from types import ModuleType

import pytest
from places import ROOT

pytestmark = pytest.mark.slow

TORCH = "torch==2.13.0"
CUDA = ["filelock", "nvidia-cublas==13.1; platform_system == 'Linux'"]
CPU = ["filelock", "sympy"]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on a machine where no torch is installed."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "scripts" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_installed", lambda _: "")
    return module


def offers(
    monkeypatch: pytest.MonkeyPatch, install: ModuleType, index: dict[str, list[str]]
) -> None:
    """Let the package index have these requirements, each with what it requires in turn."""
    monkeypatch.setattr(install, "_found", index.get)


def test_the_cpu_build_is_taken_where_it_is_offered(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offers(monkeypatch, install, {TORCH: CUDA, f"{TORCH}+cpu": CPU})
    assert install._cpu_build(TORCH) == [f"{TORCH}+cpu"]
    assert f"{TORCH}+cpu" in capsys.readouterr().out


def test_the_cuda_build_is_announced_with_the_way_around_it(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offers(monkeypatch, install, {TORCH: CUDA})
    assert install._cpu_build(TORCH) == []
    notice = capsys.readouterr().out
    assert "gigabytes" in notice
    assert f"pip install {TORCH} --index-url" in notice


def test_a_cpu_build_without_a_label_needs_no_notice(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offers(monkeypatch, install, {TORCH: CPU})
    assert install._cpu_build(TORCH) == []
    assert capsys.readouterr().out == ""


def test_an_installed_torch_is_kept(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offers(monkeypatch, install, {TORCH: CUDA, f"{TORCH}+cpu": CPU})
    monkeypatch.setattr(install, "_installed", lambda _: "2.13.0")
    assert install._cpu_build(TORCH) == []
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("platform", "driver"), [("linux", True), ("darwin", False)])
def test_pip_chooses_alone_with_a_driver_or_on_another_system(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, platform: str, driver: bool
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        commands.append(command)
        return install.subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(install.sys, "platform", platform)
    monkeypatch.setattr(install, "_nvidia_driver", lambda: driver)
    monkeypatch.setattr(install.subprocess, "run", run)
    with pytest.raises(SystemExit) as ended:
        install.main()
    assert ended.value.code == 0
    [command] = commands
    assert command[-1].endswith("requirements.txt")
    assert f"{TORCH}+cpu" not in command
