"""Which topics there are: each is told of once, made ready once, and known by its id."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from bridge.errors import KafkaUnavailable
from bridge.kafka import control_topic, topic_catalog
from bridge.kafka.managed_topic import ManagedTopic, TopicKind
from bridge.kafka.partition_offsets import END, cached_first_and_end, committed_offset, first_and_end
from bridge.kafka.topic_admin import MOCK
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.settings import EnvironmentSettings, FileSettings, Settings


def future(found: Any) -> "Future[Any]":
    made: Future[Any] = Future()
    if isinstance(found, Exception):
        made.set_exception(found)
    elif found is not None:
        made.set_result(found)
    return made


def error(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def metadata(partitions: int) -> Any:
    parts = {number: SimpleNamespace(replicas=[1]) for number in range(partitions)}
    return SimpleNamespace(error=None, partitions=parts)


class Admin:
    """A cluster with `topics` (name → partitions); `ends` answers where a partition ends."""

    def __init__(self, **topics: int) -> None:
        self.topics, self.cluster = topics, "a-cluster"
        self.away: KafkaException | None = None
        self.ends: Any = SimpleNamespace(offset=7)
        self.ids: Any = "an-id"
        self.looked = 0
        self.refuses: tuple[str, ...] = ()
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def poll(self, timeout: float) -> None:
        """It has reported nothing."""

    def list_topics(self, timeout: float) -> Any:
        self.looked += 1
        if self.away is not None:
            raise self.away
        known = {name: metadata(count) for name, count in self.topics.items()}
        return SimpleNamespace(topics=known, cluster_id=self.cluster)

    def describe_topics(self, names: Any, request_timeout: float) -> Any:
        told = self.ids if isinstance(self.ids, Exception) else SimpleNamespace(topic_id=self.ids)
        return dict.fromkeys(self.topics, future(told))

    def list_offsets(self, asked: Any, **options: Any) -> Any:
        return {place: future(self.ends) for place in asked}


DLQ = ManagedTopic("orders.dlq", TopicKind.DEAD_LETTERS, "orders")


def counted(wanted: Any, sources: Any) -> list[tuple[str, int]]:
    return [(ours.name, ours.shape(sources[ours.source]).partitions) for ours in wanted]


@pytest.fixture
def catalog_of(monkeypatch):
    """A catalog of the topic `orders` on that cluster, and what was made of it."""
    made: list[tuple[str, int]] = []

    def of(admin: Admin, **file: Any) -> TopicCatalog:
        monkeypatch.setattr(topic_catalog, "admin_client", lambda properties: admin)

        def act(_: Any, wanted: Any, sources: Any) -> list[str]:
            made.extend(counted(wanted, sources))
            return [ours.name for ours in wanted if ours.name not in admin.refuses]

        for name in ("create_topics", "add_partitions"):
            monkeypatch.setattr(topic_catalog, name, act)
        found = TopicCatalog(
            Settings(FileSettings(**file), EnvironmentSettings(), "", {}), ["orders"], [DLQ], admin.clock
        )
        found.made = made  # type: ignore[attr-defined]
        return found

    return of


def test_a_topic_without_one_gets_its_topic_for_dead_letters_once(catalog_of):
    found = catalog_of(Admin(orders=3))
    found.prepare()
    found.prepare()
    assert found.made == [("orders.dlq", 3)]
    assert found.complete
    assert (found.cluster, found.topic_ids) == ("a-cluster", {"orders": "an-id"})


def test_what_kafka_refuses_to_make_is_said_and_tried_again_after_a_minute(catalog_of, caplog):
    admin = Admin(orders=3)
    found = catalog_of(admin)
    admin.refuses = ("orders.dlq",)
    found.prepare()
    assert (found.complete, [ours.name for ours in found.unmade]) == (True, ["orders.dlq"])
    assert "a dead letter stays in the Celery broker" in caplog.text
    admin.now = 59.0
    found.prepare()
    assert len(found.made) == 1
    admin.now, admin.refuses = 60.0, ()
    assert not found.complete
    found.prepare()
    assert (found.complete, found.unmade, len(found.made)) == (True, [], 2)


def test_what_is_needed_later_is_looked_for_once_and_made(catalog_of):
    found = catalog_of(Admin(orders=3))
    found.prepare()
    tier = ManagedTopic("orders.retry.5m", TopicKind.RETRY, "orders", 300)
    found.need([DLQ, tier])
    assert not found.complete
    found.prepare()
    assert found.made[1:] == [("orders.dlq", 3), ("orders.retry.5m", 3)]
    found.need([tier])
    assert found.complete


def test_a_topic_with_fewer_partitions_than_its_source_gets_as_many(catalog_of):
    found = catalog_of(Admin(orders=3, **{"orders.dlq": 1}))
    found.prepare()
    assert found.made == [("orders.dlq", 3)]


@pytest.mark.parametrize(("there", "made"), [(2, [("orders.replay", 4)]), (4, []), (16, [])])
def test_a_topic_that_needs_few_partitions_gets_those_and_keeps_more(catalog_of, there: int, made: list[object]):
    found = catalog_of(Admin(orders=16, **{"orders.dlq": 16, "orders.replay": there}))
    found.need([ManagedTopic("orders.replay", TopicKind.REPLAY, "orders", most_partitions=4)])
    found.prepare()
    assert found.made == made


def test_nothing_is_made_that_is_there_or_that_the_settings_forbid(catalog_of):
    for found in (
        catalog_of(Admin(orders=3, **{"orders.dlq": 3})),
        catalog_of(Admin(orders=3), kafka_create_topics=False),
    ):
        found.prepare()
        assert found.made == []
        assert found.complete


def test_a_topic_that_is_not_there_is_named_once_and_found_when_it_comes(catalog_of, caplog):
    caplog.set_level(logging.INFO)
    admin = Admin()
    found = catalog_of(admin)
    found.prepare()
    found.prepare()
    assert caplog.text.count("'orders' does not exist yet") == 1
    assert (found.missing, found.complete) == ({"orders"}, False)
    admin.topics["orders"] = 6
    found.prepare()
    assert "'orders' is there now, with 6 partitions" in caplog.text
    assert (found.missing, found.complete) == (frozenset(), True)


def test_of_a_topic_that_was_there_from_the_beginning_nothing_is_said_however_often_it_is_looked_for(
    catalog_of, caplog
):
    caplog.set_level(logging.INFO)
    catalog_of(Admin(orders=6)).prepare()
    catalog_of(Admin(orders=6)).prepare()
    assert "orders" not in caplog.text


def test_a_mock_cluster_is_asked_for_no_id_and_makes_its_topics_itself(catalog_of):
    admin = Admin(orders=4)
    admin.cluster, admin.ids = f"{MOCK}7", AssertionError("it would not answer")
    found = catalog_of(admin)
    found.prepare()
    assert (found.topic_ids, found.made, found.complete) == ({"orders": ""}, [], True)


def test_a_kafka_that_does_not_answer_is_no_kafka_without_topics(catalog_of):
    admin = Admin()
    admin.away = error(KafkaError._TRANSPORT)
    with pytest.raises(KafkaUnavailable, match="Kafka does not answer"):
        catalog_of(admin).prepare()


def test_nothing_is_made_of_a_topic_whose_id_kafka_does_not_say(catalog_of):
    admin = Admin(orders=3)
    admin.ids = error(KafkaError.UNKNOWN_TOPIC_OR_PART)
    found = catalog_of(admin)
    with pytest.raises(KafkaUnavailable, match="did not give the id of topic 'orders'"):
        found.prepare()
    assert (found.made, found.complete) == ([], False)


PLACE = ("orders", 0)


def asked(found: TopicCatalog) -> TopicCatalog:
    found.ask_ends([TopicPartition(*PLACE)])
    return found


def test_ends_are_told_when_the_answer_is_there_and_once(catalog_of):
    found = asked(catalog_of(Admin(orders=1)))
    assert found.ends() == {PLACE: 7}
    assert found.ends() is None


def test_an_answer_that_is_not_there_yet_is_none(catalog_of):
    admin = Admin(orders=1)
    admin.ends = None
    assert asked(catalog_of(admin)).ends() is None


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN])
def test_no_answer_is_an_error(catalog_of, code):
    admin = Admin(orders=1)
    admin.ends = error(code)
    with pytest.raises(KafkaUnavailable):
        asked(catalog_of(admin)).ends()


def test_a_client_that_knows_too_old_a_cluster_learns_it_anew(catalog_of):
    admin = Admin(orders=1)
    admin.ends = error(KafkaError.FENCED_LEADER_EPOCH)
    assert asked(catalog_of(admin)).ends() is None
    assert admin.looked == 1


def test_metadata_are_read_anew_once_for_hundreds_of_partitions_that_are_refused_together(catalog_of):
    admin = Admin(orders=1)
    found = catalog_of(admin)
    admin.ends = error(KafkaError.NOT_LEADER_FOR_PARTITION)
    for number in range(500):
        for answer in found.ask_logs([("orders", number)])["orders", number]:
            with pytest.raises(KafkaUnavailable, match="did not give"):
                found.read_offset(answer)
    assert admin.looked == 1
    admin.now += 1
    assert asked(found).ends() is None
    assert admin.looked == 2


def test_a_late_answer_is_no_offset(catalog_of):
    admin = Admin(orders=1)
    found = catalog_of(admin)
    # What Kafka's client gives, without an error, once the time for an answer has passed.
    admin.ends = SimpleNamespace(offset=-1001)
    for answer in found.ask_logs([("orders", 0)])["orders", 0]:
        with pytest.raises(KafkaUnavailable, match="did not answer in time"):
            found.read_offset(answer)
    found.ask_ends([TopicPartition("orders", 0)])
    with pytest.raises(KafkaUnavailable, match="did not answer in time"):
        found.ends()
    asking = found.asking()
    for at, offset, told in (
        (END, -1001, {}),
        (END, -1, {}),
        (END, 7, {("orders", 0): 7}),
        (1e9, -1001, {}),
        (1e9, -1, {("orders", 0): -1}),
    ):
        admin.ends = SimpleNamespace(offset=offset)
        asking.ask_offsets({("orders", 0): at})
        assert asking.take_answer() == told


@pytest.mark.parametrize("answer", [None, (-1001, -1001), (0, -1001), (-1, 5), (5, 3)])
def test_watermarks_that_are_no_offsets_are_no_answer(answer):
    with pytest.raises(KafkaUnavailable, match="did not answer in time"):
        first_and_end(answer)
    assert first_and_end((0, 0)) == (0, 0)


@pytest.mark.parametrize("answer", [None, (-1001, -1001), (-1, -1001)])
def test_decisions_are_not_read_up_to_a_number_that_is_no_offset(answer, monkeypatch):
    there = Settings(FileSettings(), EnvironmentSettings(), "", {})
    name = f"{there.group}.control"
    client = SimpleNamespace(get_watermark_offsets=lambda *_, **__: answer, close=lambda: None)
    monkeypatch.setattr(control_topic, "consumer_client", lambda *_: client)
    monkeypatch.setattr(control_topic, "read_cluster", lambda _: SimpleNamespace(topics={name: None}))
    with pytest.raises(KafkaUnavailable, match="did not answer in time"):
        control_topic.read_published_decisions(there)


def test_an_offset_that_a_client_remembers_or_says_is_committed_is_one_or_none():
    assert [cached_first_and_end(each) for each in (None, (-1001, 4), (2, -1001), (2, 4))] == [
        (-1, -1),
        (-1, 4),
        (2, -1),
        (2, 4),
    ]
    assert committed_offset(TopicPartition("orders", 0, 0)) == 0
    assert committed_offset(TopicPartition("orders", 0, -1001)) is None
    with pytest.raises(KafkaUnavailable, match="what is committed of orders-0"):
        committed_offset(TopicPartition("orders", 0, -1))


def test_a_retry_topic_is_gone_once_two_answers_leave_it_out(catalog_of):
    admin = Admin(orders=1, **{"orders.retry.5m": 1})
    found = catalog_of(admin)
    found.prepare()
    listed = admin.topics
    seen = []
    # A broker that has just started lists nothing; another one has not heard of all yet.
    for topics in ({}, {}, {"orders": 1}, listed, {"orders": 1}, {"orders": 1}):
        admin.topics = topics
        found.prepare()
        seen.append(sorted(found.waiting))
    there = ["orders.retry.5m"]
    assert seen == [there, there, there, there, there, []]
