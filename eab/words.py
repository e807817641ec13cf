"""Numbers in words, the same on the page and in the terminal."""

from collections.abc import Sequence


def human_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def listed(words: Sequence[str]) -> str:
    """['a', 'b', 'c'] -> 'a, b and c'."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def counted(number: int, thing: str) -> str:
    """2, 'path' -> '2 paths'; 2, 'guess' -> '2 guesses'."""
    return f"{number} {thing}" + ("" if number == 1 else "es" if thing.endswith("s") else "s")
