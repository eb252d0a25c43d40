"""The file in which a process counts for Prometheus: its disk space is allocated before it is mapped, and with a full
disk the process counts in memory.
"""

from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

from prometheus_client.mmap_dict import _INITIAL_MMAP_SIZE, MmapedDict

from tasks.worker.file_allocation import allocate_file, map_new_file

#: Bytes in front of the entries: how many are used, and padding.
_HEAD = 8
#: Most bytes of an entry beside its key: its length, padding, the value and its time.
_BESIDE_KEY = 4 + 8 + 16


class AllocatedDict(MmapedDict):
    """prometheus_client's dictionary of counts, whose space on the disk is taken before it is mapped.

    Attributes:
        in_file: whether the file has what is counted.
        on_full: called when a file cannot be had or enlarged, with the error.
    """

    on_full: Callable[[OSError], None] = staticmethod(lambda error: None)

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        self.in_file = True
        path = Path(filename)
        if not read_mode and not (path.exists() and path.stat().st_size):
            try:
                map_new_file(path, _INITIAL_MMAP_SIZE).close()
            except FileNotFoundError:
                # The folder is gone: whoever counts makes it again, and counts in a file from then on.
                raise
            except OSError as error:
                self._f: Any = None
                self._fname, self._positions = filename, dict[str, int]()
                self._capacity, self._used, self._m = _INITIAL_MMAP_SIZE, _HEAD, mmap(-1, _INITIAL_MMAP_SIZE)
                self._leave_file(error)
                return
        super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]

    def sync(self) -> bool:
        """Bring the counts to the disk; return whether the file has all of them."""
        if self.in_file:
            self._m.flush()
        return self.in_file

    def close(self) -> None:
        """Close the file, if there is one."""
        if self.in_file:
            super().close()  # type: ignore[no-untyped-call]

    def _init_value(self, key: str) -> None:
        needed = self._used + len(key.encode()) + _BESIDE_KEY
        if needed > self._capacity:
            self._enlarge(needed)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _enlarge(self, needed: int) -> None:
        size = self._capacity
        while size < needed:
            size *= 2
        if self.in_file:
            try:
                allocate_file(self._f.fileno(), size)
                self._m, self._capacity = mmap(self._f.fileno(), size), size
                return
            except OSError as error:
                self._leave_file(error)
        before, self._m, self._capacity = self._m, mmap(-1, size), size
        self._m[: self._used] = before[: self._used]

    def _leave_file(self, error: OSError) -> None:
        """Go on in memory: who scrapes sees what was counted until now."""
        self.in_file = False
        if self._f is not None:
            self._f.close()
        type(self).on_full(error)


class FoldedDict(AllocatedDict):
    """The sum of what ended processes have counted; a full disk postpones it, and no process is unseen for that."""

    on_full: Callable[[OSError], None] = staticmethod(lambda error: None)
