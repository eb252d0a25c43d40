"""How far a process has come in its batch, where the worker's main process can read it after the process was lost.

Marks reach the ledger a few milliseconds after a handler has ended. A message that kills its process in these takes
with it what its neighbours were told: so what is done is noted in memory that outlives the process, too. So is what
runs: that one, and no neighbour, is charged with the process (tasks/aftermath.py).
"""

import os
import shutil
import struct
import tempfile
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Final

from tasks import metrics, observing
from tasks.aftermath import Notes
from tasks.allocation import map_new_file

logger = observing.log(__name__)

#: The folder of a worker's notes, one file a process; in the environment, so that children that are spawned have it.
FOLDER: Final = "WORKER_PROGRESS_DIR"
#: Bytes of a file: some 8,000 offsets. What is done beyond that is the ledger's to tell.
SIZE: Final = 65_536
#: How many offsets follow, and how long the task's id is; the offsets begin at `_OFFSETS`, behind the id.
_HEAD: Final = struct.Struct("<IH")
_OFFSET: Final = struct.Struct("<Q")
#: Where the offset of the delivery that runs stands, and one more than it: zero where none does.
_RUNNING: Final = 1_016
_OFFSETS: Final = 1_024


class Progress:
    """The notes of this process on one task.

    Parameters:
        notes: `None` where there is nowhere to write them.
    """

    def __init__(self, notes: mmap | None, task_id: str) -> None:
        name = task_id.encode()
        self._notes = notes if len(name) <= _RUNNING - _HEAD.size else None
        self._count = 0
        if self._notes is not None:
            # Nothing of the task before may be read as this one's, however soon the process ends.
            _HEAD.pack_into(self._notes, 0, 0, 0)
            _OFFSET.pack_into(self._notes, _RUNNING, 0)
            self._notes[_HEAD.size : _HEAD.size + len(name)] = name
            _HEAD.pack_into(self._notes, 0, 0, len(name))
            self._length = len(name)

    def running(self, offset: int) -> None:
        """Note that a delivery is about to run: if the process is lost from now on, that is with this one."""
        if self._notes is not None:
            _OFFSET.pack_into(self._notes, _RUNNING, offset + 1)

    def done(self, offset: int) -> None:
        """Note that a delivery's handler has ended well."""
        at = _OFFSETS + self._count * _OFFSET.size
        if self._notes is None or at + _OFFSET.size > SIZE:
            return
        _OFFSET.pack_into(self._notes, at, offset)
        self._count += 1
        _HEAD.pack_into(self._notes, 0, self._count, self._length)


def keep_notes() -> None:
    """Make the folder. Call it in the worker's main process, before its children start."""
    global _own
    try:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="worker-progress-", dir=memory)
        _own = (os.getpid(), os.environ[FOLDER])
    except OSError as error:
        os.environ.pop(FOLDER, None)
        logger.warning("no notes are kept of what is done of a batch: %s", error)


def begin(task_id: str) -> Progress:
    """Begin the notes on a task that carries several deliveries."""
    return Progress(_notes(), task_id)


def notes_of(pid: int, task_id: str) -> Notes:
    """What a process which is no more had noted on a task."""
    with suppress(OSError, KeyError, struct.error):
        data = (Path(os.environ[FOLDER]) / str(pid)).read_bytes()
        count, length = _HEAD.unpack_from(data)
        if data[_HEAD.size : _HEAD.size + length] == task_id.encode():
            (running,) = _OFFSET.unpack_from(data, _RUNNING)
            done = _OFFSET.iter_unpack(data[_OFFSETS : _OFFSETS + count * _OFFSET.size])
            return Notes(frozenset(offset for (offset,) in done), running - 1 if running else None)
    return Notes()


def forget(pid: int) -> None:
    """Remove the notes of a process that is no more, or ends."""
    with suppress(OSError, KeyError):
        (Path(os.environ[FOLDER]) / str(pid)).unlink()


def remove_notes() -> None:
    """Remove the folder, if this process has made it."""
    if _own is not None and _own[0] == os.getpid():
        shutil.rmtree(_own[1], ignore_errors=True)


def _notes() -> mmap | None:
    # What a child has inherited by a fork is its parent's.
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), _opened())
    return _of_process[1]


def _opened() -> mmap | None:
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    try:
        return map_new_file(Path(folder) / str(os.getpid()), SIZE)
    except OSError as error:
        metrics.unseen("notes", error)
        return None


_own: tuple[int, str] | None = None
_of_process: tuple[int, mmap | None] | None = None
