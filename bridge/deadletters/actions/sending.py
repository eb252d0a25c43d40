"""A plan replays: letters go to the replay topic, for the handler that failed; those of others back to their source."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from bridge.deadletters.actions.action import Acted, Claimed, End, Live, Taken
from bridge.deadletters.actions.ahead import Ahead
from bridge.deadletters.actions.ends import Ends
from bridge.deadletters.actions.holders import holders, too_late
from bridge.deadletters.actions.payloads import Away, payloads
from bridge.deadletters.actions.traces import LOST, traces
from bridge.deadletters.fates import Fates
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import ItemState, Plan
from bridge.deadletters.store import contents, items, statuses
from bridge.deadletters.store.contents import Content, Standing
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.items import Item
from bridge.deadletters.store.spots import Sent, Spot
from bridge.errors import NeverPublished
from bridge.kafka import Record, headers_of
from bridge.ledger import Fate
from bridge.records.added import RecordHeaders
from bridge.records.foreign import SHARE_GROUP
from bridge.records.naming import work_of
from bridge.records.origin import Origin
from bridge.records.parked import whose
from bridge.records.replayed import replayed
from bridge.settings import Settings
from bridge.topics.names import TopicNames
from bridge.topics.producer import AcknowledgedProducer, Letter, Lies

#: Bytes of values that are held at once.
AT_ONCE: Final = 16_000_000
#: On a record that goes back to a topic of others: the place of the letter that it was, by which it is found again.
FROM: Final = "dead_letter"
#: Identity, group and number of a delivery; of others' letters, the place of the letter.
Mark = tuple[str, str, int]


_GONE: Final = "the letter is gone"


class _Job(NamedTuple):
    """A delivery that is sent.

    Attributes:
        letter: whose record is sent.
        delivery: whose it is: the letter's, or another handler's of the same message.
        number: that it has from now on.
    """

    item: Item
    letter: Standing
    delivery: Origin
    number: int

    @property
    def is_own(self) -> bool:
        """Whether it is the letter's own delivery."""
        return self.item.place is None

    @property
    def again(self) -> str:
        """By what it runs though it was done; empty: it runs only if it is not."""
        return self.letter.again if self.is_own else ""

    @property
    def mark(self) -> Mark:
        """By what its record is told from all others."""
        if not self.letter.is_ours:
            return (_place(self.letter.spot), "", 0)
        return (work_of(self.delivery.identity, self.again), self.delivery.group, self.number)


