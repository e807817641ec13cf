"""Numbers in words, the same on the page and in the terminal."""


def human_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def counted(number: int, thing: str) -> str:
    """2, 'path' -> '2 paths'."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
