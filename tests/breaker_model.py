"""A breaker's rules in Python, to be read and to be compared with ``bridge/ledger/lua/breaker_rules.lua``."""

import math
from dataclasses import dataclass, field

from bridge.ledger.breaker_state import FIRST_PROBE, BreakerState, BreakerTerms, RunResults

SETTLE, MEMORY, MOST, START, DOUBLINGS, AGAIN = 1.0, 604_800.0, 1000, 5, 10, 3
SOON, MANY, LONGEST = 300.0, 16, 3600.0


@dataclass
class Model:
    """One dependency."""

    terms: BreakerTerms = field(default_factory=BreakerTerms)
    state: BreakerState = "closed"
    since: float = 0.0
    opened: float = 0.0
    until: float = 0.0
    probe: float = 0.0
    first: float = 0.0
    begun: float = 0.0
    good: float = 0.0
    good_at: float = 0.0
    ok_at: float = 0.0
    pause: float = 0.0
    lease: float = 0.0
    silent: int = 0
    ends: bool = False
    tried: float = 0.0
    ramp: float = 0.0
    admitted: int = 0
    prober: str = ""
    failed: dict[str, float] = field(default_factory=dict)
    dead: dict[str, float] = field(default_factory=dict)

    def advance(self, now: float) -> None:
        """What time alone changes."""
        if self.state == "ramping" and now >= self.ramp + self.terms.ramp:
            self.state, self.until, self.begun, self.first, self.good = "closed", now, now, 0.0, 0.0
            self._forget()
        if self.state == "probing" and now >= self.lease:
            self.state, self.probe = "open", now
            # What its time limit has ended hangs no longer.
            self.silent += not self.ends

    def admit(self, now: float, name: str) -> bool:
        """Whether a delivery may run."""
        self.advance(now)
        if self.state == "open" and now >= self.probe:
            self.state, self.prober, self.tried, self.lease = "probing", name, now, now + self.within()
            self.ends = self.terms.probe_ends
            return True
        if self.state == "ramping" and self.admitted < self.admitted_by(now):
            self.admitted += 1
            return True
        return self.state == "closed"

    def within(self) -> float:
        """Seconds after which another joins a probe that begins now.

        Nobody knows whether those that are silent hang or their workers died: what hangs must not be joined by all that
        there are.
        """
        within = self.terms.probe_within
        if self.terms.probe_ends:
            return within
        if self.silent < MANY:
            return max(within, min(SOON, within * 2.0**self.silent))
        return max(within, min(LONGEST, SOON * 2.0 ** (self.silent - MANY + 1)))

    def report(self, now: float, ended: RunResults, name: str = "") -> None:
        """How runs ended."""
        self.advance(now)
        witness = now - ended.age >= self.ok_at
        if ended.good:
            self.ok_at = now
        if self.state == "closed":
            self._run(now, ended, witness)
        elif self.state != "ramping" and ended.good and name and now - ended.ran >= self.opened:
            self.state, self.ramp, self.admitted, self.good = "ramping", now, 0, float(ended.good)
            self._forget()
        elif self.state == "probing" and name and name == self.prober:
            self._probed(now, ended)
        elif self.state in ("open", "probing") and name and now - ended.ran >= self.opened:
            # One that was silent for longer than it might has ended after all.
            if ended.failed or ended.dead or ended.unclear:
                self.silent = max(0, self.silent - 1)
        elif self.state == "ramping" and name:
            self._tried(now, ended, witness)

    def _run(self, now: float, ended: RunResults, witness: bool) -> None:
        self._count(now, ended)
        if (ended.failed or ended.dead) and witness:
            self.first = self.first or now
            self._note(now, ended)
            self._judge(now)
            if self.state == "closed" and ended.last:
                self._spare(now, ended.age)

    def _spare(self, now: float, age: float) -> None:
        many = self._since(self.failed, self.first) if self.first else 0
        if many >= self.terms.failures or (many >= 2 and age >= self.terms.window):
            self._open(now, self.first, min(FIRST_PROBE, self.terms.probe_every))

    def _probed(self, now: float, ended: RunResults) -> None:
        if ended.failed or ended.dead or ended.unclear:
            self.silent = 0
        if ended.failed or ended.dead:
            self.state, self.pause = "open", min(self.pause * 2, self.terms.probe_every)
            self.probe = now + self.pause
        elif ended.unclear:
            self.state, self.probe = "open", now

    def _tried(self, now: float, ended: RunResults, witness: bool) -> None:
        self.good += ended.good
        if witness:
            self._note(now, ended)
        wrong = len(self.failed) + len(self.dead)
        told = ended.failed or ended.dead
        if told and wrong >= AGAIN and wrong >= self.terms.ratio * (wrong + self.good):
            self._open(now, self.since, self.terms.probe_every)

    def allowed(self, now: float) -> int:
        """How many messages the gate lets through."""
        if self.state == "open" and now >= self.probe:
            return 1
        return max(1, self.admitted_by(now + 1) - self.admitted) if self.state == "ramping" else 0

    def admitted_by(self, at: float) -> int:
        """How many deliveries may have run since the ramp began."""
        return math.floor(START * 2 ** (DOUBLINGS * (at - self.ramp) / self.terms.ramp))

    def _count(self, now: float, ended: RunResults) -> None:
        self.begun = self.begun or now
        if ended.good or self.good_at:
            faded = self.good * math.exp(-max(0.0, now - self.good_at) / self.terms.window)
            self.good, self.good_at = faded + ended.good, now
        if ended.good:
            self.first = 0.0

    def _note(self, now: float, ended: RunResults) -> None:
        for known, new in ((self.failed, ended.failed), (self.dead, ended.dead)):
            known.update(dict.fromkeys(new, now))
            if new:
                for old in [each for each, at in known.items() if at <= now - MEMORY]:
                    del known[old]

    def _judge(self, now: float) -> None:
        if now - self.begun < SETTLE:
            return
        terms = self.terms
        if self.first and now - self.first >= SETTLE:
            many, died = self._since(self.failed, self.first), self._since(self.dead, self.first)
            if many >= terms.failures or many + died >= terms.dead_letters:
                self._open(now, self.first, min(FIRST_PROBE, terms.probe_every))
                return
        lately = self._since(self.failed, now - terms.window)
        if lately >= terms.failures and lately >= terms.ratio * (lately + self.good):
            self._open(now, now - terms.window, min(FIRST_PROBE, terms.probe_every))

    def _open(self, now: float, since: float, pause: float) -> None:
        self.state, self.since, self.opened, self.pause, self.probe = "open", since, now, pause, now + pause
        self.silent = 0
        self._forget()

    def _forget(self) -> None:
        self.failed.clear()
        self.dead.clear()

    @staticmethod
    def _since(known: dict[str, float], at: float) -> int:
        return sum(1 for each in known.values() if each >= at)
