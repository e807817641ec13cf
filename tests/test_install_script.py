"""Which PyTorch build `make` installs, as scripts/install.py decides; pip is never run."""

import importlib.util
import re
from types import ModuleType

import pytest
from places import ROOT

pytestmark = pytest.mark.slow

TORCH = "torch==2.13.0"
CUDA = ["filelock", "nvidia-cublas==13.1; platform_system == 'Linux'"]
CPU = ["filelock", "sympy"]


@pytest.fixture
def install() -> ModuleType:
    """scripts/install.py as a module."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "scripts" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("index", "installed", "build", "notice"),
    [
        ({TORCH: CUDA, f"{TORCH}+cpu": CPU}, "", [f"{TORCH}+cpu"], rf"{TORCH}\+cpu"),
        ({TORCH: CUDA}, "", [], f"gigabytes(.|\n)*pip install {TORCH} --index-url"),
        ({TORCH: CPU}, "", [], "^$"),  # a CPU build without a label
        ({TORCH: CUDA, f"{TORCH}+cpu": CPU}, "2.13.0", [], "^$"),  # the installed build is kept
    ],
    ids=["offered", "not offered", "no label", "installed"],
)
def test_the_cpu_build_is_chosen_where_offered_and_a_cuda_build_is_announced(
    install: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    index: dict[str, list[str]],
    installed: str,
    build: list[str],
    notice: str,
) -> None:
    monkeypatch.setattr(install, "_found", index.get)
    monkeypatch.setattr(install, "_installed", lambda _: installed)
    assert install._cpu_build(TORCH) == build
    assert re.search(notice, capsys.readouterr().out)


@pytest.mark.parametrize(("platform", "driver"), [("linux", True), ("darwin", False)])
def test_pip_chooses_the_build_itself_with_a_driver_or_on_another_system(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, platform: str, driver: bool
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        commands.append(command)
        return install.subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(install, "_installed", lambda _: "")
    monkeypatch.setattr(install.sys, "platform", platform)
    monkeypatch.setattr(install, "_nvidia_driver", lambda: driver)
    monkeypatch.setattr(install.subprocess, "run", run)
    with pytest.raises(SystemExit) as ended:
        install.main()
    assert ended.value.code == 0
    [command] = commands
    assert command[-1].endswith("requirements.txt")
    assert f"{TORCH}+cpu" not in command
