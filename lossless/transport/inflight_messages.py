"""The messages in flight of one channel, taken and not yet settled: the owner's side of ``_taken.<owner>`` in Redis.

A holder keeps acknowledgements and moves until Redis has answered, and the keeper's thread repeats them: a lost answer
costs neither a message nor a prefetch slot. All of them act on the owner's own hash alone. So an owner that was taken
for dead and wakes up does no harm: its redelivered messages are not there any more.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from kombu.log import get_logger

from lossless.lua import Script
from lossless.transport.message_ownership import BegunTasks, make_owner, sort_fields
from lossless.transport.script_hook import UNHOOKED, HookStep, RefusedSteps
from lossless.transport.storage_layout import (
    TransportKeys,
    decode_message,
    decode_text,
    mark_redelivered,
    store_message,
)
from lossless.transport.transport_scripts import (
    EPOCH_FIELD,
    NOTE_BEGUN,
    PUT_BACK_MESSAGES,
    REGISTER_OWNER,
    SETTLE_MESSAGES,
    UNREGISTER_OWNER,
)

logger = get_logger("lossless.transport")

#: ``run(script, keys, args)`` against Redis, on a connection that any thread may use.
RunScript = Callable[[Script, list[str], list[Any]], Any]

#: Messages per call of a script: keeps one call to some milliseconds.
CHUNK = 500

#: The most acknowledgements that one take carries.
ACKS_PER_TAKE = 1000


#: The most messages that a line of the log names, and the most characters of each name.
NAMED = 5
NAME_LENGTH = 120


@dataclass(frozen=True, slots=True)
class TakenMessage:
    """A taken message: its field in the owner's hash, the queue and the list that it came from, its bytes."""

    field: str
    queue: str
    key: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class MessageSettlement:
    """The end of a taken message, as arguments of the SETTLE_MESSAGES script."""

    how: str
    field: str
    key: str = ""
    payload: str | bytes = b""
    due: float = 0.0
    queue: str = ""