class Sending:
    """What a replay does.

    Parameters:
        last_wave: of the plan (store.items.last_wave).
        handlers: that the app or a worker knows.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        plan: Plan,
        last_wave: int,
        ends: Ends,
        fates: Fates,
        handlers: Iterable[str],
    ) -> None:
        self._settings, self._database, self._plan, self._ends, self._fates = settings, database, plan, ends, fates
        self._last_wave = last_wave
        self._handlers = frozenset(handlers)
        self._target = cache(partial(target_of, settings))
        self._producer = AcknowledgedProducer(settings)
        #: The letters of the batch, as they were when it was claimed: nobody else changes what is on its way.
        self._taken: dict[int, Standing] = {}

    def take(self, connection: Connection, waiting: Sequence[Item], at: int) -> Taken:
        """Letters that are open, and have not died since the plan was made, are this plan's; the others are skipped."""
        found = contents.standings(connection, [item.letter_id for item in waiting if item.letter_id], lock=True)
        by = holders(connection, found.values())
        ahead = self._ahead(connection, waiting, found)
        skipped: dict[int, str] = {}
        claimed: list[Claimed] = []
        for item in waiting:
            standing = found.get(item.letter_id or 0)
            why, spot = self._why_not(item, standing, by), None
            if standing is not None and not why:
                delivery = _delivery(item, standing)
                why = _why_other(ahead, delivery) if item.place else ahead.of_own(delivery, standing.number)
            if standing is not None and not why:
                spot = self._ends.spot(self.topic(standing), standing.delivery.partition)
                why = "" if spot else f"there is no topic {self.topic(standing)}"
            if why:
                skipped[item.position] = why
            else:
                claimed.append(Claimed(item, spot))
        self._taken = found
        own = [each.item.letter_id for each in claimed if each.item.letter_id and each.item.place is None]
        statuses.move(connection, own, Status.OPEN, Status.REPLAYING, at, self._plan.id)
        return Taken(claimed, skipped)

    def _ahead(self, connection: Connection, waiting: Sequence[Item], found: Mapping[int, Standing]) -> Ahead:
        ours = [(item, its) for item in waiting if (its := found.get(item.letter_id or 0)) is not None and its.is_ours]
        own, others = ([_delivery(*each) for each in ours if bool(each[0].place) is other] for other in (False, True))
        return Ahead.of(connection, self._plan.id, own, others)

    def _why_not(self, item: Item, letter: Standing | None, by: Mapping[int, str]) -> str:
        if letter is None:
            return _GONE
        if letter.is_ours and _handler(item, letter) not in self._handlers:
            return f"nobody knows a handler {_handler(item, letter)}"
        if not letter.is_ours and letter.delivery.topic == letter.spot.topic:
            return "it does not say of which record it is: --to-topic copies it to a topic that you name"
        if item.place is not None:
            return ""
        if letter.status is not Status.OPEN:
            return too_late(letter, by)
        return "" if letter.failures == item.failures else "it has died again since the plan was made"

    def topic(self, letter: Standing) -> str:
        """Where a letter goes."""
        return self._target(letter.delivery.group, letter.delivery.topic, ours=letter.is_ours)

    def once(self, item: Item) -> bool:
        """Whether it has one attempt: another wave waits for how its own ends (bridge.deadletters.plan.canary)."""
        return item.wave < self._last_wave

    def look(self, claimed: Sequence[Claimed]) -> Acted:
        """Find those of which the record is there."""
        jobs = {job.mark: job for job in self._jobs(claimed)}
        read, lost = traces(self._settings, claimed)
        found: dict[int, Sent] = {}
        for record in read:
            if (job := jobs.get(_mark(record))) is not None:
                spot = Spot(record.topic() or "", record.partition() or 0, record.offset() or 0)
                found.setdefault(job.item.position, self._sent(job, spot))
        left = [job for job in jobs.values() if job.item.position in lost - found.keys()]
        # What is known to be done may be sent: it does not run.
        told = self._fates.of([job.delivery for job in left]) if left else []
        open_ = [job for job, fate in zip(left, told, strict=True) if job.again or fate is not Fate.DONE]
        return Acted([*found.values()], {job.item.position: End(ItemState.UNKNOWN, LOST) for job in open_})

    def act(self, claimed: Sequence[Claimed], live: Live) -> Acted:
        """Publish all, and wait for all acknowledgements; what Kafka may have or not is in no answer."""
        jobs = self._jobs(claimed)
        # One may be cleaned up in the moment in which another handler's delivery of it is claimed.
        gone = {each.item.position for each in claimed} - {job.item.position for job in jobs}
        ends = {position: End(ItemState.SKIPPED, _GONE) for position in gone}
        ends |= {job.item.position: End(ItemState.SKIPPED, why) for job, why in self._left_alone(jobs)}
        sent: list[Sent] = []
        why = ""
        for some in _slices([job for job in jobs if job.item.position not in ends]):
            letters, away = self._letters(some, live)
            ends |= {position: End(ItemState.REFUSED, why) for position, why in away.items()}
            live()
            answers = self._producer.place_all([*letters.values()])
            for job, answer in zip((job for job in some if job.item.position in letters), answers, strict=True):
                if isinstance(answer, Lies):
                    sent.append(self._sent(job, Spot(*answer)))
                elif isinstance(answer, NeverPublished):
                    ends[job.item.position] = End(ItemState.REFUSED, str(answer))
                else:
                    why = why or str(answer)
        return Acted(sent, ends, why)

    def settle(self, connection: Connection, claimed: Sequence[Claimed], acted: Acted, at: int) -> None:
        """What was not sent is open again; others' letters are resolved as they are back in their source.

        One that may have been sent stays `replaying`: a person opens it (UnknownEnds).
        """
        ids = {each.item.position: each.item.letter_id for each in claimed if each.item.place is None}
        ends = ((ids.get(position), end) for position, end in acted.ends.items())
        back = [id_ for id_, end in ends if id_ and end.state is not ItemState.UNKNOWN]
        statuses.move(connection, back, Status.REPLAYING, Status.OPEN, at)
        sent = [id_ for each in acted.sent if (id_ := ids.get(each.position))]
        theirs = [id_ for id_ in sent if not self._taken[id_].is_ours]
        if theirs:
            statuses.move(connection, theirs, Status.REPLAYING, Status.RESOLVED, at)
            items.ended(connection, theirs, ItemState.DONE, at, "it is back in its topic; who reads it there decides")

    def _jobs(self, claimed: Sequence[Claimed]) -> list[_Job]:
        ids = [each.item.letter_id for each in claimed if each.item.letter_id]
        if not self._taken.keys() >= set(ids):
            with self._database.reading() as connection:
                self._taken = contents.standings(connection, ids)
        found = self._taken
        pairs = ((each.item, found.get(each.item.letter_id or 0)) for each in claimed)
        return [self._job(item, letter) for item, letter in pairs if letter is not None]

    def _job(self, item: Item, letter: Standing) -> _Job:
        # Another handler's has one that stays as it is when the letter dies again.
        number = letter.number + 1 if item.place is None else self._plan.number
        return _Job(item, letter, _delivery(item, letter), number)

    def _left_alone(self, jobs: Sequence[_Job]) -> list[tuple[_Job, str]]:
        """Of other handlers' deliveries, those that are not sent, and why: ended, under way, or perhaps done."""
        others = [job for job in jobs if not job.is_own]
        fates = self._fates.of([job.delivery for job in others]) if others else []
        return [(job, _why_left(fate)) for job, fate in zip(others, fates, strict=True) if fate is not Fate.DEAD]

    def _letters(self, jobs: Sequence[_Job], live: Live) -> tuple[dict[int, Letter], dict[int, str]]:
        """By position, what is published for them; and why nothing is, where the value is gone."""
        with self._database.reading() as connection:
            ids = [job.letter.id for job in jobs]
            found = {each.id: each for each in contents.contents(connection, self._plan.id, ids)}
        gone = {job.item.position: _GONE for job in jobs if job.letter.id not in found}
        jobs = [job for job in jobs if job.item.position not in gone]
        away = {job.letter.id: Away(job.letter, found[job.letter.id]) for job in jobs if found[job.letter.id].away}
        values = payloads(self._settings, away.values(), live)
        made: dict[int, Letter] = {}
        for job in jobs:
            content = found[job.letter.id]
            if content.away and content.id not in values:
                gone[job.item.position] = f"its value is no longer in Kafka, at {_place(job.letter.spot)}"
                continue
            value = values[content.id] if content.away else content.value
            if job.letter.program == SHARE_GROUP and content.key is None and value is None:
                gone[job.item.position] = f"it has neither key nor value: its record is {_source(job.delivery)}"
                continue
            made[job.item.position] = self._letter(job, content, value)
        return made, gone

    def _letter(self, job: _Job, content: Content, value: bytes | None) -> Letter:
        topic = self.topic(job.letter)
        spot = self._ends.spot(topic, job.delivery.partition)
        partition = -1 if spot is None else spot.partition
        headers = _headers(job, content, self.once(job.item))
        return Letter(topic, partition, content.key, value, headers, str(job.delivery.identity), "what is sent back")

    def _sent(self, job: _Job, spot: Spot) -> Sent:
        self._ends.passed(spot)
        return Sent(job.item.position, job.number, spot)


