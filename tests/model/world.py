"""What the model of a delivery's way knows: Kafka, Redis, bridges and workers, as one value (pure)."""

from typing import NamedTuple, TypeVar

from bridge.ledger.fate_rules import Fate

T = TypeVar("T")


class Message(NamedTuple):
    """A Celery message with one delivery.

    Attributes:
        record: the offset of its origin.
        via: the offset on the retry topic by which it came, or -1.
        number: how often the delivery was parked.
        tries: how often it was sent again.
        again: whether it was in a worker's hands before, which died.
    """

    record: int
    via: int = -1
    number: int = 0
    tries: int = 0
    again: bool = False


class Parked(NamedTuple):
    """A record on the retry topic."""

    record: int
    number: int


class Bridge(NamedTuple):
    """One bridge.

    Attributes:
        at, retry_at: where it reads the source and the retry topic.
        hand: what it has read and found open, and not handed off: ("source" or "retry", offset); else None.
        published: a broker that is not the ledger's Redis has it, and the ledger does not know.
        owner: whether the partitions are its own; one that is not may still be about to hand off.
    """

    at: int = 0
    retry_at: int = 0
    hand: tuple[str, int] | None = None
    published: bool = False
    owner: bool = False


class Worker(NamedTuple):
    """One process of a worker.

    Attributes:
        does: what it does next: "look", "run", then what its run has asked for.
        owns: whether the message is still its own; what a frozen worker held was given to others.
    """

    message: Message | None = None
    does: str = ""
    owns: bool = True


class World(NamedTuple):
    """All of it.

    Attributes:
        fates, own: of the records of the source, and of those of the retry topic at their own places.
        queue: the messages in the broker, sorted: their order decides nothing here.
        dead: how many dead letters Kafka has of each record.
        committed, retry_committed: the group's offsets.
        runs: how often the handler's work was done for each record.
        name: of records with one unique name: what the record that has it does ("runs" or "done"), and which it is.
        overtaken: whether a handler began for a record while one before it in its order was not settled.
        wiped: whether Redis has forgotten.
        faults: how many more may happen, by kind.
    """

    fates: tuple[Fate, ...]
    own: tuple[Fate, ...] = ()
    retry: tuple[Parked, ...] = ()
    dead: tuple[int, ...] = ()
    queue: tuple[Message, ...] = ()
    committed: int = 0
    retry_committed: int = 0
    bridges: tuple[Bridge, ...] = ()
    workers: tuple[Worker, ...] = ()
    runs: tuple[int, ...] = ()
    name: tuple[str, int] | None = None
    overtaken: bool = False
    wiped: bool = False
    faults: tuple[tuple[str, int], ...] = ()


class Bounds(NamedTuple):
    """How large the model is, and which of the promised ways it goes.

    Attributes:
        parks, tries: how often one delivery may be parked and sent again before it is done or dead.
        one_step: whether broker and ledger are one Redis.
        completion: whether the commit waits until a record is settled.
        ordered: whether the records have one key, on a topic with `order="key"`.
        unique: whether the records have one name, of a handler with `unique_by`.
        faults: how many of each kind may happen on one way: "bridge dies", "bridge freezes", "worker dies",
            "worker freezes", "Redis is wiped".
        mistake: a step that is made otherwise than by the real ones, to see that it is found.
    """

    records: int = 1
    bridges: int = 1
    workers: int = 1
    parks: int = 1
    tries: int = 0
    one_step: bool = True
    completion: bool = False
    ordered: bool = False
    unique: bool = False
    faults: tuple[tuple[str, int], ...] = ()
    mistake: str = ""


def begin(bounds: Bounds) -> World:
    """Nothing has been read."""
    return World(
        fates=(Fate.OPEN,) * bounds.records,
        dead=(0,) * bounds.records,
        runs=(0,) * bounds.records,
        bridges=(Bridge(owner=True), *(Bridge(),) * (bounds.bridges - 1)),
        workers=(Worker(),) * bounds.workers,
        faults=bounds.faults,
    )


def put(items: tuple[T, ...], number: int, item: T) -> tuple[T, ...]:
    """The same with another at one place."""
    return (*items[:number], item, *items[number + 1 :])


def published(world: World, message: Message) -> World:
    """The broker has one message more."""
    return world._replace(queue=tuple(sorted((*world.queue, message))))
