"""What runs on processors with AVX2 and without AVX-512, and where nothing is compiled."""

import os
import subprocess
import sys

import pytest
from places import ROOT
from processor import needs_compiled

from eab.engine.compiled import VARIABLE

AVX2 = {VARIABLE: "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
OFF = {VARIABLE: "off"}
OF_COMPILED_CODE = ("engine/compiled/test_attention.py", "engine/compiled/test_products.py")
OF_BOTH_WAYS = (
    "engine/caches/test_all_caches.py",
    "engine/caches/test_tree.py",
    "labs/test_padded_and_recounted.py",
    "engine/models/quantized/test_formats.py",
    "engine/models/quantized/test_layers.py",
    "engine/models/test_own_decoder.py",
    "engine/models/test_weight_layouts.py",
)


def told_with(limits, program):
    told = subprocess.run(
        [sys.executable, *program],
        cwd=ROOT,
        env=os.environ | limits,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
    return told.stdout


@pytest.mark.slow
@pytest.mark.parametrize("limits", [pytest.param(AVX2, marks=needs_compiled, id="avx2"), OFF])
def test_the_tests_that_depend_on_the_processor_pass(limits):
    files = [f"tests/{file}" for file in (*OF_COMPILED_CODE, *OF_BOTH_WAYS)]
    assert " failed" not in told_with(
        limits, ["-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    )


@pytest.mark.slow
@needs_compiled
def test_the_variable_limits_what_is_compiled():
    program = (
        "from eab.engine import compiled; print(compiled.can_compile()); "
        "from eab.engine.compiled.llvm_code import LANES; print(LANES)"
    )
    assert told_with({VARIABLE: "avx2"}, ["-c", program]).split() == ["True", "8"]
    assert told_with(OFF, ["-c", program]).split()[0] == "False"
