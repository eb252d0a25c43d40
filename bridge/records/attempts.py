"""How often a delivery was attempted, and why again: counted apart, and durable (pure)."""

from typing import Final, NamedTuple


class Attempts(NamedTuple):
    """What has become of a delivery's attempts so far.

    Attributes:
        failed: runs that failed and spent a retry.
        lost: processes, workers or machines that died with it.
        postponed: times that it was put off without fault of its own: `RetryLater`, a halt, a breaker.
        replayed: times that a person sent it back.
    """

    failed: int = 0
    lost: int = 0
    postponed: int = 0
    replayed: int = 0

    def plus(self, failed: int = 0, lost: int = 0, postponed: int = 0, replayed: int = 0) -> "Attempts":
        """The same with more of each."""
        return Attempts(self.failed + failed, self.lost + lost, self.postponed + postponed, self.replayed + replayed)

    def __str__(self) -> str:
        """`3 failed, 1 lost`; `none` where there were none."""
        said = ", ".join(f"{count} {name}" for name, count in zip(self._fields, self, strict=True) if count)
        return said or "none"


#: Those of what was never attempted.
NONE: Final = Attempts()