class MessageHolder:
    """The owner of what one channel takes.

    Parameters:
        keys: the names of the keys.
        run: calls a script, raises redis-py's errors.
        wake: asks the keeper's thread to settle soon.
        dead_after: seconds after which others may take this owner for dead.
        ack: the script that acknowledges.
    """

    def __init__(
        self,
        keys: TransportKeys,
        run: RunScript,
        wake: Callable[[], None],
        dead_after: float,
        ack: Script = UNHOOKED.ack,
    ) -> None:
        self.owner = make_owner(dead_after)
        self.keys = keys
        self.run = run
        self.wake = wake
        self._ack = ack
        self.epoch = 0
        self._taken: dict[str, TakenMessage] = {}
        #: Whether acks go with the takes of an event loop; else the keeper sends them.
        self._acks_with_takes = False
        self._acks: list[str] = []
        #: Steps bundled with acks that Redis has not answered yet, and the acks whose step it refused.
        self._steps: dict[str, HookStep] = {}
        self._refused: list[str] = []
        self._refusals = RefusedSteps()
        self._settlements: list[MessageSettlement] = []
        self._decided: set[str] = set()
        self._begun = BegunTasks()
        self._ids = itertools.count(1)
        #: How many comparisons with Redis were required, and which of them was the last that was made.
        self._doubts, self._resolved = 1, 0
        self._lock = threading.RLock()
        self._settling = threading.Lock()

    # -- taking

    def reserve(self, most: int) -> int:
        """Return the first of ``most`` unused fields."""
        with self._lock:
            first = next(self._ids)
            self._ids = itertools.count(first + most)
            return first

    def add(self, number: int, queue: str, key: str, raw: bytes) -> str:
        """Note a message as taken and return its delivery tag, unique among all takings."""
        tag = f"{self.owner}.{number}"
        with self._lock:
            self._taken[tag] = TakenMessage(str(number), queue, key, raw)
        return tag

    def entry(self, tag: str) -> TakenMessage | None:
        """Return what is held under a tag, None if nothing is."""
        return self._taken.get(tag)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of what is held, the first taken in front."""
        return tuple(self._taken)

    def begun(self, tag: str) -> None:
        """Note that a task has begun with a message: if this process dies, that message may be the cause."""
        if (entry := self._taken.get(tag)) is not None and self._begun.add(entry.field):
            self.wake()

    def begun_tags(self) -> set[str]:
        """Return the tags of the held messages with which a task has begun.

        Celery forgets a request before its message is settled (celery/worker/request.py, `on_success`); with threads
        somebody else may look in between.
        """
        return {tag for tag, entry in tuple(self._taken.items()) if entry.field in self._begun}

    def _tell_begun(self) -> None:
        fields = self._begun.to_tell(entry.field for entry in tuple(self._taken.values()))
        if fields is None or not self.registered:
            return
        try:
            self.run(NOTE_BEGUN, [self.keys.owners, self.keys.begun], [self.owner, fields])
        except BaseException:
            self._begun.untold()
            raise

    # -- what Redis has

    @property
    def registered(self) -> bool:
        """Return whether Redis knows, or has known, this owner."""
        return self.epoch > 0

    @property
    def needs_comparison(self) -> bool:
        """Return whether Redis may hold a message for this owner that the owner does not know."""
        return self._doubts != self._resolved

    def require_comparison(self) -> None:
        """Have the messages held here compared with those in Redis before more are taken."""
        with self._lock:
            self._doubts += 1

    def compare(self) -> None:
        """Register the owner in Redis, and put back the messages that it holds there without knowing them.

        There are such messages when the answer to a take was lost, and when Redis lost its last writes: messages that
        were acknowledged since are held again. The epoch is raised first: a take still in a buffer takes nothing.
        """
        with self._lock:
            doubts = self._doubts
            self.epoch += 1
            known = {entry.field: entry for entry in self._taken.values()}
        held = self._run_register()
        if unheard := sort_fields(held - known.keys()):
            logger.warning(
                "returned to the queue: %d messages that Redis assigned to this worker and that it never received",
                len(unheard),
            )
            self._put_back(unheard)
        # An answer to a settlement may be missing as well: those have ended.
        if gone := [entry for field, entry in known.items() if field not in held and field not in self._decided]:
            logger.warning(
                "%d messages held here are no longer in Redis: it lost its last writes, or took this worker for dead; "
                "their tasks go on here, and another worker may run them too. The first: %s",
                len(gone), ", ".join(map(_name_task, gone[:NAMED])),
            )  # fmt: skip
        self._resolved = doubts

    def _run_register(self) -> set[str]:
        keys = [self.keys.taken(self.owner), self.keys.owners]
        fields = self.run(REGISTER_OWNER, keys, [self.owner, self.epoch])
        return {decode_text(field) for field in fields} - {EPOCH_FIELD}

    def _put_back(self, fields: list[str]) -> None:
        keys = [self.keys.taken(self.owner), self.keys.undecodable]
        for some in _cut_chunks(fields):
            aside, refused = self.run(
                PUT_BACK_MESSAGES, keys, [field.encode(errors="surrogateescape") for field in some]
            )
            if aside:
                logger.error("%d values that this transport did not write were moved to the list %r", aside, keys[1])
            if refused:
                logger.error("Redis refused to take back %d messages; they stay held", refused)

    # -- settling

    def _decide(self, tag: str) -> TakenMessage | None:
        """Return a taken message and mark its end as decided; None if it is decided already, or not held.

        The first decision stands: an ack after a replacement that Redis has not answered yet would remove the message
        before it is replaced.
        """
        with self._lock:
            entry = self._taken.get(tag)
            if entry is None or entry.field in self._decided:
                return None
            self._decided.add(entry.field)
            return entry

    def ack(self, tag: str) -> None:
        """Remove a taken message: with the next take, or by the keeper within milliseconds."""
        if entry := self._decide(tag):
            with self._lock:
                self._acks.append(entry.field)
            if not self._acks_with_takes:
                self.wake()

    def bundle_with_ack(self, tag: str, step: HookStep) -> None:
        """Bundle a hook's step with the acknowledgement that follows; send it alone if none can follow any more."""
        with self._lock:
            entry = self._taken.get(tag)
            if entry is None or entry.field in self._decided:
                self._send_step_alone(step)
            else:
                self._steps[entry.field] = step

    def _send_step_alone(self, step: HookStep) -> None:
        field = f"{next(self._ids)} is no message"
        self._steps[field] = step
        self._acks.append(field)
        self.wake()

    def send_acks_with_takes(self) -> None:
        """Have acks go with the takes of an event loop from now on: `acks_for_take` hands them out."""
        self._acks_with_takes = True

    def send_acks(self) -> None:
        """Have the keeper send acks from now on, and those that wait for a take at once: there may be no more takes."""
        self._acks_with_takes = False
        self.wake()

    def give_back(self, tag: str, *, front: bool) -> None:
        """Put a taken message back into its list, next to run or last to run, marked as redelivered."""
        if entry := self._decide(tag):
            how = "front" if front else "back"
            self._settle(MessageSettlement(how, entry.field, entry.key, mark_redelivered(entry.raw)))

    def wait(self, tag: str, due: float, raw: bytes | None = None) -> None:
        """Let a taken message wait in Redis until ``due`` (seconds since the epoch), as ``raw`` if that is given."""
        if entry := self._decide(tag):
            payload = store_message(entry.key, entry.raw if raw is None else raw)
            self._settle(self._waiting(entry.field, entry.queue, payload, due))

    def set_aside(self, tag: str) -> None:
        """Move a message that cannot be read to the list of such messages."""
        if entry := self._decide(tag):
            self._settle(MessageSettlement("back", entry.field, self.keys.undecodable, entry.raw))

    def replace(
        self,
        tag: str,
        queue: str,
        key: str,
        raw: bytes,
        due: float | None,
        gate: str | None = None,
        first: bool = False,
    ) -> None:
        """Put ``raw`` in the place of a taken message, into the list ``key`` or waiting until ``due``.

        With a ``gate``, to what that keeps of the list, or would keep: before all that was not put there so, or first.
        """
        entry = self._decide(tag)
        if entry is None:
            return
        if gate is not None:
            member = f"{gate}\0{key}"
            self._settle(
                MessageSettlement(
                    "first" if first else "aside", entry.field, self.keys.aside_of(member), raw, queue=member
                )
            )
        elif due is None:
            self._settle(MessageSettlement("back", entry.field, key, raw))
        else:
            self._settle(self._waiting(entry.field, queue, store_message(key, raw), due))

    def _waiting(self, field: str, queue: str, payload: bytes, due: float) -> MessageSettlement:
        return MessageSettlement("wait", field, self.keys.waiting(queue), payload, due, queue)

    def _settle(self, settlement: MessageSettlement) -> None:
        with self._lock:
            self._settlements.append(settlement)
            if step := self._steps.pop(settlement.field, None):
                self._send_step_alone(step)
        self.wake()

    @property
    def backlog(self) -> int:
        """Return how many settlements Redis has not answered yet, without acks."""
        return len(self._settlements) + len(self._refused)

    @property
    def refused(self) -> int:
        """Return how many steps Redis refused at their last try."""
        return len(self._refused)

    def acks_for_take(self) -> list[str]:
        """Hand out acks for the next take; give them to `acked` or `not_acked` afterwards."""
        return self._next_acks(ACKS_PER_TAKE) if self._acks_with_takes else []

    def _next_acks(self, most: int) -> list[str]:
        if not self._acks:
            return []
        with self._lock:
            acks, self._acks = self._acks[:most], self._acks[most:]
            return acks

    def with_steps(self, fields: list[str]) -> list[Any]:
        """Return acks and the steps bundled with them as arguments of a script (acknowledgement.lua)."""
        steps = {field: self._steps[field] for field in fields if field in self._steps} if self._steps else {}
        plain = [field for field in fields if field not in steps] if steps else fields
        args: list[Any] = [len(plain), *plain]
        for field, step in steps.items():
            args += [field, len(step.keys), *step.keys, len(step.args), *step.args]
        return args

    def acked(self, fields: Iterable[str], refused: str | bytes = "") -> None:
        """Forget the messages that Redis has removed; keep those whose step it refused, for the keeper to try again."""
        fields = tuple(fields)
        kept = self._refusals.read(decode_text(refused), fields, self._steps) if refused else set()
        with self._lock:
            self._refused += kept
            for field in fields:
                if field not in kept:
                    self._taken.pop(f"{self.owner}.{field}", None)
                    self._decided.discard(field)
                    if step := self._steps.pop(field, None):
                        step.done_at = monotonic()

    def not_acked(self, fields: list[str]) -> None:
        """Keep acks whose answer did not come."""
        with self._lock:
            self._acks = fields + self._acks

    def settle(self, *, at_once: bool = False) -> None:
        """Send all pending settlements. Raises redis-py's errors; nothing is forgotten then.

        Parameters:
            at_once: also what Redis refused a moment ago, before its pause is over.
        """
        with self._settling:
            again = at_once or self._refusals.due()
            if again:
                with self._lock:
                    self._acks, self._refused = self._refused + self._acks, []
            self._settle_acks()
            if again:
                self._refusals.tried(bool(self._refused))
            self._settle_moves()
        self._tell_begun()

    def _settle_acks(self) -> None:
        while fields := self._next_acks(CHUNK):
            try:
                refused = self.run(self._ack, [self.keys.taken(self.owner)], self.with_steps(fields))
            except BaseException:
                self.not_acked(fields)
                raise
            self.acked(fields, refused)

    def _settle_moves(self) -> None:
        kept: list[MessageSettlement] = []
        try:
            while moves := self._settlements[:CHUNK]:
                refused = self._run_settle(moves)
                with self._lock:
                    self._settlements = self._settlements[len(moves) :]
                kept += [move for move in moves if move.field in refused]
                self.acked(move.field for move in moves if move.field not in refused)
        finally:
            with self._lock:
                self._settlements += kept
        if kept:
            logger.error("Redis refused to take back %d messages; they stay held, and are tried again", len(kept))

    def _run_settle(self, moves: list[MessageSettlement]) -> set[str]:
        args: list[Any] = []
        for move in moves:
            args += [move.how, move.field, move.key, move.payload, repr(move.due), move.queue]
        keys = [self.keys.taken(self.owner), self.keys.waiting_queues]
        return {decode_text(field) for field in self.run(SETTLE_MESSAGES, keys, args)}

    def give_back_all(self) -> None:
        """Put back everything, the first taken next to run."""
        for tag in sorted(self.tags, key=lambda tag: int(tag.rpartition(".")[2]), reverse=True):
            self.give_back(tag, front=True)

    def leave(self, *, at_once: bool = False) -> bool:
        """Settle, compare with Redis if needed, and end the owner if it holds nothing. Return whether it has ended.

        It has not while Redis refuses a step, even if the step's message belongs to another owner by now.

        Parameters:
            at_once: whether steps that Redis refused a moment ago are tried at once.

        Raises redis-py's errors; nothing is forgotten then.
        """
        self.settle(at_once=at_once)
        if self.needs_comparison and self.registered:
            self.compare()
        return not self._taken and not self._refused and (not self.registered or self._run_leave())

    def _run_leave(self) -> bool:
        return not self.run(UNREGISTER_OWNER, [self.keys.taken(self.owner), self.keys.owners], [self.owner])


def _name_task(entry: TakenMessage) -> str:
    """Return the id of a message's task for the log."""
    try:
        return repr(str(decode_message(entry.raw)["headers"]["id"])[:NAME_LENGTH])
    except Exception:  # whatever is wrong with it, it is named in a log alone
        return f"a message without an id in queue {entry.queue!r}"


def _cut_chunks(items: list[str]) -> Iterable[list[str]]:
    return (items[i : i + CHUNK] for i in range(0, len(items), CHUNK))
