"""GGUF files of strangers are refused quickly and briefly, and never loaded as another model."""

import struct
import subprocess
import sys

import numpy as np
import pytest
from hostile_gguf import refusal, tiny_file
from places import ROOT
from raw_gguf import Packed, RawTensor, text

from eab.engine.models.loading import load_model

EMBEDDING, UP = "token_embd.weight", "blk.0.ffn_up.weight"


def test_a_file_that_is_cut_anywhere_is_refused(raw, tmp_path):
    data = raw.write(tmp_path / "a.gguf").read_bytes()
    begin, end = len(raw.header()), len(data)
    last = len(raw.tensors[-1].data)
    for length in (*range(4, begin, 97), begin - 1, begin, (begin + end) // 2, end - last, end - 1):
        (tmp_path / "a.gguf").write_bytes(data[:length])
        message = refusal(tmp_path / "a.gguf")
        assert "ends within its header" in message or "its tensors take more" in message
    for length in range(4):
        (tmp_path / "a.gguf").write_bytes(data[:length])
        assert "is not a GGUF model" in refusal(tmp_path / "a.gguf")


ARRAY = 9  # the kind of a value


# How a file is damaged: each of these returns a function that changes it before it is written.
def header(**values):
    return lambda raw: [setattr(raw, name, value) for name, value in values.items()]


def field(value, name="general.name"):
    return lambda raw: raw.fields.update({name: value})


def value(*numbers, form="<IIQ", times=1):
    return field(Packed(struct.pack(form, *numbers) * times))


def tensor(**values):
    return lambda raw: [setattr(raw.tensor(UP), name, value) for name, value in values.items()]


def offset(number):
    return lambda raw: setattr(raw.tensors[3], "offset", number)


def many_empty_texts(raw):
    texts = Packed(struct.pack("<IIQ", ARRAY, 8, 900_000) + bytes(8 * 900_000))
    raw.fields |= {f"general.{name}": texts for name in "abc"}


def much_text(raw):
    raw.fields |= {f"general.{number}": "x" * 2**20 for number in range(70)}


DAMAGES = [
    (header(magic=b"GGML"), "is not a GGUF model"),
    (header(version=1), "its version is 1"),
    (header(version=3 << 24), "its version is 50331648; versions 2 and 3"),  # big-endian
    (header(field_count=2**64 - 1), "names 18,446,744,073,709,551,615 fields"),
    (header(field_count=2_001), "names 2,001 fields; at most 2,000"),
    (header(field_count=3), ""),
    (header(field_count=500), ""),
    (header(tensor_count=2**63), "names 9,223,372,036,854,775,808 tensors"),
    (header(tensor_count=20_000), ""),
    (header(tensor_count=0), "no tensor token_embd.weight"),
    (value(8, 2**63, form="<IQ"), "bytes of a text"),
    (value(8, 2**20, form="<IQ"), "ends within its header"),
    (value(ARRAY, 4, 2**63), "elements of arrays"),  # numbers
    (value(ARRAY, 12, 2_400_000), "ends within"),
    (value(ARRAY, 8, 2**64 - 1), "elements of arrays"),  # texts
    (value(ARRAY, 8, 2_400_000), "bytes of a text"),
    (value(13, 0, form="<II"), "a value of kind 13"),
    (value(ARRAY, 99, 1), "a value of kind 99"),
    (value(ARRAY, ARRAY, 1, times=1000), "a value of kind 9"),
    (many_empty_texts, "elements of arrays; at most"),
    (much_text, "the header is too large"),
    (tensor(shape=(0, 2**64 - 1)), "has a shape of"),
    (tensor(shape=(48, 0)), "has a shape of (48, 0)"),
    (tensor(shape=(2**63, 2**63, 2**63, 2**63)), "its tensors take more"),
    (tensor(shape=()), "has a shape of ()"),
    (tensor(shape=(1, 1, 1, 48, 32)), "names 5 dimensions"),
    (tensor(shape=(32, 48)), "a shape of (32, 48); the settings of the file ask for (48, 32)"),
    (tensor(shape=(1536,)), "the settings of the file ask for (48, 32)"),
    (tensor(kind=4), "the kind of the tensor"),  # a format that is no longer used
    (tensor(kind=999), "the kind of the tensor 'blk.0.ffn_up.weight' is 999"),
    (tensor(kind=12), "has a shape of (48, 32)"),  # blocks of 256
    (tensor(kind=24, data=bytes(48 * 32)), "is stored as I8, which cannot be read"),
    (tensor(kind=1), ""),
    *((offset(one), "' does not start where the previous") for one in (0, 33, 2**40, 2**64 - 1)),
    *(
        (field(one, "general.alignment"), "its alignment is")
        for one in (0, 3, 2**17, -32, 32.0, [32], True)
    ),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_a_damaged_file_is_refused(damage, reason, raw, refused):
    damage(raw)
    assert reason in refused()


def test_a_repeated_field_is_refused(raw, tmp_path):
    for key in ("llama.block_count", "general.architecture"):
        path = raw.write(tmp_path / "a.gguf", more_fields=[(key, raw.fields[key])])
        assert f"has the field '{key}' twice" in refusal(path)


def test_a_huge_file_of_zeros_is_refused(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 10, 1000))
    with path.open("r+b") as file:
        file.truncate(2**40)
    refusal(path)


def test_missing_and_surplus_tensors_are_refused(raw, tmp_path):
    path, tensors = tmp_path / "a.gguf", raw.tensors
    for index, missing in enumerate(tensors):
        raw.tensors = tensors[:index] + tensors[index + 1 :]
        if missing.name == "output.weight":  # the model then uses its embedding, as in llama.cpp
            assert load_model(str(raw.write(path)), "cpu").card.layers == 1
        else:
            expected = "no tensor token_embd" if missing.name == EMBEDDING else "is incomplete: 1"
            assert expected in refusal(raw.write(path))
    four = np.zeros(4, np.float32).tobytes()
    for name in ("blk.1.ffn_up.weight", "blk.0.ffn_up.bias", "x" * 10**6, "", "rope_freqs.weight"):
        raw.tensors = [*tensors, RawTensor(name, (4,), four)]
        refusal(raw.write(path))
    raw.tensors = [*tensors, tensors[-1]]
    assert "twice" in refusal(raw.write(path))


def test_a_tensor_far_larger_than_the_settings_allow_is_not_read(raw, tmp_path):
    """A sparse file can have any size; only the numbers that the settings ask for are read."""
    raw.tensors.append(raw.tensors.pop(raw.tensors.index(raw.tensor(UP))))
    raw.tensors[-1].shape = (2**34, 32)
    path = raw.write(tmp_path / "a.gguf")
    with path.open("r+b") as file:
        file.truncate(2**43)
    assert "the settings of the file ask for (48, 32)" in refusal(path)
    raw.tensors[-1] = RawTensor("rope_freqs.weight", (2**38,), b"")
    path = raw.write(path)
    with path.open("r+b") as file:
        file.truncate(2**43)
    assert "factors of its rotary embedding" in refusal(path)


def test_invalid_utf8_is_refused_or_replaced(raw, tmp_path):
    raw.fields |= {"general.\ufffd": b"\xff\xfe", "general.url": b"\xc3"}
    path = raw.write(tmp_path / "a.gguf")
    assert load_model(str(path), "cpu").card.layers == 1
    path.write_bytes(
        path.read_bytes().replace(text("llama.block_count"), text(b"llama.\xfflock_count"))
    )
    assert "is not supported" in refusal(path) or "lacks the setting" in refusal(path)


MEMORY = """
import resource, sys
from eab.errors import ModelError
from eab.engine.models.loading import load_tokenizer, load_model

load_model("embedded", "cpu")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    for load in (load_tokenizer, lambda name: load_model(name, "cpu")):
        try:
            load(name)
        except ModelError as error:
            print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
def test_refusing_a_file_takes_little_memory(raw, tmp_path):
    raw.fields["general.a"] = Packed(struct.pack("<IIQ", ARRAY, 12, 4_000_000) + bytes(32 * 10**6))
    numbers = raw.write(tmp_path / "numbers.gguf")
    raw.fields["general.a"] = Packed(struct.pack("<IIQ", ARRAY, 8, 2_000_000) + bytes(16 * 10**6))
    texts = raw.write(tmp_path / "texts.gguf")
    raw.fields |= {"general.a": "x", "llama.block_count": 60_000}
    layers = raw.write(tmp_path / "layers.gguf")
    wide = tiny_file()
    wide.tensor("output.weight").shape = (2**34, 32)
    wide.tensors.append(wide.tensors.pop(wide.tensors.index(wide.tensor("output.weight"))))
    sparse = wide.write(tmp_path / "sparse.gguf")
    with sparse.open("r+b") as file:
        file.truncate(2**43)
    command = [sys.executable, "-c", MEMORY, *map(str, (numbers, texts, layers, sparse))]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert out.returncode == 0, out.stderr
    *messages, more_mib = out.stdout.splitlines()
    # numbers is refused twice; layers and sparse only with the weights; texts is small enough
    assert len(messages) == 4
    assert int(more_mib) < 500
