"""The exceptions that a handler may raise, and the errors of handler declarations and runs."""

from typing import Final

from celery.exceptions import Retry

from bridge.errors import BridgeError


class DeadLetter(Exception):
    """Raise it in a handler: no retry can help, the message goes to the dead letters now.

    Parameters:
        why: for the person who will read the dead letter.
    """


#: The longest delay in seconds: a year. A longer one is another unit, or a date, taken for seconds.
LONGEST_DELAY: Final = 365 * 86_400


def fault_in_delay(delay: object) -> str | None:
    """Return what is wrong with a delay that a handler asks for, or None."""
    if isinstance(delay, int | float) and not isinstance(delay, bool) and 0 <= delay <= LONGEST_DELAY:
        return None
    return f"takes seconds, from 0 to {LONGEST_DELAY:,} (a year); it was given {delay!r}."


class RetryLater(Exception):
    """Raise it in a handler: run again after `delay` seconds, for instance a server's `Retry-After`.

    It spends none of `max_retries`; `give_up_after` bounds it.

    Parameters:
        delay: seconds, from 0 to a year.
        why: for the log.

    Raises:
        ValueError: the delay is negative, longer than a year, or no number.
    """

    def __init__(self, delay: float, why: str = "") -> None:
        if fault := fault_in_delay(delay):
            raise ValueError(f"RetryLater(delay) {fault}")
        self.delay = float(delay)
        self.why = why
        super().__init__(self.delay, why)

    def __str__(self) -> str:
        return f"again in {self.delay:g} s" + (f": {self.why}" if self.why else "")


class RegistryDown(RetryLater):
    """The schema registry is unavailable: the delivery runs again, and the outage is said like failures."""

    def __str__(self) -> str:
        return self.why


class StopConsuming(Exception):
    """Raise it in a handler: going on would do harm; the topic is halted until a person resumes it.

    Parameters:
        why: for the person who is paged.
    """


class TopicHalted(Exception):
    """The topic of a delivery, its handler or its key is halted: it waits, and has spent no attempt.

    Parameters:
        first: whether this delivery asked for the halt: it runs first afterwards.
        gate: the gate of the halted handler or key; empty: the topic is halted.
    """

    def __init__(self, why: str, first: bool = False, gate: str = "") -> None:
        super().__init__(why)
        self.first, self.gate = first, gate


class HandlerError(BridgeError, ValueError):
    """A handler is declared in a way that cannot work."""


class Undecodable(Exception):
    """A value that the codec or the annotated model refuses; no retry can cure it."""


class DeadLettered(Exception):
    """The end of a Celery task whose dead letter Kafka has acknowledged; its words are safe to pickle."""


class Failed(Exception):
    """A handler's failure as text: its own exception may fail to pickle or print."""


class RetryAsked(Retry):
    """A handler called `self.retry()`: the retry that it asked for.

    Parameters:
        delay: seconds.
        limit: how many failures are retried at most, `None` for ever.
        error: the exception that made the handler ask.
    """

    def __init__(self, delay: float, limit: int | None, error: BaseException | None) -> None:
        self.delay, self.limit, self.error = delay, limit, error
        super().__init__(exc=error if isinstance(error, Exception) else None, when=delay)  # type: ignore[arg-type]


class GivenAway(Exception):
    """The current message has been redelivered to another worker, with all deliveries that are not done."""
