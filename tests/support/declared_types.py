"""The types in eab/board/static/types.d.ts, and a check that a JSON value has one of them. Only the
syntax that the types of messages use is supported.
"""

import re
from typing import Any

from eab.board import bundle

_TOKEN = re.compile(r'"[^"]*"|\w+|[^\s\w]')
_SOURCE = re.sub(r" *//.*|/\*[\s\S]*?\*/", "", (bundle.FOLDER / "types.d.ts").read_text("utf-8"))
FIELDS: dict[str, dict[str, tuple[bool, str]]] = {
    name: {
        field: (bool(optional), declared)
        for field, optional, declared in re.findall(r"^  (\w+)(\??): (.+);$", body, re.MULTILINE)
    }
    for name, body in re.findall(r"^export interface (\w+) \{\n(.*?)^\}", _SOURCE, re.M | re.S)
}  # by interface and field: whether the field is optional, and its type
_ALIASES: dict[str, str] = dict(re.findall(r"^export type (\w+) =\s([^;]+);", _SOURCE, re.M))
_PLAIN: dict[str, tuple[type, ...]] = {"number": (int, float), "string": (str,), "boolean": (bool,)}


def fits(value: Any, declared: str) -> bool:
    """Whether a JSON value has this type."""
    tokens = _TOKEN.findall(declared)
    found = _union(tokens, value)
    assert not tokens, f"not understood: {declared}"
    return found


def _union(tokens: list[str], value: Any) -> bool:
    found = False
    while True:
        found |= _one(tokens, value)
        if tokens[:1] != ["|"]:
            return found
        del tokens[0]


def _one(tokens: list[str], value: Any) -> bool:
    end = _end(tokens)
    alone, tokens[:end] = tokens[:end], []
    if tokens[:2] == ["[", "]"]:
        del tokens[:2]
        return isinstance(value, list) and all(_primary([*alone], one) for one in value)
    return _primary(alone, value)


def _end(tokens: list[str]) -> int:
    """The index after the first type, without the `[]` of an array."""
    if tokens[0] not in "([":
        return 4 if tokens[1:2] == ["<"] else 1
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token in "([") - (token in ")]")
        if not depth:
            return index + 1
    raise AssertionError(f"a bracket is open: {tokens}")


def _primary(tokens: list[str], value: Any) -> bool:
    name = tokens[0]
    if name == "(":
        return _union(tokens[1:-1], value)
    if name == "[":
        return _tuple(" ".join(tokens[1:-1]), value)
    if name[0] == '"':
        return bool(value == name[1:-1])
    if name == "null":
        return value is None
    if name in _PLAIN:
        return isinstance(value, _PLAIN[name]) and (name == "boolean") == isinstance(value, bool)
    if name in _ALIASES:
        return fits(value, _ALIASES[name])
    if name == "Partial":
        return _interface(tokens[2], value, partial=True)
    return _interface(name, value)


def _tuple(members: str, value: Any) -> bool:
    parts = re.findall(r"\w+ (\??) ?: ((?:[^,[]|\[[^\]]*\])+)", members)
    required = [part for part in parts if not part[0]]
    if not isinstance(value, list) or not len(required) <= len(value) <= len(parts):
        return False
    return all(fits(one, declared) for one, (_, declared) in zip(value, parts, strict=False))


def _interface(name: str, value: Any, partial: bool = False) -> bool:
    fields = FIELDS[name]
    needed = {field for field, (optional, _) in fields.items() if not optional and not partial}
    if not isinstance(value, dict) or not needed <= value.keys() <= fields.keys():
        return False
    return all(fits(one, fields[field][1]) for field, one in value.items())
