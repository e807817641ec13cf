"""What callers may pass as a list."""


def is_iterable(given: object) -> bool:
    """Whether it can be iterated over; a NumPy array without dimensions only seems to be."""
    try:
        iter(given)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True
