"""What of a batch runs later: what is due together goes together, and nothing overtakes what its order holds back."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from bridge.records.message import Delivery


class Wait(NamedTuple):
    """For how long deliveries are put off, and where.

    Attributes:
        delay: seconds.
        parked: whether they wait in a retry topic; else in Celery.
    """

    delay: float
    parked: bool = False


class Later:
    """The deliveries of one batch that run again, or have not run yet when its time is over (pure).

    Parameters:
        order: "key" or "partition" where what comes after a delivery waits for it, else `None`.
    """

    def __init__(self, order: str | None) -> None:
        self._order = order
        self._put_off: dict[Wait, list[Delivery]] = {}
        self._held_back: dict[bytes | None, Wait] = {}

    def again(self, delivery: Delivery, wait: Wait) -> None:
        """It runs again after that, and what comes after it in its order no sooner."""
        if self._order is not None:
            self._held_back[self._lane(delivery)] = wait
        self.put_off(delivery, wait)

    def put_off(self, delivery: Delivery, wait: Wait) -> None:
        """It runs after that."""
        self._put_off.setdefault(wait, []).append(delivery)

    def wait_of(self, delivery: Delivery) -> Wait | None:
        """For how long the one before it in its order is put off, if there is one."""
        if not self._held_back or self._is_free(delivery):
            return None
        return self._held_back.get(self._lane(delivery))

    def take_parked(self) -> list[tuple[float, Delivery]]:
        """What waits in retry topics, with its delay, each behind what it must not overtake; it is forgotten here."""
        waits = [wait for wait in self._put_off if wait.parked]
        return [(wait.delay, delivery) for wait in waits for delivery in self._in_line(self._put_off.pop(wait))]

    def take(self) -> Iterator[tuple[float, list[Delivery]]]:
        """What is due together in Celery, with its delay; each is forgotten when the next is asked for."""
        for wait in [wait for wait in self._put_off if not wait.parked]:
            yield wait.delay, self._put_off[wait]
            del self._put_off[wait]

    def _in_line(self, deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
        """Each says which one it comes after: apart from that one, it may come back before it has ended."""
        last: dict[bytes | None, int] = {}
        for delivery in deliveries:
            before = last.get(self._lane(delivery)) if self._order is not None and not self._is_free(delivery) else None
            yield delivery if before is None else replace(delivery, after=before)
            last[self._lane(delivery)] = delivery.message.offset

    def _is_free(self, delivery: Delivery) -> bool:
        """Messages without a key are free of each other."""
        return self._order == "key" and delivery.message.key is None

    def _lane(self, delivery: Delivery) -> bytes | None:
        return delivery.message.key if self._order == "key" else None
