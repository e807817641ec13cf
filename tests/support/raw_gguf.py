"""GGUF files byte for byte, so that any of them can be wrong."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eab.models.gguf.header import read_header, read_tensor

ALIGNMENT = 32


@dataclass(frozen=True)
class Packed:
    """A value of the metadata as its bytes, with its kind."""

    bytes: bytes


@dataclass
class RawTensor:
    """A tensor as a file names it; `offset` is where the one before ends if it is None."""

    name: str
    shape: Sequence[int]  # in the order of PyTorch
    data: bytes
    kind: int = 0
    offset: int | None = None


@dataclass
class RawFile:
    """What a file holds; numbers that are None are the true ones."""

    fields: dict[str, Any]
    tensors: list[RawTensor]
    magic: bytes = b"GGUF"
    version: int = 3
    field_count: int | None = None
    tensor_count: int | None = None

    def tensor(self, name: str) -> RawTensor:
        """The tensor of this name."""
        [found] = [tensor for tensor in self.tensors if tensor.name == name]
        return found

    def header(self, more_fields: Iterable[tuple[str, Any]] = ()) -> bytes:
        """All before the data of the tensors."""
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
        """The file, at `path`."""
        data = b"".join(padded(tensor.data) for tensor in self.tensors)
        path.write_bytes(self.header(more_fields) + data)
        return path


def raw_file(path: Path) -> RawFile:
    """What a whole file holds."""
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
    """A value of the metadata, with its kind before it."""
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