def target_of(settings: Settings, group: str, source: str, *, ours: bool) -> str:
    """The topic to which letters of a source topic go back."""
    return TopicNames.of(settings.of_group(group)).replay(source) if ours else source


def _headers(job: _Job, content: Content, once: bool) -> RecordHeaders:
    if not job.letter.is_ours:
        return [*content.headers, (FROM, _place(job.letter.spot).encode())]
    ran = {"runs": content.runs, "attempts": content.attempts} if job.is_own else {}
    common = {"timestamp": content.timestamp, "number": job.number - 1, "once": once, "again": job.again}
    return replayed(job.delivery, content.headers, **common, **ran)  # type: ignore[arg-type]


def _why_other(ahead: Ahead, delivery: Origin) -> str:
    letter = ahead.letter(delivery)
    return ahead.of_other(delivery) or ((letter and f"it has a letter by now, {letter.id}: replay that") or "")


def _why_left(fate: Fate) -> str:
    if fate is Fate.OPEN:
        # It was not read yet, or the ledger has forgotten it.
        return "whether it is done is not known: bridge redrive tells, and sends it"
    return f"it is {fate.name.lower()}"


def _delivery(item: Item, letter: Standing) -> Origin:
    return letter.delivery._replace(handler=_handler(item, letter))


def _handler(item: Item, letter: Standing) -> str:
    return letter.delivery.handler if item.place is None else item.place.partition(":")[2]


def _mark(record: Record) -> Mark:
    """What a record's mark is, where it is one that was sent back."""
    if (found := whose(record)) is not None:
        return found
    try:
        place = next((value for name, value in reversed(headers_of(record)) if name == FROM), None)
        return ((place or b"").decode("ascii"), "", 0)
    except Exception:
        # Another client's, which Python's cannot read.
        return ("", "", 0)


def _place(spot: Spot) -> str:
    return f"{spot.topic}-{spot.partition}-{spot.offset}"


def _source(delivery: Origin) -> str:
    return f"{delivery.topic}-{delivery.partition}-{delivery.offset}"


def _slices(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    """In parts, of each of which the values may be held at once."""
    some: list[_Job] = []
    size = 0
    for job in jobs:
        some.append(job)
        size += max(0, job.letter.value_size)
        if size >= AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some
