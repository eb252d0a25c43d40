"""The log lines of deliveries in a worker: strings alone, so that no record's value gets into the log.

A handler's error is logged with its traceback once, when its delivery is dead.
"""

from pathlib import Path
from types import TracebackType
from typing import Final

from bridge.formats.delivery import Dead, Delivery
from bridge.formats.failure import Failure
from bridge.formats.text_forms import format_time
from tasks.logs import LogLineLimiter, harmless, harmless_logger

logger = harmless_logger("tasks.execution.batch_run")

_sums = LogLineLimiter()
_OURS: Final = str(Path(__file__).parents[1])


def flush_summaries() -> None:
    """Log the summaries that are pending: this process ends."""
    _sums.flush()


@harmless
def log_dead(delivery: Delivery, letter: Dead, error: BaseException | None = None) -> None:
    """Log that Kafka has a delivery's dead letter, with fields for collectors of errors (docs/how-to/sentry.md)."""
    failure, handler, reason = letter.failure, delivery.handler, letter.reason

    def more(count: int) -> None:
        logger.error("%d more deliveries of %s are dead (%s): %s", count, handler, reason, failure.error_class)

    if _sums.admits(("dead", handler, reason, failure.error_class), more):
        logger.error(
            "%s is dead (%s) after %d run(s), %s: %s",
            delivery.identity,
            reason,
            delivery.runs,
            str(delivery.attempts),
            str(failure),
            exc_info=_exc_info(error),
            extra={
                "delivery": delivery.identity,
                "handler": handler,
                "reason": reason,
                "error_class": failure.error_class,
                "handlers_version": letter.version,
            },
        )


@harmless
def log_failed_discarded(delivery: Delivery, letter: Dead) -> None:
    """Log that a delivery failed for good, and was discarded while it ran."""
    handler = delivery.handler

    def more(count: int) -> None:
        logger.warning("%d more deliveries of %s failed and were discarded while they ran.", count, handler)

    if _sums.admits(("failed, discarded", handler), more):
        logger.warning(
            "%s failed (%s), and was discarded while it ran: it gets no dead letter. %s",
            delivery.identity,
            letter.reason,
            str(letter.failure),
        )


@harmless
def log_retry(delivery: Delivery, delay: float, failure: Failure) -> None:
    """Log that a handler has failed, and runs again."""
    handler = delivery.handler

    def more(count: int) -> None:
        logger.warning("%d more deliveries of %s failed and run again: %s", count, handler, failure.error_class)

    if _sums.admits(("again", handler, failure.error_class), more):
        logger.warning(
            "%s failed (run %d: %s), again in %.3g s: %s",
            delivery.identity,
            delivery.runs,
            str(delivery.attempts),
            delay,
            str(failure),
        )


@harmless
def log_bulk_split(handler: str, first: str, number: int, error: BaseException) -> None:
    """Log that a call of a bulk handler has failed, and its messages run again in two calls.

    Parameters:
        first: the identity of the first of them.
        number: how many they are.
    """
    failure = Failure.from_error(error, traceback=False)

    def more(count: int) -> None:
        logger.warning("%d more calls of %s failed and were split: %s", count, handler, failure.error_class)

    if _sums.admits(("split", handler, failure.error_class), more):
        logger.warning(
            "%s and %d more failed together, and run again in two calls: %s", first, number - 1, str(failure)
        )


@harmless
def log_refused_answer(delivery: Delivery, fault: str) -> None:
    """Log that an answer or error of a handler's `retry_when` was not taken, and its options decide."""
    handler = delivery.handler

    def more(count: int) -> None:
        logger.error("%d more answers of the retry_when of %s were not taken: %s", count, handler, fault)

    if _sums.admits(("not taken", handler), more):
        logger.error(
            "%s: retry_when gave no valid answer, so the handler's other options decide: %s. Fix the function.",
            delivery.identity,
            fault,
        )


