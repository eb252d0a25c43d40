"""Whether the kernel has killed a process for want of memory: it counts that, and tells nobody whom it was."""

from contextlib import suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


class Kills:
    """How often that has happened among the processes that share this one's memory limit.

    Parameters:
        events: the file in which the kernel counts; found out where it is not given.
    """

    def __init__(self, events: Path | None = None) -> None:
        self._events = events or _own_events()
        self._seen = self._count()

    def more(self) -> bool:
        """Whether there are more than when this was asked last; never where nobody counts."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        with suppress(OSError, ValueError, IndexError):
            for line in self._events.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0


def _own_events() -> Path:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                return _GROUPS / line[4:] / "memory.events"
    return _GROUPS / "memory.events"


_own: list[Kills] = []


def kills() -> Kills:
    """Those of this process's group, counted from the first time that this is called."""
    if not _own:
        _own.append(Kills())
    return _own[0]
