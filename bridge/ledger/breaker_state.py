"""The state of the circuit breakers of the dependencies that handlers need, shared by the whole group.

The rules are in ``lua/breaker_rules.lua``, in one atomic step each, by Redis's clock;
docs/concepts/circuit-breakers.md explains them. If Redis loses its data, every breaker is closed: deliveries fail and
are retried as without one.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from bridge.formats.gate_names import again_gate, needs_gate
from bridge.formats.untrusted_json import is_time, log_skipped_once
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.ledger_scripts import BREAKER_RULES
from lossless.transport.message_gates import MessageGates

logger = logging.getLogger(__name__)

BreakerState = Literal["closed", "open", "probing", "ramping"]
#: Seconds from opening to the first trial request; the pause doubles from there to `probe_every`.
FIRST_PROBE: Final = 1.0
#: The advice when trial requests hang.
SET_A_LIMIT: Final = "set a time limit (`time_limit`) where a handler has none, and what hangs ends"
#: Seconds by which a failure's time may precede the breaker's: the host may be busy, or its clock differ.
SLACK: Final = 5.0


@dataclass(frozen=True, slots=True)
class BreakerTerms:
    """The thresholds at which a breaker opens, and the pace of its trial requests; see
    docs/concepts/circuit-breakers.md.
    """

    failures: int = 10
    ratio: float = 0.5
    window: float = 30.0
    dead_letters: int = 20
    probe_every: float = 10.0
    probe_within: float = 30.0
    ramp: float = 10.0
    #: Whether a time limit ends a trial request within `probe_within`.
    probe_ends: bool = False

    @property
    def args(self) -> tuple[float, ...]:
        """Return the thresholds as the script's arguments."""
        pause = min(FIRST_PROBE, self.probe_every)
        of_probes = (pause, self.probe_every, self.probe_within, self.ramp, int(self.probe_ends))
        return (self.failures, self.ratio, self.window, self.dead_letters, *of_probes)


class RunResults(NamedTuple):
    """The results of runs whose deliveries need a dependency.

    Attributes:
        good: how many succeeded.
        unclear: whether one ended without telling anything about the dependency.
        failed, dead: the identities of the deliveries that failed and may be retried, and of those that died.
        age: seconds since the first failure. A failure before others' successes does not count against the dependency.
        ran: seconds since the run was admitted.
        last: whether the failed delivery dies now, unless the breaker opens.
        error: the text of the last failure.
    """

    good: int = 0
    unclear: bool = False
    failed: Sequence[str] = ()
    dead: Sequence[str] = ()
    age: float = 0.0
    ran: float = 0.0
    last: bool = False
    error: str = ""

    @property
    def args(self) -> tuple[Any, ...]:
        """Return the results as the script's arguments."""
        told = (self.good, int(self.unclear), self.age, self.ran, int(self.last))
        return (*told, len(self.failed), *self.failed, len(self.dead), *self.dead, self.error)


class BreakerStatus(NamedTuple):
    """The state of a dependency's breaker.

    Attributes:
        before: its state before the call.
        since: when the first of the failures that opened it happened (Unix time); 0: it never was open.
        opened, until: when it opened last, and when it closed again.
        probe: from when on a trial request is let through.
        why: the reason why it opened last.
        granted: whether the delivery of the call may run.
        allowed: how many messages may pass its gate now.
        tried: when the last trial request began; 0 if there was none.
        lease: until when no other trial request joins it.
        silent: how many trial requests have not ended within their time: they hang, or their workers died.
    """

    before: BreakerState = "closed"
    state: BreakerState = "closed"
    since: float = 0.0
    opened: float = 0.0
    until: float = 0.0
    probe: float = 0.0
    why: str = ""
    granted: bool = True
    allowed: int = 0
    tried: float = 0.0
    lease: float = 0.0
    silent: int = 0

    @property
    def next(self) -> float:
        """Return when the next trial request may begin (Unix time)."""
        return self.lease if self.state == "probing" else self.probe

    @property
    def is_closed(self) -> bool:
        """Return whether all deliveries may run."""
        return self.state == "closed"

    def words(self, dependency: str) -> tuple[int, str] | None:
        """Return level and text of the log line if the call changed its state; else `None`."""
        if self.before == self.state:
            return None
        breaker = f"circuit breaker of {dependency}"
        match self.state:
            case "open" if self.before == "probing" and self.silent:
                return logging.WARNING, f"{breaker}: {self._silence} Another trial request may start: {SET_A_LIMIT}."
            case "open" if self.before == "probing":
                return logging.INFO, f"{breaker} stays open: the trial request failed. Another one follows."
            case "open":
                text = f"{breaker} open: {self.why}. Deliveries that need {dependency} wait and spend no attempt."
                return logging.WARNING, text
            case "probing":
                return logging.INFO, f"{breaker} half-open: one delivery tries whether {dependency} responds."
            case "ramping":
                return logging.WARNING, f"{breaker} half-open: {dependency} responds; more and more deliveries run."
        took = self.until - self.since
        return logging.WARNING, f"{breaker} closed after {took:.0f} s: all deliveries that need {dependency} run."

    @property
    def _silence(self) -> str:
        others = f", nor have {self.silent - 1} before it" if self.silent > 1 else ""
        began, within = datetime.fromtimestamp(self.tried, UTC), self.lease - self.tried
        return (
            f"its trial request of {began:%Y-%m-%d %H:%M:%S} UTC has not ended in {within:.0f} s{others}: it hangs, "
            "or its worker died."
        )

    def covers(self, at: float) -> bool:
        """Return whether a Unix time lies in the last outage: failures of then spend no attempt."""
        end = self.until if self.is_closed else float("inf")
        return self.since > 0 and self.since - SLACK <= at <= end


