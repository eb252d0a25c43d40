"""Our handlers: with no option set, one by one, and in batches of 200."""

from typing import Any

from benchmarks import work
from tasks import handler

#: The storm's: one retry a second later, as the peers have it.
STORM: dict[str, Any] = {
    "retry_delays": (1,),
    "dead_letter_for": (work.PermanentError,),
    "autoretry_for": (work.TransientError,),
}


@handler("plain")
def plain(number: int) -> None:
    """No option set."""
    work.mark(number)


@handler("one", batch=1)
def one(number: int) -> None:
    """One by one."""
    work.mark(number)


@handler("batch", batch=200)
def batch(number: int) -> None:
    """Two hundred a task."""
    work.mark(number)


@handler("quiet")
def quiet(number: int) -> None:
    """No option set; when it ran is of interest."""
    work.mark_at(number)


@handler("slow")
def slow(number: int) -> None:
    """No option set, 10 ms."""
    work.nap(number)


@handler("storm", **STORM)
def storm(number: int) -> None:
    """The peers' storm."""
    work.storm(number)


@handler("storm200", batch=200, **STORM)
def storm_in_batches(number: int) -> None:
    """The peers' storm in batches of 200."""
    work.storm(number)
