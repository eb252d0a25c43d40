"""A plan copies: letters' records go to another topic, marked as copies; nobody's fate changes here.

Nobody looks what of a batch is there already: a crash may copy some a second time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from bridge.deadletters.actions.action import Acted, Claimed, End, Live, Taken
from bridge.deadletters.actions.payloads import Away, payloads
from bridge.deadletters.copying.target import Target
from bridge.deadletters.plan.plan import ItemState, Plan
from bridge.deadletters.store import clock, contents
from bridge.deadletters.store.contents import Content, Standing
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.items import Item
from bridge.errors import CopyRefused, NeverPublished
from bridge.kafka import admin_client
from bridge.records.added import RecordHeaders
from bridge.records.message import Header
from bridge.settings import Settings
from bridge.topics.cluster import Cluster, all_topics
from bridge.topics.names import TopicNames, is_internal, role_for_any_group
from bridge.topics.producer import AcknowledgedProducer, Letter, Lies

#: Bytes of values that are held at once.
AT_ONCE: Final = 16_000_000


class Copying:
    """What a copy does."""

    def __init__(self, settings: Settings, database: Database, plan: Plan) -> None:
        self._settings, self._database, self._plan = settings, database, plan
        self._topic = plan.options.target["topic"]
        # Whoever made the plan, and with whatever version.
        check_topic(settings, self._topic)
        self._producer = AcknowledgedProducer(settings_of(settings, target_of(plan)))

    def take(self, connection: Connection, waiting: Sequence[Item], at: int) -> Taken:
        """All that are still there; what becomes of them here is another's."""
        found = contents.standings(connection, [item.letter_id or 0 for item in waiting])
        claimed = [Claimed(item, None) for item in waiting if item.letter_id in found]
        gone = {item.position: "the letter is gone" for item in waiting if item.letter_id not in found}
        return Taken(claimed, gone)

    def look(self, claimed: Sequence[Claimed]) -> Acted:
        """Nothing is looked for in a topic of others."""
        return Acted()

    def act(self, claimed: Sequence[Claimed], live: Live) -> Acted:
        """Publish all, and wait for all acknowledgements."""
        ids = [each.item.letter_id or 0 for each in claimed]
        with self._database.reading() as connection:
            at = clock.now(connection)
            letters = contents.standings(connection, ids)
        ends: dict[int, End] = {}
        whys: list[str] = []
        for some in _slices(claimed, letters):
            ends |= self._copied(some, letters, at, live, whys)
        return Acted(ends=ends, why=whys[0] if whys else "")

    def settle(self, connection: Connection, claimed: Sequence[Claimed], acted: Acted, at: int) -> None:
        """Nothing changes here."""

    def _copied(
        self, some: Sequence[Item], letters: dict[int, Standing], at: int, live: Live, whys: list[str]
    ) -> dict[int, End]:
        ids = [item.letter_id or 0 for item in some]
        with self._database.reading() as connection:
            found = {each.id: each for each in contents.contents(connection, self._plan.id, ids)}
        away = [Away(letters[each.id], each) for each in found.values() if each.away]
        values = payloads(self._settings, away, live)
        ends: dict[int, End] = {}
        made: dict[int, Letter] = {}
        for item in some:
            content = found.get(item.letter_id or 0)
            if content is None:
                ends[item.position] = End(ItemState.SKIPPED, "the letter is gone")
            elif content.away and content.id not in values:
                ends[item.position] = End(ItemState.REFUSED, "its value is no longer in Kafka")
            else:
                value = values[content.id] if content.away else content.value
                made[item.position] = self._letter(letters[content.id], content, value, at)
        live()
        for position, answer in zip(made, self._producer.place_all([*made.values()]), strict=True):
            if isinstance(answer, Lies):
                ends[position] = End(ItemState.DONE, f"it lies at {answer.topic}-{answer.partition}-{answer.offset}")
            elif isinstance(answer, NeverPublished):
                ends[position] = End(ItemState.REFUSED, str(answer))
            else:
                whys.append(str(answer))
        return ends

    def _letter(self, letter: Standing, content: Content, value: bytes | None, at: int) -> Letter:
        whose = letter.delivery.identity
        headers = marked(content.headers, whose, at, self._plan.by)
        return Letter(self._topic, -1, content.key, value, headers, whose, "a copy of its dead letter")


def marked(theirs: Sequence[Header], whose: str, at: int, by: str) -> RecordHeaders:
    """The producer's headers, and behind them what says that this is a copy: of what, when (ms) and by whom (pure)."""
    ours = {"copy_of": whose, "copy_at": str(at), "copy_by": by}
    return [*theirs, *((name, said.encode("ascii", "backslashreplace")) for name, said in ours.items())]


def target_of(plan: Plan) -> Target | None:
    """Which Kafka a plan copies to; `None`: the one that the letters are of."""
    said = plan.options.target
    return Target(said.get("addresses", ""), said.get("file", "")) if len(said) > 1 else None


def check_topic(settings: Settings, topic: str) -> None:
    """Refuse a topic in which a record acts: on Kafka itself, or on any group of this project.

    Raises:
        CopyRefused: it is such a topic, by its name: on any Kafka, and whoever asks.
    """
    if is_internal(topic):
        raise CopyRefused(f"{topic!r} is an internal topic of Kafka: nothing is copied there. Name another topic.")
    if role := role_for_any_group(topic, TopicNames.of(settings)):
        raise CopyRefused(
            f"{topic!r} has the name of a {role} topic: what is written there acts on the group that reads it, so "
            "nothing is copied there. Name another topic."
        )


def settings_of(settings: Settings, target: Target | None) -> Settings:
    """The settings with which copies are written there.

    Raises:
        CopyRefused: this process does not know how to get in.
    """
    return settings if target is None else replace(settings, kafka=target.properties())


def there(settings: Settings, target: Target | None, topic: str) -> Cluster:
    """The topics of the Kafka that copies go to, this one among them.

    Raises:
        CopyRefused: it is not, or this process does not know how to get in.
        KafkaUnavailable: that Kafka did not answer.
    """
    found = all_topics(admin_client(settings_of(settings, target).kafka))
    if topic not in found.topics:
        raise CopyRefused(
            f"There is no topic {topic!r} in {'this Kafka' if target is None else target.name}: make it first."
        )
    return found


def _slices(claimed: Sequence[Claimed], letters: dict[int, Standing]) -> Iterator[list[Item]]:
    """In parts, of each of which the values may be held at once."""
    some: list[Item] = []
    size = 0
    for each in claimed:
        some.append(each.item)
        letter = letters.get(each.item.letter_id or 0)
        size += 0 if letter is None else max(0, letter.value_size)
        if size >= AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some