#: The fields of a dependency's hash that `open_ones` reads.
_FIELDS: Final = ("state", "since", "opened", "until", "probe", "why", "tried", "lease", "silent")


class CircuitBreakers:
    """The breakers of the ledger's group. Each method raises LedgerUnavailable when Redis is unavailable."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def read_statuses(self, terms: Mapping[str, BreakerTerms]) -> dict[str, BreakerStatus]:
        """Return the state of each dependency's breaker."""
        return {name: self._run(name, each, "look") for name, each in terms.items()}

    def admit(self, name: str, terms: BreakerTerms, probe: str) -> BreakerStatus:
        """Return whether a delivery may run now; ``probe`` is the name under which its end is reported."""
        return self._run(name, terms, "admit", probe)

    def report(self, name: str, terms: BreakerTerms, ended: RunResults, probe: str = "") -> BreakerStatus:
        """Report how runs ended."""
        return self._run(name, terms, "report", probe, ended)

    def open_ones(self, names: Collection[str]) -> dict[str, BreakerStatus]:
        """Return the breakers of these dependencies that are not closed, without changing anything."""
        with self._ledger.asking("read which breakers are open") as pipe:
            for name in names:
                pipe.hmget(self._keys(name)[0], _FIELDS)
            rows = pipe.execute()
        found = {name: _read_open_breaker(row) for name, row in zip(names, rows, strict=True)}
        return {name: known for name, known in found.items() if not known.is_closed}

    def _run(
        self,
        name: str,
        terms: BreakerTerms,
        act: str,
        probe: str = "",
        ended: RunResults = RunResults(),  # noqa: B008
    ) -> BreakerStatus:
        args = ("", act, probe, *terms.args, *ended.args)
        answer = self._ledger.run(f"{act} for the breaker {name!r}", BREAKER_RULES, self._keys(name), args)
        return read_breaker_status(answer)

    def _keys(self, name: str) -> list[str]:
        return make_breaker_keys(self._ledger.group, name)


def align_gates(gates: MessageGates, group: str, dependency: str, known: BreakerStatus, fresh: bool = True) -> None:
    """Set the gates of a dependency to its breaker's state. Raises redis-py's errors.

    Parameters:
        fresh: whether deliveries that never failed may be waiting: they are tried before the others.
    """
    _align_gate(gates, needs_gate(group, dependency), known, known.allowed)
    _align_gate(gates, again_gate(group, dependency), known, 0 if fresh and known.state == "open" else known.allowed)


def _align_gate(gates: MessageGates, gate: str, known: BreakerStatus, allowed: int) -> None:
    passing = gates.allowed(gate)
    if known.is_closed:
        if passing is not None:
            gates.open(gate)
        return
    if passing is None:
        gates.shut(gate, known.why)
    if allowed != (passing or 0):
        gates.allow(gate, allowed)


def make_breaker_keys(group: str, name: str) -> list[str]:
    """Return the keys of a dependency: its hash, and the sets of recent failures and deaths."""
    start = ledger_key("", group, "breaker", name)
    return [start, f"{start}:failed", f"{start}:dead"]


def read_breaker_status(answer: Sequence[Any]) -> BreakerStatus:
    """Return the state from the script's answer; a breaker that another program overwrote counts as closed."""
    try:
        before, state, since, opened, until, probe, why, granted, allowed, tried, lease, silent = map(
            _decode_text, answer
        )
        times = (_read_time(since), _read_time(opened), _read_time(until), _read_time(probe))
        of_probes = (_read_time(tried), _read_time(lease), int(silent))
        return BreakerStatus(
            _read_state(before), _read_state(state), *times, why, granted == "1", int(allowed), *of_probes
        )
    except Exception as error:
        return _log_unreadable(error)


def _read_open_breaker(row: Sequence[bytes | None]) -> BreakerStatus:
    try:
        state, since, opened, until, probe, why, tried, lease, silent = [_decode_text(each or b"") for each in row]
        times = (_read_time(since), _read_time(opened), _read_time(until), _read_time(probe))
        known = BreakerStatus(_read_state(state), _read_state(state), *times, why)
        return known._replace(tried=_read_time(tried), lease=_read_time(lease), silent=int(silent or 0))
    except Exception as error:
        return _log_unreadable(error)


def _log_unreadable(error: Exception) -> BreakerStatus:
    log_skipped_once(logger, "the state of a circuit breaker in Redis", type(error).__name__)
    return BreakerStatus()


def _read_time(said: str) -> float:
    if not is_time(at := float(said or 0)):
        raise ValueError("it is no time")
    return at


def _read_state(written: str) -> BreakerState:
    if written and written not in get_args(BreakerState):
        raise ValueError("it is no state")
    return cast(BreakerState, written or "closed")


def _decode_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
