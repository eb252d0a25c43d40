"""The catalog of a running bridge: the existing topics, their ids and ends; it creates missing managed topics."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count
from bridge.kafka.clients import (
    AdminClient,
    IsolationLevel,
    KafkaError,
    KafkaException,
    OffsetSpec,
    TopicCollection,
    TopicPartition,
    admin_client,
    explain_error,
)
from bridge.kafka.managed_topic import ManagedTopic, TopicKind, find_retention_fault
from bridge.kafka.partition_offsets import OffsetQuestion, listed_offset
from bridge.kafka.topic_admin import (
    ANSWER_WITHIN,
    MOCK,
    Cluster,
    add_partitions,
    create_topics,
    log_made_on_first_use,
    read_cluster,
    read_shape,
    read_topic_configs,
)
from bridge.kafka.topic_names import DerivedTopic, DerivedTopics, TopicNames
from bridge.settings import Settings
from lossless.background_thread import start_call

logger = logging.getLogger(__name__)

#: Seconds after which refused topics are created again.
REFUSED_FOR: Final = 60.0
#: Seconds between two readings of metadata that were too old.
LEARN_EVERY: Final = 0.5
_NO_ANSWER: Final = (
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)


class TopicCatalog:
    """The metadata of the handlers' topics and of the managed topics beside them.

    Parameters:
        ours: the managed topics that must exist, and are created if that is allowed (bridge.kafka.managed_topic).

    Attributes:
        missing: source topics that do not exist (yet).
        cluster: the id of the Kafka cluster.
        unmade: managed topics that Kafka refused to create; they are tried again.
        unfit: a sentence for each retry topic that would drop records before they are due, as last found.
        waiting: the retry and replay topics of existing sources, with their source.
        orphans: topics that look like retry topics of a source without handlers, with that source.
        unlisted: why Kafka did not list its topics last time; `None` if it did.
        listings: how often Kafka has listed its topics.
        numbers: the partitions of each source, as last listed.
        letters: the partitions of each source's dead letters, if seen.
        topic_ids: the id of each topic, which tells it from a deleted one of the same name.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[str],
        ours: Iterable[ManagedTopic] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._ours, self._makes = tuple(ours), settings.file.kafka_create_topics
        self._topics = tuple(topics)
        self._admin: AdminClient = admin_client(settings.kafka)
        self._prepared: set[str] = set()
        self._named: set[str] = set()
        self._ends: dict[TopicPartition, Future[Any]] = {}
        self._ids: dict[str, Future[Any]] = {}
        self._belongings = DerivedTopics(TopicNames.from_settings(settings), self._topics)
        self._listing: Future[Cluster] | None = None
        self.unlisted: str | None = None
        self._absent: frozenset[str] = frozenset()
        self.waiting: dict[str, DerivedTopic] = {}
        self.orphans: dict[str, str] = {}
        self.missing: frozenset[str] = frozenset(topics)
        self.unfit: list[str] = []
        self.unmade: list[ManagedTopic] = []
        self._refused_at = 0.0
        self._learned_at = float("-inf")
        self.cluster = ""
        self.topic_ids: dict[str, str] = {}
        names = TopicNames.from_settings(settings)
        self._letters = {source: names.dead_letters(source) for source in self._topics}
        self.letters: dict[str, list[Place]] = {}
        self.listings = 0
        self.numbers: dict[str, tuple[int, ...]] = {}

    def need(self, ours: Iterable[ManagedTopic]) -> None:
        """Add managed topics that must exist; `prepare` creates the new ones."""
        new = [topic for topic in ours if topic not in self._ours]
        self._ours += tuple(new)
        self._prepared -= {topic.source for topic in new}

    def asking(self) -> OffsetQuestion:
        """Return a new request for offsets."""
        return OffsetQuestion(self._admin)

    def asking_stable(self) -> OffsetQuestion:
        """Return a new request for stable offsets, which end at the first open transaction."""
        return OffsetQuestion(self._admin, IsolationLevel.READ_COMMITTED)

    @property
    def complete(self) -> bool:
        """Return whether every source topic exists with its managed topics."""
        return self._prepared.issuperset(self._topics) and not self._is_due_again

    @property
    def _is_due_again(self) -> bool:
        """Return whether refused topics are to be created again by now."""
        return bool(self.unmade) and self._clock() - self._refused_at >= REFUSED_FOR

    def prepare(self) -> None:
        """Find the source topics, and create their missing managed topics.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        cluster = read_cluster(self._admin)
        known, there = cluster.named, cluster.topics
        self.cluster = cluster.id
        if self._is_due_again:
            self._prepared -= {ours.source for ours in self.unmade}
        existing = {name: there[name] for name in self._topics if name in there}
        missing = frozenset(self._topics) - existing.keys()
        for name in sorted(missing - self._named):
            logger.warning("topic %r does not exist yet: it is consumed as soon as it does.", name)
        for name in sorted(self._named - missing):
            logger.info(
                "topic %r is there now, with %s.", name, format_count(len(existing[name].partitions), "partition")
            )
        self._named = set(missing)
        self.missing = missing
        self._see(known)
        self._must_identify({name for name in existing if name not in self.topic_ids})
        wanted = [ours for ours in self._ours if ours.source in existing.keys() - self._prepared]
        if self._makes:
            self._make(wanted, known)
        self._look_at_retention([ours for ours in wanted if ours.name in known])
        self._prepared.update(existing)

    def belonging(self, topic: str) -> DerivedTopic | None:
        """Return the source of a retry or replay topic, by its name; `None` for a source topic."""
        return self._belongings.find_derived([topic]).get(topic)

    def source_of(self, topic: str) -> str:
        """Return the source topic of a topic's deliveries; a source topic is its own."""
        belongs = self.belonging(topic)
        return topic if belongs is None else belongs.source

    def ask_topics(self) -> None:
        """Request the list of topics without waiting: a tier may be created while the bridge runs."""
        if self._listing is None:
            self._listing = start_call("topics", lambda: read_cluster(self._admin))

    def hear_topics(self) -> bool:
        """Read the answer to `ask_topics` if it is there; return whether Kafka gave one."""
        if self._listing is not None and self._listing.done():
            listed, self._listing = self._listing, None
            error = listed.exception()
            self.unlisted = None if error is None else str(error)
            if error is None:
                self._see(listed.result().named)
                return True
        return False

    def _see(self, known: Mapping[str, Any]) -> None:
        if not known:
            # A broker that has just started may list nothing at all.
            return
        self.listings += 1
        self.numbers |= {name: tuple(known[name].partitions) for name in self._topics if name in known}
        # A topic without a leader for a moment stays listed; one is gone if two answers in a row lack it.
        absent = self.waiting.keys() - known.keys()
        missed_once, self._absent = absent - self._absent, frozenset(absent)
        listed = [name for name, topic in known.items() if topic.error is None or name in self.waiting]
        there = [*listed, *sorted(missed_once)]
        self.waiting = self._belongings.find_derived(there)
        self.letters.update(
            (source, [(name, number) for number in known[name].partitions])
            for source, name in self._letters.items()
            if name in known and known[name].error is None
        )
        named = ((name, self._belongings.source_of(name)) for name in listed if name not in self._topics)
        self.orphans = {name: source for name, source in named if source is not None and source not in self._topics}

    def identify(self, topics: Collection[str]) -> dict[str, str]:
        """Read the ids of topics; return why for each topic whose id Kafka did not give, such as a deleted one."""
        unknown = sorted(topics)
        if not unknown:
            return {}
        if self.cluster.startswith(MOCK):
            # librdkafka's mock has no DescribeTopics (api key 75) and would not answer at all.
            self.topic_ids.update(dict.fromkeys(unknown, ""))
            return {}
        answers = self._admin.describe_topics(TopicCollection(unknown), request_timeout=ANSWER_WITHIN)
        untold = {}
        for name, future in answers.items():
            try:
                self.topic_ids[name] = str(future.result(ANSWER_WITHIN * 2).topic_id)
            except (KafkaException, TimeoutError) as error:
                untold[name] = f"Kafka did not give the id of topic {name!r}: {explain_error(error)}."
        return untold

    def id_of(self, topic: str) -> str:
        """Return the id of a topic.

        Raises:
            KafkaUnavailable: it is unknown, and Kafka did not give it.
        """
        if topic not in self.topic_ids:
            self._must_identify({topic})
        return self.topic_ids[topic]

    def _must_identify(self, topics: Collection[str]) -> None:
        for why in self.identify(topics).values():
            raise KafkaUnavailable(why)

    def ask_ids(self, topics: Iterable[str]) -> None:
        """Request the ids of topics again, without waiting."""
        names = sorted(set(topics))
        if names and not self._ids and not self.cluster.startswith(MOCK):
            asked = self._admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_WITHIN)
            self._ids = dict(asked)

    def new_ids(self) -> dict[str, str]:
        """Return the answer to `ask_ids` if it is there; deleted topics are left out."""
        if not self._ids or not all(future.done() for future in self._ids.values()):
            return {}
        asked, self._ids = self._ids, {}
        told = {name: str(future.result().topic_id) for name, future in asked.items() if not future.exception()}
        self.topic_ids.update(told)
        return told

    def _make(self, wanted: Collection[ManagedTopic], known: Mapping[str, Any]) -> None:
        """Create missing topics, and add partitions to those with fewer than they need."""
        missing = [ours for ours in wanted if ours.name not in known]
        if self.cluster.startswith(MOCK):
            log_made_on_first_use([ours.name for ours in missing])
            return
        sources = {ours.source: read_shape(known[ours.source]) for ours in wanted}
        made = {*create_topics(self._admin, missing, sources)}
        refused = [ours for ours in missing if ours.name not in made]
        self.unmade = [ours for ours in self.unmade if ours.source not in sources] + refused
        if refused:
            self._refused_at = self._clock()
            logger.error(
                "%s of the group could not be created; the bridge tries again in %g s: until then %s. See above "
                "why each was refused; `bridge topics --create` creates them too.",
                format_count(len(refused), "topic"),
                REFUSED_FOR,
                "; ".join(dict.fromkeys(ours.without for ours in refused)),
            )
        there = [ours for ours in wanted if ours.name in known and known[ours.name].error is None]
        wanted_counts = {ours.name: ours.shape(sources[ours.source]).partitions for ours in there}
        small = [ours for ours in there if len(known[ours.name].partitions) < wanted_counts[ours.name]]
        add_partitions(self._admin, small, sources)

    def _look_at_retention(self, wanted: Collection[ManagedTopic]) -> None:
        """Log retry topics that were created elsewhere and keep records for less than their delay."""
        retries = [ours for ours in wanted if ours.kind is TopicKind.RETRY]
        if not retries or self.cluster.startswith(MOCK):
            return
        configs = read_topic_configs(self._admin, [ours.name for ours in retries])
        self.unfit = [words for ours in retries if (words := find_retention_fault(ours, configs[ours.name]))]
        for words in self.unfit:
            logger.error("%s", words)

    def ask_logs(self, places: Iterable[Place]) -> dict[Place, tuple[Future[Any], Future[Any]]]:
        """Request the first and end offsets of partitions without waiting, all in one question (`read_offset`).

        Kafka's client answers for all of them together: one without a leader delays all, or fails them.
        """
        asked = {place: TopicPartition(*place) for place in places}
        firsts, ends = (
            self._admin.list_offsets(dict.fromkeys(asked.values(), spec), request_timeout=ANSWER_WITHIN)
            for spec in (_earliest(), _latest())
        )
        return {place: (firsts[partition], ends[partition]) for place, partition in asked.items()}

    def read_offset(self, answer: Future[Any]) -> int:
        """Return the offset in a finished answer to `ask_logs`.

        Raises:
            KafkaUnavailable: Kafka did not give it, and why.
        """
        error = answer.exception()
        if error is None:
            return listed_offset(answer)
        self._learn_anew(error.args[0] if isinstance(error, KafkaException) else None)
        raise KafkaUnavailable(f"Kafka did not give the first and end offset of the partition: {error}.")

    def ask_ends(self, partitions: Iterable[TopicPartition]) -> None:
        """Request the ends of these partitions, without waiting."""
        latest = {TopicPartition(p.topic, p.partition): _latest() for p in partitions}
        if latest and not self._ends:
            self._ends = dict(self._admin.list_offsets(latest, request_timeout=ANSWER_WITHIN))

    def ends(self) -> dict[tuple[str, int], int] | None:
        """Return the end offsets from the answers to `ask_ends`; `None` while there are none.

        Raises:
            KafkaUnavailable: Kafka answered none of them.
        """
        if not self._ends or not all(future.done() for future in self._ends.values()):
            return None
        asked, self._ends = self._ends, {}
        ends: dict[tuple[str, int], int] = {}
        failure: Exception | None = None
        for partition, future in asked.items():
            try:
                ends[(partition.topic, partition.partition)] = listed_offset(future)
            except (KafkaException, KafkaUnavailable) as error:
                failure = error
        if ends:
            return ends
        if isinstance(failure, KafkaUnavailable):
            raise failure
        self._learn_anew(failure.args[0] if failure is not None else None)
        return None

    def _learn_anew(self, error: KafkaError | None) -> None:
        """Read the metadata again: after a restart of Kafka they may be too old (FENCED_LEADER_EPOCH).

        Once for many partitions that are refused together, because all their topics have just been created.
        """
        if error is None or error.code() in _NO_ANSWER:
            raise KafkaUnavailable(f"Kafka does not answer: {explain_error(error) if error else 'no time was left'}.")
        if self._clock() - self._learned_at >= LEARN_EVERY:
            self._learned_at = self._clock()
            read_cluster(self._admin)


def _earliest() -> OffsetSpec:
    earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    return earliest


def _latest() -> OffsetSpec:
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return latest
