"""The header of a GGUF file: its metadata and the location of its tensors.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Files are read, never mapped
into memory: if a mapped file is truncated, the process is killed (SIGBUS).
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from eab.engine.models.sources import MAGIC, parts_of_gguf
from eab.errors import ModelError
from eab.formatting import human_bytes, quoted

VERSIONS: Final = (2, 3)
MAX_FIELDS: Final = 2_000
MAX_TENSORS: Final = 20_000
MAX_ELEMENTS: Final = 2_500_000  # in all arrays; the largest vocabularies have 262,144 tokens
MAX_TEXT: Final = 2**20  # bytes of one string, such as a chat template
MAX_HEADER: Final = 2**26  # bytes of metadata and the list of tensors
MAX_PARTS: Final = 512
_ALIGNMENT: Final = 32
_ALIGNMENTS: Final = tuple(2**power for power in range(17))
_MAX_DIMENSIONS: Final = 4
_TEXT, _ARRAY = 8, 9
_NUMBERS: Final = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor is and how it is stored."""

    name: str
    shape: tuple[int, ...]  # in PyTorch's order: the last dimension is contiguous
    kind: GGMLQuantizationType
    file: Path
    start: int  # offset of its first byte in the file
    bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a GGUF model."""

    files: tuple[Path, ...]  # more than one if the model is split
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    @property
    def architecture(self) -> str:
        """The model family, by llama.cpp's name."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def tokens(self) -> list[str]:
        """The vocabulary; ModelError if there is none."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], str):
            raise self.refusal("it has no vocabulary")
        return tokens

    def token_id(self, role: str) -> int | None:
        """The id of the token with a role such as `eos`; None if there is none."""
        key = f"tokenizer.ggml.{role}_token_id"
        value, most = self.metadata.get(key), len(self.tokens) - 1
        if value is None or (type(value) is int and 0 <= value <= most):
            return value
        raise self.refusal(f"its {key} is {quoted(value)}; it must be from 0 to {most:,}")

    def refusal(self, reason: str) -> ModelError:
        """The error that says why the file cannot be used."""
        return _damaged(self.files[0], reason)


def read_header(path: Path) -> Header:
    """Read the header of a model: of its single file, or of all parts if `path` is the first one.

    Raises:
        ModelError: The file cannot be read, is damaged, or exceeds the limits.
    """
    metadata, tensors = _read_part(path)
    count = metadata.get("split.count", 1)
    if not isinstance(count, int) or not 1 <= count <= MAX_PARTS:
        raise _damaged(path, f"it says that it has {quoted(count)} parts")
    if count == 1:
        return Header((path,), metadata, tensors)
    files = _parts(path, count)
    for number, part in enumerate(files[1:], 1):
        its_own, more = _read_part(part)
        place = its_own.get("split.no", number), its_own.get("split.count", count)
        if place != (number, count):
            raise _damaged(part, "its metadata gives another part number than its name")
        if both := tensors.keys() & more.keys():
            raise _damaged(part, f"it repeats the tensor {quoted(min(both))} of another part")
        tensors |= more
    if metadata.get("split.tensors.count", len(tensors)) != len(tensors):
        raise _damaged(
            path,
            f"its {count} parts have {len(tensors):,} tensors, but its header gives another number",
        )
    return Header(files, metadata, tensors)


def _parts(path: Path, count: int) -> tuple[Path, ...]:
    """The files of a split model; `path` must be the first."""
    files = parts_of_gguf(path)
    if len(files) != count:
        raise ModelError(
            f"{quoted(str(path))} is one of {count} parts; give the first, whose name ends in "
            f"-00001-of-{count:05d}.gguf"
        )
    for part in files:
        if not part.is_file():
            raise ModelError(f"the model is incomplete: its part {quoted(part.name)} is missing")
    return files


def _read_part(path: Path) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            return _parse(_Reader(path, file, min(size, MAX_HEADER)), size)
    except OSError as error:
        raise ModelError(f"{quoted(str(path))} cannot be read: {error.strerror}") from error


def _parse(reader: "_Reader", size: int) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    if reader.bytes(4) != MAGIC:
        raise ModelError(
            f"{quoted(str(reader.path))} is not a GGUF file: it begins with other bytes"
        )
    version, tensor_count, field_count = reader.numbers("IQQ")
    if version not in VERSIONS:
        raise _damaged(reader.path, f"its version is {version}; versions 2 and 3 can be read")
    reader.check_count("fields", field_count, MAX_FIELDS)
    reader.check_count("tensors", tensor_count, MAX_TENSORS)
    metadata: dict[str, Any] = {}
    for _ in range(field_count):
        key = reader.text()
        if key in metadata:
            raise _damaged(reader.path, f"it has the field {quoted(key)} twice")
        metadata[key] = reader.value()
    entries = [_entry(reader) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or alignment not in _ALIGNMENTS:
        raise _damaged(reader.path, f"its alignment is {quoted(alignment)}")
    return metadata, _placed(reader.path, entries, reader.position, alignment, size)


def _entry(reader: "_Reader") -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, kind and offset of a tensor."""
    name = reader.text()
    (count,) = reader.numbers("I")
    reader.check_count(f"dimensions of {quoted(name)}", count, _MAX_DIMENSIONS)
    shape = reader.numbers(f"{count}Q")
    kind, offset = reader.numbers("IQ")
    return name, tuple(reversed(shape)), kind, offset


