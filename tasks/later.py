"""What of a batch runs later: what is due together goes together, and nothing overtakes what its order holds back."""

from collections.abc import Iterator

from bridge.records.message import Delivery


class Later:
    """The deliveries of one batch that run again, or have not run yet when its time is over (pure).

    Parameters:
        order: "key" or "partition" where what comes after a delivery waits for it, else `None`.
    """

    def __init__(self, order: str | None) -> None:
        self._order = order
        self._put_off: dict[float, list[Delivery]] = {}
        self._held_back: dict[bytes | None, float] = {}

    def again(self, delivery: Delivery, delay: float) -> None:
        """It runs again after so many seconds, and what comes after it in its order no sooner."""
        if self._order is not None:
            self._held_back[self._lane(delivery)] = delay
        self.put_off(delivery, delay)

    def put_off(self, delivery: Delivery, delay: float) -> None:
        """It runs after so many seconds."""
        self._put_off.setdefault(delay, []).append(delivery)

    def delay_of(self, delivery: Delivery) -> float | None:
        """Seconds after which the one before it in its order runs again, if there is one."""
        if not self._held_back or (self._order == "key" and delivery.message.key is None):
            return None
        return self._held_back.get(self._lane(delivery))

    def take(self) -> Iterator[tuple[float, list[Delivery]]]:
        """What is due together, with its delay; each is forgotten when the next is asked for."""
        for delay in list(self._put_off):
            yield delay, self._put_off[delay]
            del self._put_off[delay]

    def _lane(self, delivery: Delivery) -> bytes | None:
        return delivery.message.key if self._order == "key" else None
