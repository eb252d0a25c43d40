"""How long something lasts, in words (pure)."""

from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def lasting(ms: int) -> str:
    """In two units at most: `3 min 41 s`, `28 ms`.

    Parameters:
        ms: milliseconds.
    """
    if ms < 1_000:
        return f"{max(0, ms)} ms"
    seconds = ms // 1_000
    at = next(index for index, (size, _) in enumerate(_UNITS) if seconds >= size)
    found = []
    for size, unit in _UNITS[at : at + 2]:
        count, seconds = divmod(seconds, size)
        if count:
            found.append(f"{count} {unit}")
    return " ".join(found)
