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
NAME_FREE: Final = 5
#: Of an address there may be many people behind.
ADDRESS_FREE: Final = 20
#: Seconds that the first wrong one more costs, each further one twice as much; and the most.
FIRST: Final = 60
MOST: Final = 900
#: Seconds after which wrong ones are forgotten.
FORGOTTEN: Final = 3_600
#: Names, and addresses, that are counted at a time: who tries more pushes out the oldest.
COUNTED: Final = 10_000


#: What a count is of.
Counted = TypeVar("Counted", str, tuple[str, str])


class Count(NamedTuple):
    """Of a name at an address, of a name on a known device, or of an address.

    Attributes:
        wrong: in a row.
        last, until: ms of the clock: of the last wrong one, and until when none is tried.
    """

    wrong: int = 0
    last: int = 0
    until: int = 0


class Guess(NamedTuple):
    """What is answered before a password is tried.

    Attributes:
        waits: what has to wait, "name" (at this address) or "address"; "": it may be tried.
        left: ms that it waits still.
        warning: what the next wrong one costs, should this one be wrong.
    """

    waits: str = ""
    left: int = 0
    warning: str = ""


def after(count: Count, free: int, now: int) -> Count:
    """A count with one wrong one more (pure)."""
    wrong = (count.wrong if now - count.last < FORGOTTEN * 1_000 else 0) + 1
    return Count(wrong, now, now + _cost(wrong, free) * 1_000)


def warning(name: Count, address: Count) -> str:
    """What the next wrong one costs (pure)."""
    by_name, by_address = NAME_FREE - name.wrong, ADDRESS_FREE - address.wrong
    what, left, wrong, free = (
        ("name", by_name, name.wrong, NAME_FREE)
        if by_name <= by_address
        else ("address", by_address, address.wrong, ADDRESS_FREE)
    )
    if left > 1:
        return f"After {left} more wrong ones this {what} waits {_span(FIRST)}."
    return f"After the next wrong one this {what} waits {_span(_cost(max(wrong + 1, free), free))}."


def _cost(wrong: int, free: int) -> int:
    return 0 if wrong < free else int(min(MOST, FIRST * 2 ** min(wrong - free, 10)))


def _span(seconds: int) -> str:
    return "a minute" if seconds == 60 else f"{seconds // 60} minutes"


@dataclass
class Guesses:
    """The counts of one console process.

    Parameters:
        clock: ms that no one sets: the clock of the wall may jump, by a day and more, and would free or lock whoever
            waits.
    """

    clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    _names: dict[tuple[str, str], Count] = field(default_factory=dict, repr=False)
    _addresses: dict[str, Count] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def guess(self, name: str, address: str, device: str = "") -> Guess:
        """Somebody tries a password. It counts as wrong until it was right: many at once are no way round.

        Parameters:
            device: by which the browser proves that this user has signed in with it before; "": it does not.
        """
        now, address = self.clock(), source(address)
        with self._lock:
            of_name = self._names.get(_key(name, address, device), Count())
            # A known device waits for nobody else's wrong ones at its address.
            of_address = Count() if device else self._addresses.get(address, Count())
            for what, count in (("name", of_name), ("address", of_address)):
                if now < count.until:
                    return Guess(what, count.until - now)
            of_name, of_address = after(of_name, NAME_FREE, now), after(of_address, ADDRESS_FREE, now)
            _keep(self._names, _key(name, address, device), of_name)
            if not device:
                _keep(self._addresses, address, of_address)
            return Guess(warning=warning(of_name, of_address))

    def right(self, name: str, address: str, device: str = "") -> None:
        """It was right: the name begins anew here, of the address this one does not count."""
        address = source(address)
        with self._lock:
            self._names.pop(_key(name, address, device), None)
            if device:
                return
            count = self._addresses.get(address, Count())
            self._addresses[address] = count._replace(wrong=max(0, count.wrong - 1), until=0)

    def waits(self, address: str) -> int:
        """For how many ms nothing of an address is tried; 0: it may be."""
        with self._lock:
            until = self._addresses.get(source(address), Count()).until
        return max(0, until - self.clock())

    def wrong(self, address: str) -> None:
        """What an address gave was wrong, and belongs to no name."""
        address = source(address)
        with self._lock:
            _keep(self._addresses, address, after(self._addresses.get(address, Count()), ADDRESS_FREE, self.clock()))


def source(address: str) -> str:
    """The address as it is counted (pure): of IPv6 its /64, of which one machine has all addresses."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), 64), strict=False))


def _key(name: str, address: str, device: str) -> tuple[str, str]:
    # No address begins so.
    return name, f"device {device}" if device else address


def _keep(counts: dict[Counted, Count], of: Counted, count: Count) -> None:
    counts.pop(of, None)
    counts[of] = count
    if len(counts) > COUNTED:
        del counts[next(iter(counts))]
