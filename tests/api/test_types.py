"""Type checkers and editors know the settings: wrong ones are found before a program runs."""

import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from mypy import api as mypy
from places import ROOT

from eab.api.settings import OtherSettings, Settings
from eab.config import SETTINGS

GOOD = """
import re
import torch
import eab
from eab.analysis.answer_rules import check_part
from eab.analysis.answers import group_answers
from eab import EntropyAdaptiveBranching, Run, Settings
from eab.engine.branching.fair import FairPolicy
from transformers import MinPLogitsWarper

explorer = EntropyAdaptiveBranching("embedded", 0.5, max_paths=4, dtype=torch.float32, stop=["x"])
wide: Settings = {"preset": "wide", "max_new_tokens": 3}
run: Run = explorer.run("Once", **wide)
runs: list[Run] = explorer.generate_batch(["a", "b"])
explorer.run([{"role": "user", "content": "b"}])
weight: float = explorer.generate([1, 2, 3], top_k=None)[0].weight
explorer.run("Once", policy=lambda prediction, leaf: prediction.entropy > 1 / leaf.weight)
explorer.run("Once", policy=FairPolicy, logits_processor=[MinPLogitsWarper(0.1)])
eab.show("coin.eab"), eab.show(run), eab.show(run.events)
run.what_if(threshold=1.0).save("x.eab")
group_answers(run, "sentence"), run.answers(re.compile("(x)")), run.uncertainty("text")
group_answers(run, check_part("regex:(x)"))
"""
BAD = """
import eab
from eab import EntropyAdaptiveBranching
explorer = EntropyAdaptiveBranching("embedded")
explorer.run("Once", max_new_token=3)
explorer.run("Once", temperature="hot")
explorer.run("Once", policy="unfair")
explorer.run("Once", policy=lambda prediction: True)
explorer.generate(3)
EntropyAdaptiveBranching(12345)
EntropyAdaptiveBranching("embedded", max_path=3)
explorer.run("Once").answers(part=3)
explorer.run("Once").uncertainty("sentences")
eab.show(42)
"""


def test_the_types_name_every_setting() -> None:
    assert set(get_type_hints(Settings)) == {
        "preset",
        "logits_processor",
        "parse_special",
        *SETTINGS,
    }
    first = {"entropy_threshold", "branch_factor", "max_paths"}
    assert (
        set(get_type_hints(OtherSettings))
        == {"preset", "logits_processor", "parse_special", *SETTINGS} - first
    )


# Of other packages, only what the types of the library name is read.
OPTIONS = """
[mypy]
strict = True
[mypy-eab.*]
follow_imports = silent
[mypy-torch._*,torch.ao.*,torch.distributed.*,torch.export.*,torch.fx.*,torch.onnx.*,torch.testing.*,torch.utils.*]
follow_imports = skip
[mypy-transformers.integrations.*,transformers.models.*,transformers.quantizers.*,huggingface_hub.*,peft.*]
follow_imports = skip
[mypy-IPython.*,matplotlib.*,networkx.*,numpy.*,pandas.*,ray.*,sympy.*]
follow_imports = skip
"""


@pytest.mark.slow
def test_a_type_checker_finds_exactly_the_wrong_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("good.py", GOOD), ("bad.py", BAD), ("mypy.ini", OPTIONS)):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'test_types'}"  # a first run takes a minute
    out, _, _ = mypy.run([f"--python-executable={sys.executable}", cache, "good.py", "bad.py"])
    found = [line.split(":")[:2] for line in out.splitlines() if ": error:" in line]
    lines = range(5, len(BAD.splitlines()) + 1)
    assert found == [["bad.py", str(line)] for line in lines], out
