"""Dead letters for people and programs: a line of a list, one letter in full, and its timeline (pure)."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

from bridge.deadletters.model.letter_filter import LetterCursor
from bridge.deadletters.model.letter_parser import OURS
from bridge.deadletters.model.stored_letter import LetterStatus, name_delivery
from bridge.formats.attempt_history import LOST, AttemptNote, History
from bridge.formats.delivery import Attempts, Headers, Message
from bridge.formats.text_forms import format_count, format_time
from bridge.formats.trace_context import find_trace_id


@dataclass(frozen=True, slots=True)
class LetterLine:
    """A letter as a line of a list.

    Attributes:
        topic, partition, offset: of the source record.
        runs: the runs of the handler for it.
        failed_at: ms since the epoch, as all times here.
        group: id of its group.
        origin: "bridge", or the other program that wrote it.
        failures: how often it died; more than once, a replay has failed.
        value_size: bytes; -1: a tombstone.
        plan: the plan that replays it, or did last.
        lost: the part of `runs` whose worker died.
    """

    id: int
    handler: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    reason: str
    error_class: str
    error_message: str
    status: LetterStatus
    runs: int
    failed_at: int
    group: int
    version: str
    origin: str
    consumer_group: str
    place: str
    failures: int
    occurrences: int
    value_size: int
    plan: int | None
    lost: int = 0

    @property
    def name(self) -> str:
        """Return the name of the delivery: `orders-3-1234:orders.handlers.charge`."""
        return name_delivery(self.topic, self.partition, self.offset, self.handler)

    def to_data(self) -> dict[str, Any]:
        """Return the letter's line as JSON-compatible data."""
        return write_fields(self, "lost", runs="attempts", place="where")


@dataclass(frozen=True, slots=True)
class LetterPage:
    """A page of a list of letters.

    Attributes:
        letters: newest first.
        next: the cursor of the next page; `None`: this is the last. A short page need not be the last.
        unread: how many letters were not searched by their values: too large, or of a schema that is not known now.
    """

    letters: tuple[LetterLine, ...]
    next: LetterCursor | None
    unread: int = 0


@dataclass(frozen=True, slots=True)
class LetterCount:
    """A number of letters, exact or a lower bound.

    Attributes:
        exact: whether it is exact, not a lower bound.
        among: the number of newest candidates that were counted; `None`: all.
    """

    number: int
    exact: bool
    among: int | None = None

    def __str__(self) -> str:
        """Return the number, with a + or "at least" if it is a lower bound."""
        if self.among is not None:
            return f"at least {self.number:,} (counted among the newest {self.among:,} alone)"
        return f"{self.number:,}" + ("" if self.exact else "+")


@dataclass(frozen=True, slots=True)
class LetterFailure:
    """An earlier failure of a letter.

    Attributes:
        where: its record in the dead-letter topic: `orders.dlq-3-17`.
        plan: the plan that replayed it afterwards.
        mended: whether the value was edited before the next failure.
        value: the edited value; `None`: not edited, a tombstone, or too large to be stored.
        kept: whether `value` is complete.
        made: its last attempts, oldest first.
    """

    number: int
    failed_at: int
    reason: str
    error_class: str
    error_message: str
    traceback: str = field(repr=False)
    version: str
    runs: int
    where: str
    plan: int | None
    mended: bool
    value: bytes | None = field(default=None, repr=False)
    kept: bool = True
    made: History = field(default=(), repr=False)

    def to_data(self) -> dict[str, Any]:
        """Return the failure as JSON-compatible data."""
        names = {"traceback": "error_traceback", "runs": "attempts", "made": "attempt_history"}
        return write_fields(self, "kept", **names) | {"attempt_history": _write_attempts(self.made)}


