"""What of a batch is not settled yet: the rest is skipped, its handler does not run for it again."""

from typing import Any, Final

from bridge.errors import LedgerUnavailable
from bridge.records.message import Batch, Delivery
from tasks import metrics, telling
from tasks.book import Book
from tasks.resending import retry_batch
from tasks.running import MessageTask
from tasks.settling import Settling
from tasks.standing import Standing

#: Seconds before a delivery is tried again while the ledger does not say whether it is settled.
LEDGER_DELAY: Final = 5.0


def unsettled(
    task: MessageTask[..., Any], batch: Batch, book: Book, settling: Settling, standing: Standing
) -> list[Delivery]:
    """The deliveries that are to run, in the order of their offsets.

    Raises:
        Retry: the ledger does not say; the message was sent again.
    """
    deliveries = sorted(batch.deliveries, key=lambda delivery: delivery.message.offset)
    behind = sorted({delivery.after for delivery in deliveries if delivery.after is not None})
    if not behind and settling.is_new(deliveries[0], task.request.properties):
        return deliveries
    try:
        if behind:
            standing.over.update(book.over(behind))
        settled = book.settled([delivery.message.offset for delivery in deliveries])
    except LedgerUnavailable as error:
        retry_batch(task, batch, LEDGER_DELAY, str(error), ran=False)
    for delivery in deliveries:
        if delivery.message.offset in settled:
            discarded = delivery.message.offset in book.discarded
            standing.gone(delivery, "discarded" if discarded else "skipped")
            metrics.skipped(task.name, batch.group)
            telling.skipped(delivery, discarded=discarded)
    return [delivery for delivery in deliveries if delivery.message.offset not in settled]
