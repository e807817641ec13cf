"""What is compiled on processors with AVX2 and without AVX-512, where vectors have 8 lanes."""

import subprocess
import sys

import pytest
from places import ROOT
from processor import needs_compiled

HIDING_AVX512 = """
import sys, pytest, torch
found = torch.cpu.get_capabilities()
fewer = {name: value and not name.startswith("avx512") for name, value in found.items()}
torch.cpu.get_capabilities = lambda: fewer
from eab.compiled.vectors import LANES
assert LANES == 8
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-W", "error", *sys.argv[1:]]))
"""


@needs_compiled
@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "compiled/test_attention.py",
        "compiled/test_before_and_after.py",
        "compiled/test_products.py",
        "models/test_fused_layers.py",
    ],
)
def test_the_tests_of_compiled_code_pass(file):
    told = subprocess.run(
        [sys.executable, "-c", HIDING_AVX512, f"tests/{file}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
