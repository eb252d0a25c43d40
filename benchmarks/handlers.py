"""Our handlers: the same work, one by one and in batches."""

from benchmarks.work import PermanentError, TransientError, fail_as_asked, mark
from tasks import handler


@handler("one", codec=int)
def one(number: int) -> None:
    """One by one."""
    mark(number)


@handler("batch", codec=int, batch=200)
def batch(number: int) -> None:
    """Two hundred a task."""
    mark(number)


@handler(
    "storm", codec=int, batch=200, retry_delays=(1,), dead_letter_for=(PermanentError,), autoretry_for=(TransientError,)
)
def storm(number: int) -> None:
    """The peers' storm."""
    fail_as_asked(number)
    mark(number)
