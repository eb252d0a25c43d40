"""The reasons to pause a partition, in the words that status, metrics and alerts show (pure)."""

from enum import StrEnum
from typing import Final


class PauseReason(StrEnum):
    """A reason to pause a partition; its words are a contract (docs/reference/metrics.md)."""

    HALTED = "halted"
    HANDOFF_BLOCKED = "handoff"
    START_UNKNOWN = "where to begin is not known yet"
    DEPENDENCIES_DOWN = "what its handlers need is down"
    SOME_DEPENDENCIES_DOWN = "what some of its handlers need is down, and as much waits for it as may"
    WINDOW_FULL = "one that is not settled holds back the commit (kafka_window)"
    KEYS_BUSY = "messages wait for others of their key"
    QUEUE_SATISFIED = "the queue has enough"
    MEMORY_FULL = "messages that wait take much memory"
    NOT_DUE = "nothing more is due yet"
    SHARE_USED = "what is due waits for its share"
    # These end with the name of a queue or topic (NAMED_REASONS).
    QUEUE_LONG = "queue"
    RETRIES_LONG = "retries of queue"
    QUEUE_BYTES = "bytes of queue"
    QUEUE_WORK = "work in queue"
    DEAD_LETTERS = "dead letters of"
    PARKED_RECORDS = "parked records of"


#: Reasons whose words end with the queue or topic that causes the pause.
NAMED_REASONS: Final = frozenset(
    {
        PauseReason.QUEUE_LONG,
        PauseReason.RETRIES_LONG,
        PauseReason.QUEUE_BYTES,
        PauseReason.QUEUE_WORK,
        PauseReason.DEAD_LETTERS,
        PauseReason.PARKED_RECORDS,
    }
)


def name_pause_reason(reason: PauseReason, name: str) -> str:
    """Return the words of a reason that a queue or topic causes."""
    return f"{reason} {name}"


def parse_pause_reason(text: str) -> tuple[PauseReason | None, str]:
    """Return the reason that a text shows and the queue or topic that it names; `None` and the text if unknown."""
    for reason in PauseReason:
        if reason in NAMED_REASONS:
            if text.startswith(f"{reason} "):
                return reason, text.removeprefix(f"{reason} ")
        elif text == reason:
            return reason, ""
    return None, text