@dataclass(frozen=True, slots=True)
class LetterAct:
    """An act on a letter: an audit entry, a plan, or an edit.

    Attributes:
        what: "note", "discard", …; the kind of a plan; "edit", "patch" or "upgrade".
        state: of a plan: its state for the letter.
        said: the note, the reason.
        state_at: of a plan: when that state began; `None`: when the plan was made.
        value: of an edit: the value that was sent.
    """

    at: int | None
    by: str
    what: str
    said: str
    plan: int | None = None
    state: str = ""
    value: bytes | None = field(default=None, repr=False)
    state_at: int | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the action as JSON-compatible data."""
        return write_fields(self, "value", "state_at")


@dataclass(frozen=True, slots=True)
class LetterView:
    """A letter in full.

    Attributes:
        listed: its line of a list.
        value: `None` if it is a tombstone, or too large to be stored (`kept`).
        kept: whether the database has the value; otherwise it is read from Kafka, at `where`.
        timestamp: of the source record.
        number: how often the delivery was parked or replayed.
        where: its last record in the dead-letter topic: `orders.dlq-3-17`.
        history: its earlier failures, oldest first; the last one is in `listed` and `traceback`.
        plans: its plans, oldest first.
        edits: the values that were sent in its place.
        trail: the audit entries about it.
        encoded: the value as in Kafka, if `value` is the JSON of it (payload_codec.py); else `None`.
        schema: the schema that wrote it, or why it was not read by that; empty: it names none.
        trace: the context of its delivery's last hop; empty: none.
        made: its last attempts, oldest first; those before a replay are in its `history`.
    """

    listed: LetterLine
    status_at: int
    topic_id: str
    timestamp: int | None
    value: bytes | None = field(repr=False)
    kept: bool
    headers: Headers = field(repr=False)
    number: int
    attempts: Attempts
    traceback: str = field(repr=False)
    first_failed_at: int
    recorded_at: int
    where: str
    history: tuple[LetterFailure, ...]
    plans: tuple[LetterAct, ...]
    edits: tuple[LetterAct, ...]
    trail: tuple[LetterAct, ...]
    encoded: bytes | None = field(default=None, repr=False)
    schema: str = ""
    trace: str = ""
    made: History = field(default=(), repr=False)

    @property
    def in_kafka(self) -> bytes | None:
        """Return the value byte for byte."""
        return self.value if self.encoded is None else self.encoded

    def to_message(self) -> Message:
        """Return the message as a handler would get it from a replay."""
        it = self.listed
        return Message(
            it.topic,
            it.partition,
            it.offset,
            key=it.key,
            value=self.in_kafka,
            headers=self.headers,
            timestamp=self.timestamp,
            attempt=it.runs + 1,
            attempts=self.attempts.plus(replayed=1),
            delivery=it.name,
        )

    @property
    def trace_id(self) -> str:
        """Return the id of its trace, the producer's or our own; empty: it has none, or its header is masked."""
        return find_trace_id(self.headers, self.trace)

    @property
    def is_of_nowhere(self) -> bool:
        """Return whether it does not name its source record, so that no replay can send it."""
        it = self.listed
        return it.origin != OURS and self.where == f"{it.topic}-{it.partition}-{it.offset}"

    @property
    def is_unknown(self) -> bool:
        """Return whether it is `replaying` with an unknown outcome."""
        it = self.listed
        unknown = any(act.plan == it.plan and act.state == "unknown" for act in self.plans)
        return it.status is LetterStatus.REPLAYING and unknown

    def to_data(self) -> dict[str, Any]:
        """Return the letter as JSON: key, value and headers as text, other bytes as `\\x00`."""
        names = {
            "attempts": "attempts_by_end",
            "traceback": "error_traceback",
            "where": "dead_letter",
            "schema": "format",
        }
        edits = [edit.to_data() | {"value": format_bytes(edit.value)} for edit in self.edits]
        own = write_fields(self, "listed", "encoded", "trace", "made", **names)
        more = {"edits": edits, "trace_id": self.trace_id, "attempt_history": _write_attempts(self.made)}
        return self.listed.to_data() | own | more


def _write_attempts(made: History) -> list[dict[str, Any]]:
    """Return attempts as JSON: `took` in seconds."""
    return [
        note._asdict()
        | {"ended_at": format_moment(note.ended_at), "took": None if note.took is None else note.took / 1000}
        for note in made
    ]


