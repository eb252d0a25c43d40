"""The deliveries of one batch that run later, by wait and place: none overtakes another in its order (pure)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from bridge.formats.delivery import Delivery


class DeliveryWait(NamedTuple):
    """The wait of deliveries: its length and its place.

    Attributes:
        delay: seconds.
        parked: whether they wait in a retry topic; else in Celery.
        gate: the gate of the halted key for which they wait, without a delay; empty: they wait for none.
    """

    delay: float
    parked: bool = False
    gate: str = ""


class LaterDeliveries:
    """The deliveries of one batch that run later: retries, and those left when its time is over (pure).

    Parameters:
        order: "key" or "partition" if later deliveries wait for earlier ones, else `None`.
    """

    def __init__(self, order: str | None) -> None:
        self._order = order
        self._put_off: dict[DeliveryWait, list[Delivery]] = {}
        #: By lane, the first offset that waits, and the wait of those behind it.
        self._held_back: dict[bytes | None, tuple[int, DeliveryWait]] = {}
        #: By lane, the dead delivery that holds those behind it.
        self._behind: dict[bytes | None, int] = {}

    def again(self, delivery: Delivery, wait: DeliveryWait) -> None:
        """Add a delivery that is retried after a wait; later ones in its order run no sooner."""
        if self._order is not None:
            self._hold_back_from(delivery, wait)
        self.put_off(delivery, wait)

    def put_off(self, delivery: Delivery, wait: DeliveryWait) -> None:
        """Add a delivery that runs after a wait, and after the dead one that holds it."""
        if self._behind and not self._is_free(delivery):
            # One that it waited for before may have ended since, and the one behind that be dead now.
            after = -1 if delivery.after is None else delivery.after
            if after < self._behind.get(self._lane(delivery), -1) < delivery.message.offset:
                delivery = replace(delivery, after=self._behind[self._lane(delivery)])
        self._put_off.setdefault(wait, []).append(delivery)

    def hold_behind(self, delivery: Delivery, wait: DeliveryWait) -> None:
        """Let the deliveries behind a dead one in its order wait for it."""
        if self._order is not None and not self._is_free(delivery):
            _, known = self._held_back.get(self._lane(delivery), (0, wait))
            self._hold_back_from(delivery, known)
            self._behind[self._lane(delivery)] = delivery.message.offset

    def wait_of(self, delivery: Delivery) -> DeliveryWait | None:
        """Return the wait of the delivery before this one in its order, None if it has none."""
        if not self._held_back or self._is_free(delivery):
            return None
        first, wait = self._held_back.get(self._lane(delivery), (None, None))
        # A bulk handler's call ends deliveries in front of one that was put off before the call.
        return wait if first is not None and first < delivery.message.offset else None

    def take_parked(self) -> list[tuple[float, Delivery]]:
        """Return and remove the deliveries for retry topics with their delays, each with its predecessor."""
        waits = [wait for wait in self._put_off if wait.parked]
        return [(wait.delay, delivery) for wait in waits for delivery in self._in_line(self._put_off.pop(wait))]

    def take(self) -> Iterator[tuple[float, list[Delivery]]]:
        """Yield the deliveries that wait in Celery by their delay; each group is removed when the next is taken."""
        for wait in [wait for wait in self._put_off if not wait.parked and not wait.gate]:
            yield wait.delay, self._in_order(self._put_off[wait])
            del self._put_off[wait]

    def take_held(self) -> Iterator[tuple[str, list[Delivery]]]:
        """Yield the deliveries of halted keys by their gate; each group is removed when the next is taken."""
        for wait in [wait for wait in self._put_off if wait.gate]:
            yield wait.gate, self._in_order(self._put_off[wait])
            del self._put_off[wait]

    def _in_line(self, deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
        """Yield the deliveries with the predecessor of each: a retry topic may return them in another order.

        A predecessor that travels in another message is kept if it is behind the one here.
        """
        last: dict[bytes | None, int] = {}
        for delivery in self._in_order(deliveries):
            before = last.get(self._lane(delivery)) if self._order is not None and not self._is_free(delivery) else None
            is_nearer = before is not None and (delivery.after is None or delivery.after < before)
            yield replace(delivery, after=before) if is_nearer else delivery
            last[self._lane(delivery)] = delivery.message.offset

    def _in_order(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        return list(deliveries) if self._order is None else sorted(deliveries, key=lambda each: each.message.offset)

    def _hold_back_from(self, delivery: Delivery, wait: DeliveryWait) -> None:
        offset, lane = delivery.message.offset, self._lane(delivery)
        first, _ = self._held_back.get(lane, (offset, wait))
        self._held_back[lane] = min(first, offset), wait

    def _is_free(self, delivery: Delivery) -> bool:
        """Return whether a delivery has no order: its message has no key."""
        return self._order == "key" and delivery.message.key is None

    def _lane(self, delivery: Delivery) -> bytes | None:
        return delivery.message.key if self._order == "key" else None