def _placed(
    path: Path,
    entries: Sequence[tuple[str, tuple[int, ...], int, int]],
    position: int,
    alignment: int,
    size: int,
) -> dict[str, TensorInfo]:
    """Locate the tensors: in the file, none twice, one right after the other as in llama.cpp."""
    tensors: dict[str, TensorInfo] = {}
    start = begin = _aligned(position, alignment)
    for name, shape, number, offset in entries:
        kind, held = _kind_and_bytes(path, name, shape, number)
        if name in tensors:
            raise _damaged(path, f"it has the tensor {quoted(name)} twice")
        if begin + offset != start:
            place = "does not start where the previous one ends"
            raise _damaged(path, f"the tensor {quoted(name)} {place}")
        if start + held > size:
            raise _damaged(path, f"it has {human_bytes(size)}, and its tensors take more")
        tensors[name] = TensorInfo(name, shape, kind, path, start, held)
        start = _aligned(start + held, alignment)
    return tensors


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _kind_and_bytes(
    path: Path, name: str, shape: tuple[int, ...], number: int
) -> tuple[GGMLQuantizationType, int]:
    """How a tensor is stored and how many bytes it takes."""
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        raise _damaged(path, f"the kind of the tensor {quoted(name)} is {number}") from None
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if not shape or 0 in shape or shape[-1] % block:
        raise _damaged(path, f"the tensor {quoted(name)} has a shape of {quoted(shape)}")
    return kind, prod(shape) // block * block_bytes


class _Reader:
    """Reads the values of a header in order."""

    def __init__(self, path: Path, file: BinaryIO, end: int) -> None:
        self.path, self.position, self._elements = path, 0, 0
        self._file, self._end = file, end

    def bytes(self, count: int) -> bytes:
        """The next bytes."""
        self.position += count
        data = self._file.read(count) if self.position <= self._end else b""
        if len(data) < count:
            raise _damaged(self.path, "it ends within its header, or the header is too large")
        return data

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        """The next numbers; `kinds` are format characters of `struct`."""
        layout = struct.Struct(f"<{kinds}")
        return layout.unpack(self.bytes(layout.size))

    def text(self) -> str:
        """The next string."""
        length = int.from_bytes(self.bytes(8), "little")
        self.check_count("bytes of a text", length, MAX_TEXT)
        return self.bytes(length).decode("utf-8", "replace")

    def value(self) -> Any:
        """The next metadata value."""
        (kind,) = self.numbers("I")
        if kind != _ARRAY:
            return self._single(kind)
        kind, count = self.numbers("IQ")
        self._elements += count
        self.check_count("elements of arrays", self._elements, MAX_ELEMENTS)
        if kind in _NUMBERS:
            return list(self.numbers(f"{count}{_NUMBERS[kind]}"))
        return [self._single(kind) for _ in range(count)]

    def _single(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind not in _NUMBERS:  # includes arrays of arrays, which no model has
            raise _damaged(self.path, f"it has a value of kind {kind}")
        return self.numbers(_NUMBERS[kind])[0]

    def check_count(self, things: str, count: int, most: int) -> None:
        """Raise ModelError if the count is above its limit."""
        if count > most:
            raise _damaged(self.path, f"it names {count:,} {things}; at most {most:,} are allowed")


def read_tensor(file: BinaryIO, tensor: TensorInfo) -> bytes:
    """The bytes of a tensor; ModelError if the file has become shorter."""
    file.seek(tensor.start)
    data = file.read(tensor.bytes)
    if len(data) < tensor.bytes:
        raise ModelError(f"{quoted(str(tensor.file))} became shorter while it was read; try again")
    return data


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"the GGUF file {quoted(str(path))} cannot be used: {reason}. Copy or download it again"
    )