@harmless
def log_parked(delivery: Delivery, topic: str, due: int, failure: Failure | None) -> None:
    """Log that a delivery is parked in a retry topic until `due` (ms since the epoch)."""
    handler = delivery.handler

    def more(count: int) -> None:
        logger.warning("%d more deliveries of %s were parked in %s.", count, handler, topic)

    if _sums.admits(("parked", handler, topic), more):
        logger.warning(
            "%s: run %d, parked in %s until %s (attempts: %s): %s",
            delivery.identity,
            delivery.runs,
            topic,
            format_time(due / 1000),
            str(delivery.attempts),
            str(failure) if failure is not None else delivery.error,
        )


@harmless
def log_unparked(delivery: Delivery, delay: float, why: Exception) -> None:
    """Log that Kafka did not take a delivery to be parked."""
    handler = delivery.handler

    def more(count: int) -> None:
        logger.error("%d more deliveries of %s could not be parked, and wait in Celery.", count, handler)

    if _sums.admits(("unparked", handler), more):
        logger.error(
            "%s could not be parked in a retry topic; it waits in Celery for %.3g s: %s",
            delivery.identity,
            delay,
            str(why),
        )


@harmless
def log_unsent(delivery: Delivery, delay: float, why: Exception) -> None:
    """Log that Kafka did not take the messages that a handler sends."""
    handler = delivery.handler

    def more(count: int) -> None:
        logger.error("%d more deliveries of %s wait until Kafka takes their messages.", count, handler)

    if _sums.admits(("unsent", handler), more):
        logger.error(
            "%s: its handler has succeeded, but Kafka did not take its messages; they are sent again in %d s: %s",
            delivery.identity,
            delay,
            str(why),
        )


@harmless
def log_halt(delivery: Delivery, why: str, unpublished: str) -> None:
    """Log that a topic is halted at a handler's request."""
    topic = delivery.message.topic
    logger.critical(
        "topic %r is halted by %s: %s. Nothing of it is read or run until `bridge resume %s`; its delivery runs first.",
        topic,
        delivery.identity,
        why.rstrip("."),
        topic,
    )
    if unpublished:
        logger.error("the halt of topic %r is in Redis alone until a bridge has told Kafka: %s", topic, unpublished)


@harmless
def log_unpublished(
    delivery: Delivery, letter: Dead, delay: float, why: Exception, error: BaseException | None = None
) -> None:
    """Log that Kafka did not take a dead letter."""
    handler = delivery.handler

    def more(count: int) -> None:
        logger.error("%d more dead letters of %s were not taken by Kafka, and are tried again.", count, handler)

    if _sums.admits(("unpublished", handler), more):
        logger.error(
            "%s is dead (%s), but Kafka did not take its dead letter; again in %d s: %s",
            delivery.identity,
            letter.reason,
            delay,
            str(why),
            exc_info=_exc_info(error),
        )


@harmless
def log_skipped(delivery: Delivery, *, discarded: bool = False) -> None:
    """Log that a delivery is skipped: it is settled already, or was discarded."""
    handler = delivery.handler

    def more(count: int) -> None:
        if discarded:
            logger.info("%d more deliveries of %s were discarded: the handler did not run for them.", count, handler)
        else:
            logger.info("%d more deliveries of %s were settled already: not run again.", count, handler)

    if _sums.admits(("discarded" if discarded else "skipped", handler), more):
        what = "was discarded: its handler did not run" if discarded else "is settled already: not run again"
        logger.info("%s %s.", delivery.identity, what)


@harmless
def log_duplicate(delivery: Delivery, record: str) -> None:
    """Log that a delivery is settled without a run, because another record with its unique name is done."""
    handler = delivery.handler

    def more(count: int) -> None:
        logger.info("%d more deliveries of %s were duplicates: done without a run.", count, handler)

    if _sums.admits(("duplicate", handler), more):
        logger.info("%s is a duplicate of %s (unique_by): done without a run.", delivery.identity, record)


def _exc_info(error: BaseException | None) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """Return the error with its traceback from the handler's own frame on; frames above hold the message."""
    if error is None:
        return None
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OURS):
        frame = frame.tb_next
    return type(error), error, frame
