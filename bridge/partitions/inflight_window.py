"""The in-flight window of a partition (`kafka_window`): how far it reads beyond its first unsettled offset (pure)."""

from typing import Final

from bridge.partitions.safe_offset import Commit

#: The default of `kafka_window`: offsets from the first that is not settled to the last read.
WINDOW: Final = 100_000
#: The part of a limit below which a paused partition resumes.
RESUME_BELOW: Final = 0.5


def is_window_full(offsets: int, window: int, commit: Commit, *, paused: bool) -> bool:
    """Return whether a partition must stop reading because of the offsets since its first unsettled one.

    Only `commit="completion"` has the window: the commit waits there for the slowest delivery.

    Parameters:
        offsets: how many were read from the first unsettled one on.
        window: the most of them (`kafka_window`).
        paused: whether the partition has paused: it resumes at half.
    """
    return commit == "completion" and offsets > window * (RESUME_BELOW if paused else 1.0)