def format_moment(at: int | None) -> str | None:
    """Return ms since the epoch as ISO 8601; `None` for a time that no calendar has, which records may contain."""
    try:
        return None if at is None else format_time(at / 1000, "milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def format_bytes(data: bytes | memoryview | None) -> str | None:
    r"""Return bytes in JSON: what is no UTF-8 as `\xff`."""
    return None if data is None else bytes(data).decode("utf-8", "backslashreplace")


def write_fields(shown: Any, *without: str, **names: str) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON: times as ISO 8601, and bytes as text.

    Parameters:
        without: fields that are left out.
        names: other names of fields.
    """
    return {
        names.get(each.name, each.name): _write_field(each.name, getattr(shown, each.name))
        for each in fields(shown)
        if each.name not in without
    }


def _write_field(name: str, value: Any) -> Any:
    if name.endswith("_at") or name in ("at", "timestamp"):
        return format_moment(value)
    if isinstance(value, bytes | memoryview):
        return format_bytes(value)
    if isinstance(value, StrEnum):
        return str(value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, tuple):
        return [_write_field("", each) for each in value]
    return value.to_data() if hasattr(value, "to_data") else value


class TimelineEvent(NamedTuple):
    """An event of a letter's timeline.

    Attributes:
        at: ms since the epoch.
        bad: whether it is a failure.
        plan: the plan that did it.
        attempt: the attempt that ended then.
    """

    at: int
    said: str
    bad: bool = False
    plan: int | None = None
    attempt: AttemptNote | None = None


def build_timeline(letter: LetterView) -> list[TimelineEvent]:
    """Return the events from the record's production until now; of one millisecond, in the order of their causes."""
    # A regression is in the audit log twice: by its plan and by its group.
    return sorted(dict.fromkeys(_list_events(letter)), key=lambda event: event.at)


def _list_events(letter: LetterView) -> Iterator[TimelineEvent]:
    now = letter.listed
    if letter.timestamp is not None:
        yield TimelineEvent(letter.timestamp, "the record was produced")
    ends = [failure.failed_at for failure in letter.history]
    ends += [note.ended_at for made in (*(failure.made for failure in letter.history), letter.made) for note in made]
    if letter.first_failed_at < min([now.failed_at, *ends]):
        yield TimelineEvent(letter.first_failed_at, "failed for the first time", True)
    before = 0
    for failure in letter.history:
        yield from _list_attempts(failure.made, before, failure.runs, failure.failed_at)
        yield TimelineEvent(failure.failed_at, _describe_death(failure.reason, failure.error_class, failure.runs), True)
        before = failure.runs
    yield from _list_attempts(letter.made, before, now.runs, now.failed_at)
    yield TimelineEvent(now.failed_at, _describe_death(now.reason, now.error_class, now.runs), True)
    # The audit log also has the making of a plan, but not its state for this letter.
    made = {(act.plan, act.what) for act in letter.plans}
    trail = [act for act in letter.trail if act.plan is None or (act.plan, act.what) not in made]
    for act in (*letter.plans, *letter.edits, *trail):
        if act.at is not None:
            # The time of the plan's state for this letter, not of the making of the plan.
            yield TimelineEvent(act.at if act.state_at is None else act.state_at, _describe_act(act), plan=act.plan)
    if now.status in (LetterStatus.RESOLVED, LetterStatus.REPLAYING):
        yield TimelineEvent(letter.status_at, str(now.status))


def _list_attempts(made: History, before: int, runs: int, died_at: int) -> Iterator[TimelineEvent]:
    """Yield the attempts before a death, and say which are not kept one by one.

    Parameters:
        before: the attempts before the last replay.
        runs: the number of all, by the dead letter.
    """
    for note in made:
        if gap := _describe_gap(before, note.run):
            yield TimelineEvent(note.ended_at, gap, True)
        yield TimelineEvent(note.ended_at, _describe_attempt(note), True, attempt=note)
        before = note.run
    if made and (gap := _describe_gap(before, runs + 1)):
        yield TimelineEvent(died_at, gap, True)


def _describe_gap(before: int, run: int) -> str:
    """Return which attempts are missing between two."""
    first, last = before + 1, run - 1
    if first > last:
        return ""
    return f"attempt {first} is not kept" if first == last else f"attempts {first} to {last} are not kept one by one"


def _describe_attempt(note: AttemptNote) -> str:
    took = f" after {note.duration}" if note.duration else ""
    worker = f" on {note.worker}" if note.worker else ""
    version = f", version {note.version}" if note.version else ""
    end = "lost its process" if note.end == LOST else note.end
    return f"attempt {note.run} {end}{took}{worker}{version}" + (f": {note.error}" if note.error else "")


def _describe_death(reason: str, error_class: str, runs: int) -> str:
    attempts = f", after {format_count(runs, 'attempt')}" if runs else ""
    return f"died: {reason or error_class or 'no reason given'}{attempts}"


def _describe_act(act: LetterAct) -> str:
    named = f"plan {act.plan}"
    plan = f", {named}" if act.plan is not None and named not in act.said else ""
    state = f": {act.state}" if act.state else ""
    said = f": {act.said}" if act.said else ""
    return f"{act.what} by {act.by}{plan}{state}{said}"
