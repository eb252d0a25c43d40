"""What the model of a delivery's way knows: Kafka, Redis, bridges and workers, as one value (pure)."""

from typing import Final, NamedTuple, TypeVar

from bridge.ledger.fate_rules import Fate

T = TypeVar("T")
#: Fates that end a record for those behind it in its order.
ENDED: Final = frozenset({Fate.DONE, Fate.DEAD, Fate.DISCARDED})


class Message(NamedTuple):
    """A Celery message with one delivery.

    Attributes:
        record: the offset of its origin.
        via: the offset on the retry topic by which it came, or -1.
        number: how often the delivery was parked.
        tries: how often it was sent again.
        again: whether it was in a worker's hands before, which died.
        replayed: how often a person had sent it back.
        after: the record behind which it waits, which was handed off with it, or -1.
    """

    record: int
    via: int = -1
    number: int = 0
    tries: int = 0
    again: bool = False
    replayed: int = 0
    after: int = -1


class Parked(NamedTuple):
    """A record on the retry topic, or on the replay topic: the model has both in one log.

    Attributes:
        replayed: how often a person had sent it back; 0: it was parked, and nobody did.
    """

    record: int
    number: int
    replayed: int = 0


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


class File(NamedTuple):
    """What Redis had written by a moment, and how far the group had committed then, by what it knows."""

    fates: tuple[Fate, ...]
    own: tuple[Fate, ...]
    queue: tuple[Message, ...]
    committed: int
    retry_committed: int


class World(NamedTuple):
    """All of it.

    Attributes:
        fates, own: of the records of the source, and of those of the retry topic at their own places.
        queue: the messages in the broker, sorted: their order decides nothing here.
        dead: how many dead letters Kafka has of each record, and behind them of each that was sent back once, twice …
        committed, retry_committed: the group's offsets.
        runs: how often the handler's work was done for each record.
        name: of records with one unique name: what the record that has it does ("runs" or "done"), and which it is.
        overtaken: whether a handler began for a record while one before it in its order was not settled.
        passed: whether one began for a record while one before it in its order was neither done nor discarded, whatever
            the ledger says of that.
        discarded: whether a person has discarded each record.
        file: what Redis would start with again after it was killed.
        back_at: where bridges began to read again after that; no fate below it is known then.
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
    passed: bool = False
    discarded: tuple[bool, ...] = ()
    file: "File | None" = None
    back_at: int | None = None
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
        holds: whether a dead one of them holds those behind it (`after_dead="hold"`).
        replays: how often each dead one may be sent back, edited or not.
        together: whether two that follow each other are handed off in one message.
        faults: how many of each kind may happen on one way: "bridge dies", "bridge freezes", "worker dies",
            "worker freezes", "Redis is wiped", "Redis goes back".
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
    holds: bool = False
    replays: int = 0
    together: bool = False
    faults: tuple[tuple[str, int], ...] = ()
    mistake: str = ""

    @property
    def ends(self) -> frozenset[Fate]:
        """The fates of a record after which the next in its order may run."""
        return ENDED - {Fate.DEAD} if self.holds else ENDED


def begin(bounds: Bounds) -> World:
    """Nothing has been read."""
    return World(
        fates=(Fate.OPEN,) * bounds.records,
        dead=(0,) * bounds.records * (1 + bounds.replays),
        runs=(0,) * bounds.records,
        discarded=(False,) * bounds.records,
        bridges=(Bridge(owner=True), *(Bridge(),) * (bounds.bridges - 1)),
        workers=(Worker(),) * bounds.workers,
        faults=bounds.faults,
    )


def put(items: tuple[T, ...], number: int, item: T) -> tuple[T, ...]:
    """The same with another at one place."""
    return (*items[:number], item, *items[number + 1 :])


def sort_workers(workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
    """The same workers in one order."""
    return tuple(sorted(workers, key=_place_of))


def _place_of(worker: Worker) -> tuple[Message | tuple[()], str, bool]:
    return worker.message or (), worker.does, worker.owns


def published(world: World, message: Message) -> World:
    """The broker has one message more."""
    return world._replace(queue=tuple(sorted((*world.queue, message))))


def letters_of(world: World, at: int) -> tuple[int, ...]:
    """How many dead letters Kafka has of a record: of its first way, and of each time that it was sent back."""
    return world.dead[at :: len(world.fates)]


def replays_of(world: World, at: int) -> int:
    """How often a person has sent a record back."""
    return max((each.replayed for each in world.retry if each.record == at), default=0)
