"""GGUF files written byte by byte, so that a test can corrupt any part of them."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eab.engine.models.gguf.header import read_header, read_tensor

ALIGNMENT = 32


@dataclass(frozen=True)
class Packed:
    """A metadata value as bytes, including its kind."""

    bytes: bytes


@dataclass
class RawTensor:
    """A tensor in a file. An `offset` of None stands for the end of the previous tensor."""

    name: str
    shape: Sequence[int]  # in PyTorch's order
    data: bytes
    kind: int = 0
    offset: int | None = None


@dataclass
class RawFile:
    """The content of a file. Counts that are None are written correctly."""

    fields: dict[str, Any]
    tensors: list[RawTensor]
    magic: bytes = b"GGUF"
    version: int = 3
    field_count: int | None = None
    tensor_count: int | None = None

    def tensor(self, name: str) -> RawTensor:
        """The tensor with this name."""
        [found] = [tensor for tensor in self.tensors if tensor.name == name]
        return found

    def header(self, more_fields: Iterable[tuple[str, Any]] = ()) -> bytes:
        """The bytes of the file before the data of its tensors."""
        fields = [*self.fields.items(), *more_fields]
        counts = (self.tensor_count, len(self.tensors)), (self.field_count, len(fields))
        parts = [self.magic, struct.pack("<I", self.version)]
        parts += [struct.pack("<Q", real if said is None else said) for said, real in counts]
        parts += [text(key) + value(held) for key, held in fields]
        offset = 0
        for one in self.tensors:
            place = offset if one.offset is None else one.offset
            numbers = [len(one.shape), *reversed(one.shape), one.kind, place]
            layout = f"<I{len(one.shape)}QIQ"
            parts.append(text(one.name) + struct.pack(layout, *numbers))
            offset += len(padded(one.data))
        return padded(b"".join(parts))

    def write(self, path: Path, more_fields: Iterable[tuple[str, Any]] = ()) -> Path:
        """Write the file to `path`, and return `path`."""
        data = b"".join(padded(tensor.data) for tensor in self.tensors)
        path.write_bytes(self.header(more_fields) + data)
        return path


def raw_file(path: Path) -> RawFile:
    """The content of a valid file."""
    header = read_header(path)
    with path.open("rb") as file:
        tensors = [
            RawTensor(one.name, one.shape, read_tensor(file, one), one.kind)
            for one in header.tensors.values()
        ]
    return RawFile(dict(header.metadata), tensors)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def text(held: str | bytes) -> bytes:
    encoded = held.encode() if isinstance(held, str) else held
    return struct.pack("<Q", len(encoded)) + encoded


def value(held: Any) -> bytes:
    """The bytes of a metadata value, preceded by its kind."""
    if isinstance(held, Packed):
        return held.bytes
    if isinstance(held, list):
        kind = kind_of(held[0]) if held else 4
        elements = b"".join(single(kind, one) for one in held)
        return struct.pack("<IIQ", 9, kind, len(held)) + elements
    kind = kind_of(held)
    return struct.pack("<I", kind) + single(kind, held)


def kind_of(held: Any) -> int:
    if isinstance(held, int) and not isinstance(held, bool):
        return 4 if 0 <= held < 2**32 else 10 if held > 0 else 11
    return {bool: 7, float: 6, str: 8, bytes: 8}[type(held)]


def single(kind: int, held: Any) -> bytes:
    return text(held) if kind == 8 else struct.pack(f"<{'....I.f?..Qq'[kind]}", held)
