"""How attempts of a handler ended lately: when one succeeded last, how many failed since then, and with which error.

One hash a handler and topic, by Redis's clock. It is for people, and no delivery rests on it. The numbers are counts of
all attempts, not samples: a queue of a hundred thousand messages hides nothing of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, NamedTuple

from bridge.ledger.client import Ledger
from bridge.ledger.connection import is_of_another_type, raised
from bridge.ledger.counts import Whose
from bridge.ledger.pages import key
from bridge.ledger.script import OUTCOMES

#: Seconds within which processes that are lost belong to one incident.
LOST_TOGETHER: Final = 600
#: Seconds for which all is kept, and characters of an error.
KEPT_FOR: Final = 7 * 86_400
ERROR_LENGTH: Final = 300


@dataclass(slots=True)
class RecentAttempts:
    """Attempts of one handler on one topic that a process has not told yet; times are of its own clock.

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
        """Take in a success."""
        self.done_at, self.failed, self.first_failed_at = at, 0, None

    def has_failed(self, at: float, number: int = 1, error: str = "") -> None:
        """Take in failures."""
        self.failed_at, self.failed = at, self.failed + number
        self.first_failed_at = at if self.first_failed_at is None else self.first_failed_at
        self.error = error[:ERROR_LENGTH] or self.error


class Outcomes(NamedTuple):
    """What is known of one handler on one topic; times are Unix times by the reader's clock, 0: it never was.

    Attributes:
        failed: how many attempts failed since one succeeded, the first at `failing_since`.
        lost: how many processes died lately with its deliveries, the first at `lost_since`, the last at `lost_at`.
    """

    done_at: float = 0.0
    failed_at: float = 0.0
    failing_since: float = 0.0
    failed: int = 0
    error: str = ""
    lost_at: float = 0.0
    lost_since: float = 0.0
    lost: int = 0


_FIELDS: Final = Outcomes._fields


def note_outcomes(ledger: Ledger, found: Mapping[Whose, RecentAttempts], now: float) -> None:
    """Tell how attempts ended.

    Parameters:
        now: Unix time by the clock of what is told.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    for whose, attempts in found.items():
        failing = attempts.failed_at is not None and attempts.first_failed_at is not None
        args: list[Any] = [
            "" if attempts.done_at is None else max(0.0, now - attempts.done_at),
            max(0.0, now - (attempts.failed_at or now)) if failing else "",
            max(0.0, now - (attempts.first_failed_at or now)) if failing else "",
            attempts.failed,
            attempts.error,
            attempts.lost,
            LOST_TOGETHER,
            KEPT_FOR,
        ]
        ledger.run("note how attempts ended", OUTCOMES, [_key(ledger, *whose)], args)


def outcomes_of(ledger: Ledger, whose: Iterable[Whose], now: float) -> dict[Whose, Outcomes]:
    """Return what is known of each, in one trip.

    Parameters:
        now: Unix time by the reader's clock, of which the times are.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    wanted = list(dict.fromkeys(whose))
    with ledger.asking("read how attempts ended") as pipe:
        pipe.time()
        for each in wanted:
            pipe.hmget(_key(ledger, *each), _FIELDS)
        clock, *rows = pipe.execute(raise_on_error=False)
    seconds, micros = raised(clock)
    ahead = now - (seconds + micros / 1e6)
    return {each: _read(row, ahead) for each, row in zip(wanted, rows, strict=True)}


def _read(row: Any, ahead: float) -> Outcomes:
    """What a hash says; what is no number there, whoever wrote it, is 0."""
    if is_of_another_type(row):
        return Outcomes()
    done_at, failed_at, failing_since, failed, error, lost_at, lost_since, lost = raised(row)

    def moment(value: bytes | None) -> float:
        at = _number(value)
        return at + ahead if at else 0.0

    return Outcomes(
        moment(done_at),
        moment(failed_at),
        moment(failing_since),
        int(_number(failed)),
        (error or b"").decode(errors="replace"),
        moment(lost_at),
        moment(lost_since),
        int(_number(lost)),
    )


def _number(value: bytes | None) -> float:
    try:
        number = float(value or 0)
    except ValueError:
        return 0.0
    return number if isfinite(number) and number > 0 else 0.0


def _key(ledger: Ledger, topic: str, handler: str) -> str:
    return key("", ledger.group, "outcomes", topic, handler)
