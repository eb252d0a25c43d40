"""Statistics of attempts by topic and handler, for people: no delivery depends on them.

They have recent successes and failures, and dead letters that Kafka refuses. Counts are in
bridge/ledger/delivery_counts.py. The keys do not name the Kafka cluster, so they can be read while Kafka is down.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, NamedTuple

from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.ledger_scripts import NOTE_OUTCOMES
from bridge.ledger.redis_connection import is_wrong_type, raise_error_answer

#: A topic and a handler.
TopicHandler = tuple[str, str]


#: Seconds within which lost processes belong to one incident.
LOST_TOGETHER: Final = 600
#: Seconds that outcomes are kept, and the maximum number of characters of an error.
KEPT_FOR: Final = 7 * 86_400
ERROR_LENGTH: Final = 300


@dataclass(slots=True)
class RecentAttempts:
    """The attempts of one handler on one topic that a process has not reported yet; times are of its own clock.

    Attributes:
        failed: how many failed since the last success among them, the first at `first_failed_at`.
        lost: how many processes died.
    """

    done_at: float | None = None
    first_failed_at: float | None = None
    failed_at: float | None = None
    failed: int = 0
    error: str = ""
    lost: int = 0

    def succeeded(self, at: float) -> None:
        """Count a success."""
        self.done_at, self.failed, self.first_failed_at = at, 0, None

    def has_failed(self, at: float, number: int = 1, error: str = "") -> None:
        """Count failures."""
        self.failed_at, self.failed = at, self.failed + number
        self.first_failed_at = at if self.first_failed_at is None else self.first_failed_at
        self.error = error[:ERROR_LENGTH] or self.error


class OutcomeSummary(NamedTuple):
    """The outcomes of one handler on one topic; times are Unix times by the reader's clock, 0 for never.

    Attributes:
        failed: how many attempts failed since the last success, the first at `failing_since`.
        lost: how many processes died recently with its deliveries, the first at `lost_since`, the last at `lost_at`.
    """

    done_at: float = 0.0
    failed_at: float = 0.0
    failing_since: float = 0.0
    failed: int = 0
    error: str = ""
    lost_at: float = 0.0
    lost_since: float = 0.0
    lost: int = 0


_FIELDS: Final = OutcomeSummary._fields


def note_outcomes(ledger: Ledger, found: Mapping[TopicHandler, RecentAttempts], now: float) -> None:
    """Report how attempts ended, in one step.

    Parameters:
        now: Unix time by the clock of the attempts' times.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    if not found:
        return
    args: list[Any] = [LOST_TOGETHER, KEPT_FOR]
    for attempts in found.values():
        failing = attempts.failed_at is not None and attempts.first_failed_at is not None
        args += [
            "" if attempts.done_at is None else max(0.0, now - attempts.done_at),
            max(0.0, now - (attempts.failed_at or now)) if failing else "",
            max(0.0, now - (attempts.first_failed_at or now)) if failing else "",
            attempts.failed,
            attempts.error,
            attempts.lost,
        ]
    ledger.run("note how attempts ended", NOTE_OUTCOMES, [_outcomes_key(ledger, *whose) for whose in found], args)


