"""The reasons to pause a partition, in the words that status, metrics and alerts show (pure).

`make reference` writes the tables of docs/reference/metrics.md and docs/runbooks/problems.md from here, and the alert
rules.
"""

from enum import StrEnum
from typing import Final, NamedTuple

#: The advice for a queue that its workers empty too slowly.
ADD_WORKERS: Final = "add workers, or find out why handlers are slow"
#: The problem (bridge/problems/problem_table.py) of partitions that are paused for long.
PARTITIONS_PAUSED: Final = "partitions_paused"


class _Explained(NamedTuple):
    """The words of a reason, and its attributes."""

    words: str
    means: str
    ends: str
    advice: str
    names: str = ""
    told_by: str = PARTITIONS_PAUSED
    alerts: bool = True


class PauseReason(StrEnum):
    """A reason to pause a partition; its words are a contract.

    Attributes:
        means: what the reason says of the topic or the queue.
        ends: when the pause ends.
        advice: what to do if the pause lasts; the identifier of a problem in brackets says more.
        names: "name" (of a queue) or "topic" if the reason's words end with one that causes the pause.
        told_by: the identifier of the problem that tells of a long pause; empty: none, it is expected.
        alerts: whether the alert of long pauses fires.
    """

    means: str
    ends: str
    advice: str
    names: str
    told_by: str
    alerts: bool

    def __new__(cls, *explained: object) -> "PauseReason":
        entry = _Explained(*explained)  # type: ignore[arg-type]
        made = str.__new__(cls, entry.words)
        made._value_ = entry.words
        made.means, made.ends, made.advice = entry.means, entry.ends, entry.advice
        made.names, made.told_by, made.alerts = entry.names, entry.told_by, entry.alerts
        return made

    HALTED = _Explained(
        "halted",
        means="the topic is halted, or all its handlers are",
        ends="with `bridge resume`",
        advice="fix the cause, then resume what is halted (topic_halted) (handler_halted)",
        told_by="topic_halted",
        alerts=False,
    )
    HANDOFF_BLOCKED = _Explained(
        "handoff",
        means="nothing can be handed off: the broker or the ledger does not answer",
        ends="when it answers",
        advice="restore the broker or the ledger (bridge_blocked)",
        told_by="bridge_blocked",
    )
    QUEUE_LONG = _Explained(
        "queue",
        means="over `kafka_pause_above` messages in the queue, most of them ready",
        ends="below `kafka_resume_below`",
        advice=ADD_WORKERS,
        names="name",
    )
    RETRIES_LONG = _Explained(
        "retries of queue",
        means="the same, and most of them wait for their retry. Retry topics pause for this alone",
        ends="below `kafka_resume_below`",
        advice=ADD_WORKERS,
        names="name",
    )
    QUEUE_BYTES = _Explained(
        "bytes of queue",
        means="over `kafka_pause_above_bytes`",
        ends="at half of it",
        advice="add workers, or give Redis memory and raise kafka_pause_above_bytes",
        names="name",
    )
    QUEUE_WORK = _Explained(
        "work in queue",
        means="over `kafka_pause_above_seconds`",
        ends="at half of it",
        advice=ADD_WORKERS,
        names="name",
    )
    DEAD_LETTERS = _Explained(
        "dead letters of",
        means="over `kafka_pause_dead_letters_a_minute`",
        ends="at half of it",
        advice="fix the cause; `bridge halt TOPIC` stops it until then (topic_dying)",
        names="topic",
        told_by="topic_dying",
    )
    PARKED_RECORDS = _Explained(
        "parked records of",
        means="over `kafka_pause_above_parked`",
        ends="at half of it",
        advice="fix the cause of the retries (handler_failing), or raise kafka_pause_above_parked",
        names="topic",
    )
    WINDOW_FULL = _Explained(
        "one that is not settled holds back the commit (kafka_window)",
        means='with `commit="completion"`: the window is full',
        ends="at half of it",
        advice="find the oldest delivery (delivery_old)",
    )
    KEYS_BUSY = _Explained(
        "messages wait for others of their key",
        means="10,000 messages of an ordered topic wait",
        ends="at half of it",
        advice="make that key's deliveries faster (key_hot)",
    )
    QUEUE_SATISFIED = _Explained(
        "the queue has enough",
        means="10,000 records wait for the queue ([batches](../concepts/order-and-batches.md#batches))",
        ends="at half of it",
        advice=ADD_WORKERS,
    )
    MEMORY_FULL = _Explained(
        "messages that wait take much memory",
        means="100 MB of them, or a bridge's partitions together hold over `kafka_pause_above_held_bytes`",
        ends="at half of it",
        advice=ADD_WORKERS,
    )
    DEPENDENCIES_DOWN = _Explained(
        "what its handlers need is down",
        means="a circuit breaker is open",
        ends="when it closes",
        advice="restore the dependency (dependency_down)",
        told_by="dependency_down",
        alerts=False,
    )
    SOME_DEPENDENCIES_DOWN = _Explained(
        "what some of its handlers need is down, and as much waits for it as may",
        means="the same, of some handlers",
        ends="when it closes",
        advice="restore the dependency (dependency_down)",
        # Its breaker wakes somebody.
        alerts=False,
    )
    SOME_HALTED = _Explained(
        "some of its handlers are halted, and as much waits for them as may",
        means="some handlers, or keys of them, are halted; their deliveries fill the partition, or a share of "
        "`kafka_pause_above_bytes`",
        ends="with `bridge resume`",
        advice="fix the cause, then `bridge resume TOPIC --handler HANDLER` (handler_halted)",
        told_by="handler_halted",
        alerts=False,
    )
    LIMIT_FULL = _Explained(
        "as much waits for the limit of its handlers as may",
        means="the backlog of a [limit](../how-to/limit-handlers.md) is long",
        ends="at three quarters of it",
        advice="nothing, or allow more: bridge policy set limit:NAME",
        told_by="",
        alerts=False,
    )
    NOT_DUE = _Explained(
        "nothing more is due yet",
        means="of a retry or replay topic; nothing is wrong",
        ends="when the next record is due",
        advice="nothing: the records run when they are due",
        told_by="",
        alerts=False,
    )
    SHARE_USED = _Explained(
        "what is due waits for its share",
        means="of a retry or replay topic: `kafka_retry_share` is used up",
        ends="within seconds",
        advice="if it stays, add workers, or raise kafka_retry_share",
    )
    START_UNKNOWN = _Explained(
        "where to begin is not known yet",
        means="the bridge finds out from where the partition is to be read",
        ends="within seconds, or when Kafka and the ledger answer",
        advice="see the bridge's log: Kafka or the ledger does not answer, or the partition has no leader "
        "(replicas_out_of_sync)",
    )


def name_pause_reason(reason: PauseReason, name: str) -> str:
    """Return the words of a reason that a queue or topic causes."""
    return f"{reason} {name}"


def parse_pause_reason(text: str) -> tuple[PauseReason | None, str]:
    """Return the reason that a text shows and the queue or topic that it names; `None` and the text if unknown."""
    for reason in PauseReason:
        if reason.names:
            if text.startswith(f"{reason} "):
                return reason, text.removeprefix(f"{reason} ")
        elif text == reason:
            return reason, ""
    return None, text
