"""How much something has grown within the last minute (pure)."""

from typing import Final

#: Seconds over which it is counted.
MINUTE: Final = 60.0


class Minute:
    """How much a number that only grows has grown within the last minute."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def see(self, now: float, total: int) -> int:
        """Take in what it is now; return by how much it has grown. One that is less than before begins anew."""
        if self._seen and total < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, total))
        # The last that is a minute old stays: since then it is counted.
        while len(self._seen) > 1 and self._seen[1][0] <= now - MINUTE:
            del self._seen[0]
        return total - self._seen[0][1]
