"""Where the deliveries of one batch stand in this run of it: what is left, what is over, and how each has ended."""

from collections.abc import Iterable

from bridge.records.message import Batch, Delivery
from tasks.ends import Ends
from tasks.progress import Progress


class Standing:
    """That of one batch.

    Parameters:
        progress: notes for the main process; `None` where there is one delivery alone.
    """

    def __init__(self, batch: Batch, progress: Progress | None) -> None:
        #: What has not ended, as it is now: what comes again if this run cannot be brought to its end.
        self._left = {delivery.message.offset: delivery for delivery in batch.deliveries}
        self._progress = progress
        #: Of those that others come after in their order: what has ended.
        self.over: set[int] = set()
        self.ends = Ends(batch.topic, batch.partition)

    def left(self) -> list[Delivery]:
        """What has not been sent on, parked or found settled, in the order of its offsets."""
        return [delivery for _, delivery in sorted(self._left.items())]

    def now(self, delivery: Delivery) -> Delivery:
        """A delivery as it is now."""
        return self._left[delivery.message.offset]

    def set(self, delivery: Delivery) -> None:
        """So it comes again from now on."""
        self._left[delivery.message.offset] = delivery

    def runs(self, delivery: Delivery) -> None:
        """It is about to run: if the process is lost, that is with this one."""
        if self._progress is not None:
            self._progress.running(delivery.message.offset)

    def succeeded(self, delivery: Delivery) -> None:
        """All that it was to do is done; it is not marked yet."""
        if self._progress is not None:
            self._progress.done(delivery.message.offset)
        self.ends.add("done", delivery.message.offset)

    def ended(self, delivery: Delivery) -> None:
        """Those behind it in its order need not wait for it any more."""
        self.over.add(delivery.message.offset)

    def gone(self, delivery: Delivery, how: str) -> None:
        """Settled elsewhere, or parked: it does not come again with this batch."""
        self._left.pop(delivery.message.offset)
        self.ends.add(how, delivery.message.offset)

    def sent_on(self, deliveries: Iterable[Delivery]) -> None:
        """They go on in a message of their own."""
        for delivery in deliveries:
            self._left.pop(delivery.message.offset, None)
