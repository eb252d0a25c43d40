"""The progress of a batch: the state of its deliveries in this run, their ends, and notes in shared memory that the
worker's main process reads after a process was lost.
"""

import os
import shutil
import struct
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from mmap import mmap
from pathlib import Path
from typing import Final

from bridge.formats.delivery import Batch, Delivery, Message
from bridge.formats.delivery_identity import list_records
from tasks import logs
from tasks.execution.process_loss import TaskNotes
from tasks.worker import worker_metrics
from tasks.worker.file_allocation import map_new_file

logger = logs.harmless_logger(__name__)

#: The folder of a worker's notes, one file a process; in the environment, so that children that are spawned have it.
FOLDER: Final = "WORKER_PROGRESS_DIR"
#: Bytes of a file: some 8,000 offsets. For deliveries beyond that the ledger alone has the fates.
SIZE: Final = 65_536
#: The number of offsets and the length of the task's id; the offsets begin at `_OFFSETS`, behind the id.
_HEAD: Final = struct.Struct("<IH")
_COUNT: Final = struct.Struct("<I")
_OFFSET: Final = struct.Struct("<Q")
#: The bit of an offset whose delivery was sent on; without it, it is done. Kafka's offsets do not reach it.
_SENT: Final = 1 << 63
#: The position of the running delivery's offset, which is stored plus one: zero if none runs, or several do.
_RUNNING: Final = 1_016
#: The bit beside it of a process that ends because a handler overran its hard time limit.
_OVERRAN: Final = 1 << 63
_OFFSETS: Final = 1_024
#: The position of the last offset for which there is room.
_LAST: Final = SIZE - _OFFSET.size


class ProgressNotes:
    """The notes of this process on one task.

    Parameters:
        notes: `None` if there is no shared memory for them.
    """

    def __init__(self, notes: mmap | None, task_id: str) -> None:
        name = task_id.encode()
        self._notes = notes if len(name) <= _RUNNING - _HEAD.size else None
        #: The position of the next offset.
        self._next = _OFFSETS
        if self._notes is not None:
            # Nothing of the task before may be read as this one's, however soon the process ends.
            _HEAD.pack_into(self._notes, 0, 0, 0)
            _OFFSET.pack_into(self._notes, _RUNNING, 0)
            self._notes[_HEAD.size : _HEAD.size + len(name)] = name
            _HEAD.pack_into(self._notes, 0, 0, len(name))

    def running(self, offset: int | None) -> None:
        """Note that a delivery is about to run: a loss of the process from now on is charged to it.

        Parameters:
            offset: `None` if none runs, or several do: a loss is charged to none.
        """
        if self._notes is not None:
            _OFFSET.pack_into(self._notes, _RUNNING, 0 if offset is None else offset + 1)

    def overran(self) -> None:
        """Note that a handler overran its hard time limit: the process is about to be ended."""
        if self._notes is not None:
            (running,) = _OFFSET.unpack_from(self._notes, _RUNNING)
            _OFFSET.pack_into(self._notes, _RUNNING, running | _OVERRAN)

    def done(self, offset: int) -> None:
        """Note that a delivery's handler has succeeded."""
        self._add(offset)

    def sent(self, offset: int) -> None:
        """Note that a delivery was sent on in a message of its own."""
        self._add(offset | _SENT)

    def _add(self, offset: int) -> None:
        if self._notes is None or self._next > _LAST:
            return
        _OFFSET.pack_into(self._notes, self._next, offset)
        self._next += _OFFSET.size
        _COUNT.pack_into(self._notes, 0, (self._next - _OFFSETS) // _OFFSET.size)


def make_notes_folder() -> None:
    """Make the folder. Call it in the worker's main process, before its children start."""
    global _own_folder
    try:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="worker-progress-", dir=memory)
        _own_folder = (os.getpid(), os.environ[FOLDER])
    except OSError as error:
        os.environ.pop(FOLDER, None)
        logger.warning("no progress notes of batches: their folder cannot be made: %s", error)


def begin_notes(task_id: str) -> ProgressNotes:
    """Begin the notes on a task that carries several deliveries."""
    return ProgressNotes(_own_notes(), task_id)


def read_notes(pid: int, task_id: str) -> TaskNotes:
    """Return the notes of an ended process on a task."""
    with suppress(OSError, KeyError, struct.error):
        data = (Path(os.environ[FOLDER]) / str(pid)).read_bytes()
        count, length = _HEAD.unpack_from(data)
        if data[_HEAD.size : _HEAD.size + length] == task_id.encode():
            (noted,) = _OFFSET.unpack_from(data, _RUNNING)
            running = noted & ~_OVERRAN
            offsets = [at for (at,) in _OFFSET.iter_unpack(data[_OFFSETS : _OFFSETS + count * _OFFSET.size])]
            return TaskNotes(
                frozenset(at for at in offsets if at < _SENT),
                running - 1 if running else None,
                frozenset(at - _SENT for at in offsets if at >= _SENT),
                bool(noted & _OVERRAN),
            )
    return TaskNotes()


def remove_process_notes(pid: int) -> None:
    """Remove the notes of a process that has ended, or ends."""
    with suppress(OSError, KeyError):
        (Path(os.environ[FOLDER]) / str(pid)).unlink()


def remove_notes_folder() -> None:
    """Remove the folder, if this process has made it."""
    if _own_folder is not None and _own_folder[0] == os.getpid():
        shutil.rmtree(_own_folder[1], ignore_errors=True)


def _own_notes() -> mmap | None:
    # Notes inherited by a fork are the parent's.
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), _open_notes())
    return _of_process[1]