def read_outcomes(ledger: Ledger, whose: Iterable[TopicHandler], now: float) -> dict[TopicHandler, OutcomeSummary]:
    """Return the outcomes of each topic and handler, in one round trip.

    Parameters:
        now: Unix time by the reader's clock; the returned times are by that clock.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted = list(dict.fromkeys(whose))
    with ledger.asking("read how attempts ended") as pipe:
        pipe.time()
        for each in wanted:
            pipe.hmget(_outcomes_key(ledger, *each), _FIELDS)
        clock, *rows = pipe.execute(raise_on_error=False)
    seconds, micros = raise_error_answer(clock)
    ahead = now - (seconds + micros / 1e6)
    return {each: _read_outcomes_row(row, ahead) for each, row in zip(wanted, rows, strict=True)}


def _read_outcomes_row(row: Any, ahead: float) -> OutcomeSummary:
    """Return the outcomes in a hash; a value that is no number, which another program wrote, reads as 0."""
    if is_wrong_type(row):
        return OutcomeSummary()
    done_at, failed_at, failing_since, failed, error, lost_at, lost_since, lost = raise_error_answer(row)

    def moment(value: bytes | None) -> float:
        at = _read_number(value)
        return at + ahead if at else 0.0

    return OutcomeSummary(
        moment(done_at),
        moment(failed_at),
        moment(failing_since),
        int(_read_number(failed)),
        (error or b"").decode(errors="replace"),
        moment(lost_at),
        moment(lost_since),
        int(_read_number(lost)),
    )


def _read_number(value: bytes | None) -> float:
    try:
        number = float(value or 0)
    except ValueError:
        return 0.0
    return number if isfinite(number) and number > 0 else 0.0


def _outcomes_key(ledger: Ledger, topic: str, handler: str) -> str:
    return ledger_key("", ledger.group, "outcomes", topic, handler)


def redact_errors(ledger: Ledger, whose: Iterable[TopicHandler], redact: Callable[[str], str]) -> int:
    """Replace the last errors of handlers by what a function makes of them; return how many changed.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted = list(dict.fromkeys(whose))
    keys = [_outcomes_key(ledger, *each) for each in wanted]
    keys += [_unpublished_keys(ledger, handler)[1] for handler in dict.fromkeys(handler for _, handler in wanted)]
    with ledger.asking("redact the last errors of handlers") as pipe:
        for key in keys:
            pipe.hget(key, "error")
        rows = pipe.execute(raise_on_error=False) if keys else []
        errors = {
            key: row.decode(errors="replace") for key, row in zip(keys, rows, strict=True) if isinstance(row, bytes)
        }
        changed = {key: redacted for key, error in errors.items() if (redacted := redact(error)) != error}
        for key, redacted in changed.items():
            pipe.hset(key, "error", redacted)
        pipe.execute()
    return len(changed)


#: Seconds after its last try that a dead letter counts as refused: tries are a minute apart at most, plus queueing.
COUNTS_FOR: Final = 1_800
#: Maximum number of members of one set.
MOST_UNPUBLISHED: Final = 200_000


class UnpublishedDeadLetters(NamedTuple):
    """The number of a handler's dead letters that Kafka refuses, since when (Unix time by the reader's
    clock), and why.
    """

    many: int
    since: float
    error: str


def note_unpublished(
    ledger: Ledger, refused: Mapping[str, Mapping[str, str]], written: Mapping[str, Iterable[str]]
) -> None:
    """Note the dead letters that Kafka refused, and those that it has accepted since.

    Parameters:
        refused: the error of each delivery, by handler.
        written: the deliveries by handler.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("note which dead letters Kafka does not take") as pipe:
        pipe.time()
        ((now, _),) = pipe.execute()
        for handler, errors in refused.items():
            tried, about = _unpublished_keys(ledger, handler)
            pipe.zadd(tried, dict.fromkeys(errors, now))
            pipe.zremrangebyrank(tried, 0, -MOST_UNPUBLISHED - 1)
            pipe.hsetnx(about, "since", now)
            pipe.hset(about, "error", [*errors.values()][-1])
            pipe.expire(tried, COUNTS_FOR)
            pipe.expire(about, COUNTS_FOR)
        for handler, deliveries in written.items():
            if gone := [*deliveries]:
                pipe.zrem(_unpublished_keys(ledger, handler)[0], *gone)
        pipe.execute()


def read_unpublished(ledger: Ledger, handlers: Iterable[str], now: float) -> dict[str, UnpublishedDeadLetters]:
    """Return the handlers with refused dead letters; `since` is forgotten once there are none.

    Parameters:
        now: Unix time by the reader's clock.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted = list(dict.fromkeys(handlers))
    with ledger.asking("read which dead letters Kafka does not take") as pipe:
        pipe.time()
        ((seconds, _),) = pipe.execute()
        for handler in wanted:
            tried, about = _unpublished_keys(ledger, handler)
            pipe.zcount(tried, seconds - COUNTS_FOR, "+inf")
            pipe.hmget(about, "since", "error")
        rows = pipe.execute()
        found = {}
        for handler, count, (since, error) in zip(wanted, rows[::2], rows[1::2], strict=True):
            if count:
                at = now - max(0.0, seconds - float(since or seconds))
                found[handler] = UnpublishedDeadLetters(int(count), at, (error or b"").decode(errors="replace"))
            elif since is not None:
                pipe.delete(_unpublished_keys(ledger, handler)[1])
        pipe.execute()
    return found


def _unpublished_keys(ledger: Ledger, handler: str) -> tuple[str, str]:
    start = ledger_key("", ledger.group, "unpublished", handler)
    return start, f"{start}:about"
