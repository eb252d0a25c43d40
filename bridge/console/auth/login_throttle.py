"""The throttle of wrong passwords and tokens: failures count by name and address, and cost a growing wait.

A name that is guessed at one address waits at that address alone, so nobody locks another person out of the console. A
browser in which the user has signed in before (a known device) has a count of its own, whatever its address.

The library `limits` 5 has windows of one length. It has no wait that grows, takes no failure back, reads the wall clock
and bounds no memory: 6 of the 14 tests of this throttle fail with it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple, TypeVar

from lossless.backoff import Backoff

#: The failures in a row that cost nothing.
FREE_BY_NAME: Final = 5
#: The same for an address, which many people may share.
FREE_BY_ADDRESS: Final = 20
#: The seconds that the next failure waits.
WAIT: Final = Backoff(first=60, most=900)
#: The seconds after which failures are forgotten.
FORGET_AFTER: Final = 3_600
#: The most names and addresses that are counted; the oldest are dropped first.
MAX_COUNTED: Final = 10_000


#: The subject of a count.
Counted = TypeVar("Counted", str, tuple[str, str])


class FailureCount(NamedTuple):
    """The failures of a name at an address, of a name on a known device, or of an address.

    Attributes:
        wrong: failures in a row.
        last, until: ms of the clock: when the last failure was, and until when nothing is tried.
    """

    wrong: int = 0
    last: int = 0
    until: int = 0


class ThrottleVerdict(NamedTuple):
    """The decision whether a password may be tried.

    Attributes:
        waits: what must wait, "name" (at this address) or "address"; "": it may be tried.
        left: the ms that are left to wait.
        warning: the cost of the next failure, if this attempt fails.
    """

    waits: str = ""
    left: int = 0
    warning: str = ""


def add_failure(count: FailureCount, free: int, now: int) -> FailureCount:
    """Return a count with one more failure (pure)."""
    wrong = (count.wrong if now - count.last < FORGET_AFTER * 1_000 else 0) + 1
    return FailureCount(wrong, now, now + _compute_wait(wrong, free) * 1_000)


def describe_next_wait(name: FailureCount, address: FailureCount) -> str:
    """Return a sentence about the cost of the next failure (pure)."""
    by_name, by_address = FREE_BY_NAME - name.wrong, FREE_BY_ADDRESS - address.wrong
    what, left, wrong, free = (
        ("name", by_name, name.wrong, FREE_BY_NAME)
        if by_name <= by_address
        else ("address", by_address, address.wrong, FREE_BY_ADDRESS)
    )
    if left > 1:
        return f"After {left} more wrong ones this {what} waits {_format_wait(_compute_wait(free, free))}."
    return f"After the next wrong one this {what} waits {_format_wait(_compute_wait(max(wrong + 1, free), free))}."


def _compute_wait(wrong: int, free: int) -> int:
    return 0 if wrong < free else int(WAIT.compute_pause(wrong - free))


def _format_wait(seconds: int) -> str:
    return "a minute" if seconds == 60 else f"{seconds // 60} minutes"


@dataclass
class LoginThrottle:
    """The failure counts of one console process.

    Parameters:
        clock: ms of a monotonic clock: the wall clock may jump, and would end or extend waits.
    """

    clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    _names: dict[tuple[str, str], FailureCount] = field(default_factory=dict, repr=False)
    _addresses: dict[str, FailureCount] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def guess(self, name: str, address: str, device: str = "") -> ThrottleVerdict:
        """Register an attempt; it counts as a failure until it was right, so parallel attempts gain nothing.

        Parameters:
            device: the proof that this user has signed in with this browser before; "": there is none.
        """
        now, address = self.clock(), normalize_address(address)
        with self._lock:
            of_name = self._names.get(_build_key(name, address, device), FailureCount())
            # A known device does not wait for the failures of others at its address.
            of_address = FailureCount() if device else self._addresses.get(address, FailureCount())
            for what, count in (("name", of_name), ("address", of_address)):
                if now < count.until:
                    return ThrottleVerdict(what, count.until - now)
            of_name, of_address = add_failure(of_name, FREE_BY_NAME, now), add_failure(of_address, FREE_BY_ADDRESS, now)
            _keep_count(self._names, _build_key(name, address, device), of_name)
            if not device:
                _keep_count(self._addresses, address, of_address)
            return ThrottleVerdict(warning=describe_next_wait(of_name, of_address))

    def right(self, name: str, address: str, device: str = "") -> None:
        """Register that the password was right: the name's count starts anew, the address does not count it."""
        address = normalize_address(address)
        with self._lock:
            self._names.pop(_build_key(name, address, device), None)
            if device:
                return
            count = self._addresses.get(address, FailureCount())
            self._addresses[address] = count._replace(wrong=max(0, count.wrong - 1), until=0)

    def waits(self, address: str) -> int:
        """Return for how many ms an address must wait; 0 if it may try."""
        with self._lock:
            until = self._addresses.get(normalize_address(address), FailureCount()).until
        return max(0, until - self.clock())

    def wrong(self, address: str) -> None:
        """Register a failure of an address that belongs to no name."""
        address = normalize_address(address)
        with self._lock:
            _keep_count(
                self._addresses,
                address,
                add_failure(self._addresses.get(address, FailureCount()), FREE_BY_ADDRESS, self.clock()),
            )


def normalize_address(address: str) -> str:
    """Return the address that is counted (pure): of IPv6 its /64, all of which one machine may have."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), 64), strict=False))


def _build_key(name: str, address: str, device: str) -> tuple[str, str]:
    # No address begins like this.
    return name, f"device {device}" if device else address


def _keep_count(counts: dict[Counted, FailureCount], of: Counted, count: FailureCount) -> None:
    counts.pop(of, None)
    counts[of] = count
    if len(counts) > MAX_COUNTED:
        del counts[next(iter(counts))]
