"""The throttle of wrong passwords and tokens: failures count by name and address, and cost a growing wait.

A name that is guessed at one address waits at that address alone, so nobody locks another person out of the console. A
browser in which the user has signed in before (a known device) has a count of its own, whatever its address.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple, TypeVar

#: Wrong ones in a row that cost nothing yet.
FREE_BY_NAME: Final = 5
#: Of an address there may be many people behind.
FREE_BY_ADDRESS: Final = 20
#: Seconds that the first wrong one more costs, each further one twice as much; and the most.
FIRST_WAIT: Final = 60
LONGEST_WAIT: Final = 900
#: Seconds after which wrong ones are forgotten.
FORGET_AFTER: Final = 3_600
#: Names, and addresses, that are counted at a time: who tries more pushes out the oldest.
MAX_COUNTED: Final = 10_000


#: What a count is of.
Counted = TypeVar("Counted", str, tuple[str, str])


class FailureCount(NamedTuple):
    """Of a name at an address, of a name on a known device, or of an address.

    Attributes:
        wrong: in a row.
        last, until: ms of the clock: of the last wrong one, and until when none is tried.
    """

    wrong: int = 0
    last: int = 0
    until: int = 0


class ThrottleVerdict(NamedTuple):
    """What is answered before a password is tried.

    Attributes:
        waits: what has to wait, "name" (at this address) or "address"; "": it may be tried.
        left: ms that it waits still.
        warning: what the next wrong one costs, should this one be wrong.
    """

    waits: str = ""
    left: int = 0
    warning: str = ""


def add_failure(count: FailureCount, free: int, now: int) -> FailureCount:
    """A count with one wrong one more (pure)."""
    wrong = (count.wrong if now - count.last < FORGET_AFTER * 1_000 else 0) + 1
    return FailureCount(wrong, now, now + _compute_wait(wrong, free) * 1_000)


def describe_next_wait(name: FailureCount, address: FailureCount) -> str:
    """What the next wrong one costs (pure)."""
    by_name, by_address = FREE_BY_NAME - name.wrong, FREE_BY_ADDRESS - address.wrong
    what, left, wrong, free = (
        ("name", by_name, name.wrong, FREE_BY_NAME)
        if by_name <= by_address
        else ("address", by_address, address.wrong, FREE_BY_ADDRESS)
    )
    if left > 1:
        return f"After {left} more wrong ones this {what} waits {_format_wait(FIRST_WAIT)}."
    return f"After the next wrong one this {what} waits {_format_wait(_compute_wait(max(wrong + 1, free), free))}."


def _compute_wait(wrong: int, free: int) -> int:
    return 0 if wrong < free else int(min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(wrong - free, 10)))


def _format_wait(seconds: int) -> str:
    return "a minute" if seconds == 60 else f"{seconds // 60} minutes"


@dataclass
class LoginThrottle:
    """The counts of one console process.

    Parameters:
        clock: ms that no one sets: the clock of the wall may jump, by a day and more, and would free or lock whoever
            waits.
    """

    clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    _names: dict[tuple[str, str], FailureCount] = field(default_factory=dict, repr=False)
    _addresses: dict[str, FailureCount] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def guess(self, name: str, address: str, device: str = "") -> ThrottleVerdict:
        """Somebody tries a password. It counts as wrong until it was right: many at once are no way round.

        Parameters:
            device: by which the browser proves that this user has signed in with it before; "": it does not.
        """
        now, address = self.clock(), normalize_address(address)
        with self._lock:
            of_name = self._names.get(_build_key(name, address, device), FailureCount())
            # A known device waits for nobody else's wrong ones at its address.
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
        """It was right: the name begins anew here, of the address this one does not count."""
        address = normalize_address(address)
        with self._lock:
            self._names.pop(_build_key(name, address, device), None)
            if device:
                return
            count = self._addresses.get(address, FailureCount())
            self._addresses[address] = count._replace(wrong=max(0, count.wrong - 1), until=0)

    def waits(self, address: str) -> int:
        """For how many ms nothing of an address is tried; 0: it may be."""
        with self._lock:
            until = self._addresses.get(normalize_address(address), FailureCount()).until
        return max(0, until - self.clock())

    def wrong(self, address: str) -> None:
        """What an address gave was wrong, and belongs to no name."""
        address = normalize_address(address)
        with self._lock:
            _keep_count(
                self._addresses,
                address,
                add_failure(self._addresses.get(address, FailureCount()), FREE_BY_ADDRESS, self.clock()),
            )


def normalize_address(address: str) -> str:
    """The address as it is counted (pure): of IPv6 its /64, of which one machine has all addresses."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), 64), strict=False))


def _build_key(name: str, address: str, device: str) -> tuple[str, str]:
    # No address begins so.
    return name, f"device {device}" if device else address


def _keep_count(counts: dict[Counted, FailureCount], of: Counted, count: FailureCount) -> None:
    counts.pop(of, None)
    counts[of] = count
    if len(counts) > MAX_COUNTED:
        del counts[next(iter(counts))]