def _open_notes() -> mmap | None:
    folder = os.environ.get(FOLDER)
    # Under threads and solo this process is the worker: nobody is left to read the notes if it is lost, and threads
    # would write over those of each other.
    if not folder or _own_folder == (os.getpid(), folder):
        return None
    try:
        return map_new_file(Path(folder) / str(os.getpid()), SIZE)
    except OSError as error:
        worker_metrics.note_unseen_process("notes", error)
        return None


_own_folder: tuple[int, str] | None = None
_of_process: tuple[int, mmap | None] | None = None


#: The ends of most deliveries, which nobody searches by name.
_UNNAMED = ("done", "skipped")


class BatchEnds:
    """The ends of one task's deliveries (pure).

    Parameters:
        topic, partition: of their records.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._offsets: dict[str, list[int]] = {}

    def add(self, end: str, offset: int) -> None:
        """Add a delivery's end: `done`, `duplicate`, `again`, `dead`, `skipped`, `discarded`, `put back`, `held`."""
        self._offsets.setdefault(end, []).append(offset)

    @property
    def counts(self) -> str:
        """The number of each end: `197 done, 2 again, 1 dead`."""
        return ", ".join(f"{len(offsets)} {end}" for end, offsets in self._offsets.items())

    @property
    def names(self) -> str:
        """The records of each end, cut to a length: `again: orders-3-1201 orders-3-1207; dead: orders-3-1234`."""
        return "; ".join(
            f"{end}: {list_records(self._topic, self._partition, offsets)}"
            for end, offsets in self._offsets.items()
            if end not in _UNNAMED
        )

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.counts, self.names)))


def put_behind(deliveries: Iterable[Delivery], holding: Iterable[Delivery], order: str | None) -> list[Delivery]:
    """Return deliveries, each with the last of those before it in its order that hold it as its predecessor (pure).

    Parameters:
        holding: deliveries after which the next in their order must not run yet.
        order: "key" or "partition"; `None`: they hold none.
    """
    found = []
    for delivery in deliveries:
        message = delivery.message
        before = [each.message.offset for each in holding if _is_before(each.message, message, order)]
        after = max([*before, *([] if delivery.after is None else [delivery.after])], default=None)
        found.append(delivery if after == delivery.after else replace(delivery, after=after))
    return found


def _is_before(earlier: Message, message: Message, order: str | None) -> bool:
    """Return whether a message is before another in their order: a message without a key is free."""
    is_in_lane = order == "partition" or (order == "key" and message.key is not None and earlier.key == message.key)
    return is_in_lane and earlier.offset < message.offset


class BatchState:
    """The state of the deliveries of one batch in this run.

    Parameters:
        progress: notes for the main process; `None` for a single delivery.
    """

    def __init__(self, batch: Batch, progress: ProgressNotes | None) -> None:
        #: The deliveries that have not ended, in their current form: they are redelivered if this run breaks off.
        self._left = {delivery.message.offset: delivery for delivery in batch.deliveries}
        self._progress, self._order = progress, batch.order
        self._holding: list[Delivery] = []
        #: Offsets of ended deliveries, after which the next in their order may run.
        self.finished: set[int] = set()
        self.ends = BatchEnds(batch.topic, batch.partition)
        self._is_charged = False

    def left(self) -> list[Delivery]:
        """Return the deliveries not sent on, parked or found settled, ordered by offset."""
        return self.put_behind([delivery for _, delivery in sorted(self._left.items())])

    def current(self, delivery: Delivery) -> Delivery:
        """Return the current form of a delivery."""
        return self._left[delivery.message.offset]

    def update(self, delivery: Delivery) -> None:
        """Set the current form of a delivery, in which it is redelivered if this run breaks off."""
        self._left[delivery.message.offset] = delivery

    def note_start(self, delivery: Delivery) -> None:
        """Note that a delivery is about to run: a loss of the process from now on is charged to it."""
        if self._progress is not None:
            self._progress.running(delivery.message.offset)

    def note_only_running(self, delivery: Delivery | None) -> None:
        """Note which delivery alone runs; `None`: none runs, or several do, and a loss is charged to none."""
        if self._progress is not None and not self._is_charged:
            self._progress.running(None if delivery is None else delivery.message.offset)

    def charge(self, delivery: Delivery) -> None:
        """Note that the process is lost by this delivery, whichever others run."""
        self._is_charged = True
        if self._progress is not None:
            self._progress.running(delivery.message.offset)

    def note_overrun(self) -> None:
        """Note that a handler overran its hard time limit: the process is about to be ended."""
        if self._progress is not None:
            self._progress.overran()

    def note_success(self, delivery: Delivery, how: str = "done") -> None:
        """Note that a delivery is done, before it is marked."""
        if self._progress is not None:
            self._progress.done(delivery.message.offset)
        self.ends.add(how, delivery.message.offset)

    def finish(self, delivery: Delivery) -> None:
        """Let the next delivery in its order run."""
        self.finished.add(delivery.message.offset)

    def hold_behind(self, delivery: Delivery) -> None:
        """Let the deliveries behind one in its order wait for it, also if they are redelivered."""
        self._holding.append(delivery)

    def put_behind(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return deliveries with those as predecessors that hold them."""
        return put_behind(deliveries, self._holding, self._order) if self._holding else deliveries

    def remove(self, delivery: Delivery, how: str) -> None:
        """Remove a delivery that was settled elsewhere, or parked: it is not redelivered with this batch."""
        self._left.pop(delivery.message.offset)
        self.ends.add(how, delivery.message.offset)

    def remove_sent(self, deliveries: Iterable[Delivery]) -> None:
        """Remove deliveries that were sent on in a message of their own."""
        for delivery in deliveries:
            self._left.pop(delivery.message.offset, None)
            if self._progress is not None:
                self._progress.sent(delivery.message.offset)
