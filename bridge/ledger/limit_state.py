"""The limits that handlers share, in Redis: how many deliveries start in a second, and how many run at once.

All claims of a limit are decided by one script (lua/claim_limit.lua), by Redis's clock. Deliveries share a limit in
lanes: each handler, or each key of a handler, is a lane, and gets as much of it as any other that has deliveries. A
lane is a number: more keys than `LANES` share lanes, so that the memory of a limit is bounded.

A claimed start is paid for by time alone, whatever becomes of the process. A lease ends with the delivery, or some
seconds after its process was killed.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.ledger_scripts import CLAIM_LIMIT, RELEASE_LIMIT, LeaseEnd

#: The most lanes of a limit.
LANES: Final = 4_096
#: Seconds for which unused starts are kept at least: workers look for due messages every tenth of a second.
LEAST_CREDIT: Final = 0.25
#: Seconds after which a delivery that waits looks again at the latest.
LONGEST_WAIT: Final = 90
#: Seconds of a lease; a process renews those of what it runs.
LEASE: Final = 30.0


class LimitTerms(NamedTuple):
    """The numbers of a limit.

    Attributes:
        per_second: how many deliveries start in a second; `None`: any number.
        burst: how many start at once after a pause.
        concurrency: how many run at once; `None`: any number.
    """

    per_second: float | None = None
    burst: int = 1
    concurrency: int | None = None

    @property
    def credit(self) -> float:
        """Return the seconds for which unused starts are kept."""
        return max(LEAST_CREDIT, (self.burst - 1) / self.per_second) if self.per_second else 0.0


class LimitedDelivery(NamedTuple):
    """A delivery that claims its start: its lane, and its identity."""

    lane: int
    identity: str

    @property
    def lease(self) -> str:
        """Return its member of the leases."""
        return f"{self.lane}|{self.identity}"

    @classmethod
    def from_lease(cls, member: str) -> "LimitedDelivery":
        """Return the delivery of a member."""
        lane, _, identity = member.partition("|")
        return cls(int(lane), identity)


class LimitStatus(NamedTuple):
    """The state of a limit.

    Attributes:
        running: how many deliveries run now; 0 without a concurrency.
        waiting: about how many wait for their turn.
        wait: about the seconds until the last of these starts.
        started, waited: how many have started, and how often one had to wait.
        lanes: how many lanes share it now.
    """

    running: int = 0
    waiting: int = 0
    wait: float = 0.0
    started: int = 0
    waited: int = 0
    lanes: int = 0


def find_lane(handler: str, key: bytes | None) -> int:
    """Return the lane of a handler's deliveries, or of those with a key (pure)."""
    return crc32(handler.encode() if key is None else handler.encode() + b"\0" + key) % LANES


class LimitLedger:
    """The limits of the ledger's group. Each method raises LedgerUnavailable if Redis does not answer."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def claim(
        self,
        name: str,
        terms: LimitTerms,
        deliveries: Sequence[LimitedDelivery],
        takes: float = 1.0,
        now: float | None = None,
    ) -> list[float]:
        """Claim the starts of deliveries; return for each the seconds that it waits, 0 if it starts now.

        Parameters:
            takes: seconds that a run takes.
            now: `None`: Redis's time.
        """
        args: list[Any] = ["" if now is None else f"{now:.6f}", terms.per_second or 0, terms.credit]
        args += [terms.concurrency or 0, LEASE, takes]
        for delivery in deliveries:
            args += (delivery.lane, delivery.identity)
        answer = self._ledger.run(f"claim a start of the limit {name!r}", CLAIM_LIMIT, self._keys(name), args)
        return [wait / 1000 for wait in answer]

    def release(self, name: str, terms: LimitTerms, ended: Collection[LimitedDelivery], unused: int = 0) -> None:
        """End the leases of deliveries, and give back starts that were not used."""
        args = [unused, terms.per_second or 0, *(delivery.lease for delivery in ended)]
        self._ledger.run(f"release the limit {name!r}", RELEASE_LIMIT, self._keys(name)[:2], args)

    def renew(self, name: str, running: Collection[LimitedDelivery]) -> None:
        """Renew the leases of deliveries that run, also in a Redis that has lost them."""
        key = self._keys(name)[1]
        with self._ledger.asking(f"renew leases of the limit {name!r}") as pipe:
            pipe.time()
            ((seconds, _),) = pipe.execute()
            pipe.zadd(key, {delivery.lease: seconds + LEASE for delivery in running})
            pipe.expire(key, int(LEASE) + 60)
            pipe.execute()

    def lease_end(self, name: str, delivery: LimitedDelivery) -> LeaseEnd:
        """Return the end of a delivery's lease, to write with its mark."""
        return LeaseEnd(self._keys(name)[1], delivery.lease)

    def read(self, names: Collection[str]) -> dict[str, LimitStatus]:
        """Return the state of each limit, without changing anything."""
        if not names:
            return {}
        with self._ledger.asking("read the limits of handlers") as pipe:
            pipe.time()
            ((seconds, _),) = pipe.execute()
            for name in names:
                state, leases, lanes, _ = self._keys(name)
                pipe.hmget(state, "pace", "started", "waited", *_name_looks(seconds))
                pipe.zcount(leases, seconds, "+inf")
                pipe.zcount(lanes, seconds, "+inf")
            answers = pipe.execute()
        rows = zip(names, answers[::3], answers[1::3], answers[2::3], strict=True)
        return {name: read_limit_status(row, running, lanes) for name, row, running, lanes in rows}

    def _keys(self, name: str) -> list[str]:
        start = ledger_key("", self._ledger.group, "limit", name)
        return [start, f"{start}:leases", f"{start}:lanes", f"{start}:turns"]


def _name_looks(now: int) -> list[str]:
    """Return the fields that count the deliveries that look again: none waits longer than `LONGEST_WAIT`."""
    return [f"w{second}" for second in range(now, now + LONGEST_WAIT + 1)]


def read_limit_status(row: Sequence[bytes | None], running: int, lanes: int) -> LimitStatus:
    """Return the state of a limit from its fields; what another program wrote counts as nothing (pure)."""
    try:
        pace, started, waited, *looks = (float(value or 0) for value in row)
        waiting = sum(looks)
        wait = waiting / pace if pace else 0.0
        return LimitStatus(running, int(waiting), round(wait, 1), int(started), int(waited), lanes)
    except (ValueError, OverflowError):
        return LimitStatus(running, lanes=lanes)
