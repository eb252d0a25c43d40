"""Where reading begins: what the ledger knows, has forgotten, has lost, or does not say yet."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import redis

from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.offset_commits import OffsetCommits
from bridge.consumer.periodic_jobs import renew_ledger_pages
from bridge.consumer.read_position import PartitionStarts
from bridge.consumer.start_offset import STEP, StartOffsetFinder
from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Handler, Routes
from bridge.kafka.clients import TopicPartition
from bridge.kafka.partition_offsets import Extent, commit_note, noted_commit_mode, noted_epoch
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Account, Accounts, Fate, KnownLog, Ledger, Mark, Push
from bridge.ledger.ledger_layout import PAGE, ledger_key
from bridge.ledger.unaccounted_offsets import find_wiped_end
from bridge.partitions.assignment import Assignment
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.delivery_checks import audit, choose, ledger
from tests.processes import Stack, eventually

CHARGE = Account("charge", "orders", "id", 0)


class Kafka:
    """A catalog and a consumer: one partition of `orders` after another, of which some have no leader."""

    def __init__(
        self,
        low: int,
        high: int,
        committed: int,
        metadata: str,
        leaderless: tuple[int, ...] = (),
        epoch: int | None = None,
    ):
        self.low, self.high, self._committed, self._metadata = low, high, committed, metadata
        self._epoch: dict[str, Any] = {} if epoch is None else {"leader_epoch": epoch}
        self._leaderless = leaderless
        self.topic_ids = {"orders": "id"}
        self.gone: dict[str, str] = {}
        self.sought: dict[int, int] = {}
        self.asked: list[list[Place]] = []

    def id_of(self, topic: str) -> str:
        return self.topic_ids[topic]

    def belonging(self, topic: str) -> None:
        """None of its topics is a retry or replay topic."""

    def identify(self, topics: set[str]) -> dict[str, str]:
        assert topics <= {"orders", *self.gone}
        return self.gone

    def ask_logs(self, places: Iterable[Place]) -> dict[Place, tuple[Future[Any], Future[Any]]]:
        asked = {place: (Future[Any](), Future[Any]()) for place in places}
        self.asked.append([*asked])
        if {partition for _, partition in asked} & {*self._leaderless}:
            if len(asked) > 1:
                # As Kafka's client, which gives up the whole question.
                for answers in asked.values():
                    for answer in answers:
                        answer.set_exception(KafkaUnavailable("no leader"))
            return asked
        for first, end in asked.values():
            first.set_result(self.low)
            end.set_result(self.high)
        return asked

    def read_offset(self, answer: Future[Any]) -> int:
        return int(answer.result())

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        said = (self._committed, self._metadata)
        return [TopicPartition(each.topic, each.partition, *said, **self._epoch) for each in asked]

    def seek(self, to: TopicPartition) -> None:
        self.sought[to.partition] = to.offset


def settings_of(commit: str) -> Settings:
    chosen = FileSettings.model_validate({"kafka_topics": {"orders": {"commit": commit}}})
    return Settings(chosen, EnvironmentSettings(), "", {})


def assignment_of(kafka: Any, fates: Ledger | None, commit: str) -> Assignment:
    routes = Routes({"charge": Handler("charge", ("orders",), "celery", 1, 0)})
    return Assignment(settings_of(commit), routes, kafka, fates)


def beginnings(
    kafka: Any, fates: Ledger | None, commit: str = "completion", clock: Callable[[], float] = time.monotonic
) -> PartitionStarts:
    assignment = assignment_of(kafka, fates, commit)
    commits: Any = None
    logs = LogChangeDetector(fates, assignment, commits, BridgeMetrics())
    return PartitionStarts(
        assignment, kafka, logs, StartOffsetFinder(settings_of(commit), assignment, fates, logs), clock
    )


def start_of(fates: Ledger, kafka: Kafka, commit: str = "completion") -> int:
    """Where reading partition 0 begins."""
    found = beginnings(kafka, fates, commit)
    found.add([("orders", 0)])
    consumer: Any = kafka
    while not kafka.sought:
        list(found.advance(consumer))
    return kafka.sought[0]


def test_a_partition_without_a_leader_holds_up_no_other():
    kafka: Any = Kafka(0, 10, -1001, "", leaderless=(1,))
    began: list[Place] = []
    found = beginnings(kafka, None)
    found.add([("orders", 0), ("orders", 1), ("orders", 2)])
    before = time.monotonic()
    while len(began) < 2:
        began += [place for place, _ in found.advance(kafka)]
    assert time.monotonic() - before < 2
    assert (sorted(began), list(found)) == ([("orders", 0), ("orders", 2)], [("orders", 1)])


def test_kafka_is_asked_once_for_all_partitions_of_a_topic_and_has_answered_before_the_ledger_is_searched(
    monkeypatch: pytest.MonkeyPatch,
):
    # No time for a second search.
    monkeypatch.setattr("bridge.consumer.read_position.SEARCH_WITHIN", -1)
    kafka: Any = Kafka(0, 10, -1001, "")
    found = beginnings(kafka, None)
    places = [("orders", number) for number in range(100)]
    found.add(places)
    assert found.unasked
    began = [place for place, _ in found.advance(kafka)]
    assert kafka.asked == [places]
    assert (len(began), found.unasked, found.more) == (1, False, True)
    while list(found):
        began += [place for place, _ in found.advance(kafka)]
    assert (sorted(began), len(kafka.asked), found.more) == (places, 1, False)


def test_a_topic_that_is_gone_holds_up_no_other(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.consumer.read_position.LOGGED_AFTER", 0)
    kafka: Any = Kafka(0, 10, -1001, "")
    kafka.gone = {"gone": "Kafka does not say the id of topic 'gone'"}
    began: list[Place] = []
    found = beginnings(kafka, None)
    found.add([("gone", 0), ("orders", 0)])
    for _ in range(3):
        began += [place for place, _ in found.advance(kafka)]
    assert (began, list(found)) == ([("orders", 0)], [("gone", 0)])
    assert "gone-0: where to begin is not known yet, for 0 s: Kafka does not say the id" in caplog.text


def test_a_question_that_kafkas_client_never_answers_is_asked_again_and_each_minute_it_is_said_what_is_waited_for(
    caplog: pytest.LogCaptureFixture,
):
    kafka: Any = Kafka(0, 10, -1001, "", leaderless=(0,))
    now = [0.0]
    assignment = assignment_of(kafka, None, "completion")
    commits: Any = None
    logs = LogChangeDetector(None, assignment, commits, BridgeMetrics())
    starts = StartOffsetFinder(settings_of("completion"), assignment, None, logs)
    found = PartitionStarts(assignment, kafka, logs, starts, lambda: now[0])
    found.add([("orders", 0)])
    for _ in range(200):
        assert list(found.advance(kafka)) == []
        now[0] += 1
    said = [record.getMessage() for record in caplog.records if "orders-0: where to begin" in record.getMessage()]
    assert 3 <= len(said) <= 4
    assert all("Kafka has not said where the partition begins and ends" in words for words in said)
    kafka._leaderless = ()
    for _ in range(30):
        now[0] += 1
        if list(found.advance(kafka)):
            break
    assert list(found) == []


def test_the_handlers_of_before_are_listed_once_for_all_partitions_that_are_assigned_together(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
):
    listed: list[int] = []
    everyone = Accounts.list_accounts

    def counted(self: Accounts) -> list[Account]:
        found = everyone(self)
        listed.append(len(found))
        return found

    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        old = [Account("renamed", "orders", "id", number) for number in range(20)]
        for account in old:
            Accounts(fates).join(account, 0)
        Accounts(fates).raise_reached(dict.fromkeys(old, 5))
        monkeypatch.setattr(Accounts, "list_accounts", counted)
        kafka: Any = Kafka(0, 10, -1001, "")
        found = beginnings(kafka, fates)
        for half in (range(10), range(10, 20)):
            # Each assignment asks anew: another bridge may have begun something meanwhile.
            found.add([("orders", number) for number in half])
            while list(found):
                list(found.advance(kafka))
        assert len(listed) == 2
        assert kafka.sought == dict.fromkeys(range(20), 5)


@pytest.mark.parametrize("again", [False, True], ids=["first start", "restart"])
def test_the_ledger_is_asked_as_often_for_many_partitions_that_start_together_as_for_few(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, again: bool
):
    # However slow the machine is.
    monkeypatch.setattr("bridge.consumer.read_position.SEARCH_WITHIN", 60)
    trips = {}
    for count in (3, 300):
        with closing(Ledger(redis_url, "cluster", f"of {count}")) as fates:
            kafka: Any = Kafka(0, 30, -1001, "")
            if again:
                accounts = [CHARGE._replace(partition=number) for number in range(count)]
                fates.write([Mark(account, range(20), Fate.DONE) for account in accounts])
                Accounts(fates).join_all(dict.fromkeys(accounts, 0))
                Accounts(fates).raise_reached(dict.fromkeys(accounts, 20))
                kafka = Kafka(0, 30, 20, commit_note(fates.state().epoch, "id", "completion"))
            asked: list[object] = []
            send = redis.Connection.send_packed_command

            def counted(self: Any, *command: Any, send: Any = send, asked: list[object] = asked, **how: Any) -> None:
                asked.append(command)
                send(self, *command, **how)

            monkeypatch.setattr(redis.Connection, "send_packed_command", counted)
            found = beginnings(kafka, fates)
            found.add([("orders", number) for number in range(count)])
            assert len(list(found.advance(kafka))) == count
            monkeypatch.setattr(redis.Connection, "send_packed_command", send)
            trips[count] = len(asked)
        assert kafka.sought == dict.fromkeys(range(count), 20 if again else 0)
    assert trips[300] == trips[3]
    assert trips[300] < 25


def test_one_answer_of_kafka_is_no_proof_that_a_log_is_another(redis_url: str, caplog: pytest.LogCaptureFixture):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        fates.write([Mark(CHARGE, range(20), Fate.DONE)])
        accounts, metadata = Accounts(fates), commit_note(fates.state().epoch, "id")
        accounts.join(CHARGE, 0)
        accounts.raise_reached({CHARGE: 20})
        now = [0.0]
        for lie in ("end", "id"):
            kafka: Any = Kafka(0, 20, 20, metadata)
            found = beginnings(kafka, fates, clock=lambda: now[0])
            found.add([("orders", 0)])
            kafka.high, kafka.topic_ids = (3, {"orders": "id"}) if lie == "end" else (20, {"orders": "other"})
            while found._open[("orders", 0)].suspected is None:
                assert list(found.advance(kafka)) == []
            kafka.high, kafka.topic_ids = 20, {"orders": "id"}
            now[0] += 1
            while not kafka.sought:
                list(found.advance(kafka))
            assert kafka.sought == {0: 20}, lie
        assert "truncated" not in caplog.text
        assert "recreated" not in caplog.text
        # Two say the same.
        kafka = Kafka(0, 3, 20, metadata)
        assert start_of(fates, kafka) == 3
        assert caplog.text.count("the log was truncated") == 1


@pytest.mark.slow
def test_of_topics_together_each_is_told_apart_from_one_that_is_gone(stack: Stack):
    stack.make_topics("orders")
    there = stack.topic("orders")
    settings = Settings(FileSettings(), EnvironmentSettings(), "", {"bootstrap.servers": stack.kafka})
    catalog = TopicCatalog(settings, [there])
    untold = catalog.identify({there, "gone"})
    assert (list(catalog.topic_ids), list(untold)) == ([there], ["gone"])
    with pytest.raises(KafkaUnavailable, match="gone"):
        catalog.id_of("gone")


def test_a_look_over_much_that_is_settled_is_made_in_steps(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    # No time for a second step in a turn of the loop.
    monkeypatch.setattr("bridge.consumer.read_position.SEARCH_WITHIN", -1)
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        for first in range(0, 4 * STEP, STEP):
            fates.write([Mark(CHARGE, range(first, first + STEP), Fate.DONE)])
        kafka: Any = Kafka(0, 4 * STEP + 5, 0, "")
        found = beginnings(kafka, fates)
        found.add([("orders", 0)])
        steps = 0
        while not kafka.sought:
            list(found.advance(kafka))
            steps += 1
        assert kafka.sought == {0: 4 * STEP}
        assert steps > 4


def test_a_ledger_that_went_back_says_so_by_how_far_it_had_come(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        accounts, metadata = Accounts(fates), commit_note(fates.state().epoch)
        accounts.join(CHARGE, 3)
        accounts.raise_reached({CHARGE: 12})
        # All that was written since is gone, a page too: nothing is open on any page that is there.
        assert start_of(fates, Kafka(0, 30, 20, metadata)) == 12
        assert accounts.read_progress([CHARGE])[0].reached == 12
        # A commit that no bridge made is a person's: what it passes over is not read.
        accounts.raise_reached({CHARGE: 12})
        assert start_of(fates, Kafka(0, 30, 20, "")) == 20


def test_a_ledger_that_was_wiped_knows_what_it_has_lost_where_that_was_only_handed_off(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        accounts = Accounts(fates)
        assert start_of(fates, Kafka(0, 30, 20, commit_note("another")), "completion") == 20
        assert accounts.read_progress([CHARGE])[0].lost is None
        assert start_of(fates, Kafka(0, 30, 20, commit_note("another")), "handoff") == 20
        assert accounts.read_progress([CHARGE])[0].lost == 20


@pytest.mark.parametrize(("before", "now", "lost"), [("handoff", "completion", 20), ("completion", "handoff", None)])
def test_what_a_wiped_ledger_has_lost_depends_on_how_it_was_committed_and_not_on_a_setting_that_was_changed_since(
    redis_url: str, before: str, now: str, lost: int | None
):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        metadata = commit_note("another", "id", before)
        # Before a bridge has started again, and after.
        extent = Extent("orders", 0, 0, 30, 20, noted_epoch(metadata), noted_commit_mode(metadata))
        assert find_wiped_end(settings_of(now), fates, extent, [CHARGE]) == (lost or 0)
        assert start_of(fates, Kafka(0, 30, 20, metadata), now) == 20
        assert Accounts(fates).read_progress([CHARGE])[0].lost == lost
        # A commit of an older version does not say it.
        old = Extent("orders", 0, 0, 30, 20, "another")
        assert find_wiped_end(settings_of("handoff"), fates, old, [CHARGE]) == 20


@pytest.mark.parametrize(
    ("before", "below", "now", "mode"),
    [
        ("handoff", Fate.HANDED, "completion", "handoff"),
        # An older bridge, another program, or a commit that Kafka forgot.
        ("", Fate.HANDED, "completion", "handoff"),
        ("handoff", Fate.DONE, "completion", "completion"),
        ("handoff", Fate.PARKED, "completion", "completion"),
        # Sent back by a person since.
        ("completion", Fate.HANDED, "completion", "completion"),
        ("completion", Fate.DONE, "handoff", "handoff"),
    ],
)
def test_a_commit_says_handoff_while_deliveries_below_it_are_queued_since_before_the_switch_to_completion(
    redis_url: str, before: str, below: Fate, now: str, mode: str
):
    place = ("orders", 0)
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        fates.write([Mark(CHARGE, range(STEP + 5), Fate.DONE)])
        fates.write([Push(CHARGE, [STEP + 5], "celery", [b"entry"])])
        if below is not Fate.HANDED:
            fates.write([Mark(CHARGE, [STEP + 5], below)])
        committed = STEP + 6
        Accounts(fates).join(CHARGE, 0)
        Accounts(fates).raise_reached({CHARGE: committed})
        kafka: Any = Kafka(0, committed + 1, committed, commit_note(fates.state().epoch, "id", before))
        starts = beginnings(kafka, fates, now)
        starts.add([place])
        while not kafka.sought:
            list(starts.advance(kafka))
        assert kafka.sought == {0: committed}
        starts._assignment.get_partition(place).pass_to(committed + 1)
        said: list[str] = []
        consumer: Any = SimpleNamespace(
            store_offsets=lambda offsets: said.extend(each.metadata for each in offsets), commit=lambda **_: None
        )
        commits = OffsetCommits(starts._assignment, fates, False, BridgeMetrics())
        commits.read_ledger_state()
        assert commits.commit(consumer, set(), wait=False) is None
        assert [noted_commit_mode(each) for each in said] == [mode]
        # The setting counts again once a start finds nothing queued below.
        fates.write([Mark(CHARGE, [STEP + 5], Fate.DONE)])
        kafka.sought.clear()
        starts.add([place])
        while not kafka.sought:
            list(starts.advance(kafka))
        assert starts._assignment.find_commit_mode(place) == now


def test_a_ledger_set_back_to_before_it_knew_of_a_partition_has_lost_what_was_handed_off(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        metadata = commit_note(fates.state().epoch)
        assert start_of(fates, Kafka(0, 30, 20, metadata), "completion") == 20
        (known,) = Accounts(fates).read_progress([CHARGE])
        assert (known.reached, known.lost) == (20, None)
    with closing(Ledger(redis_url, "cluster", "another")) as fates:
        assert start_of(fates, Kafka(0, 30, 20, metadata), "handoff") == 20
        assert Accounts(fates).read_progress([CHARGE])[0].lost == 20
        # Once it is known, it is as any other.
        assert start_of(fates, Kafka(0, 30, 20, metadata), "handoff") == 20


def test_a_handler_that_is_younger_than_what_the_ledger_was_set_back_to_is_given_all_since(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        accounts, metadata = Accounts(fates), commit_note(fates.state().epoch)
        before = CHARGE._replace(handler="before")
        accounts.join(before, 0)
        accounts.raise_reached({before: 12})
        assert start_of(fates, Kafka(0, 30, 20, metadata), "handoff") == 12
        assert accounts.read_progress([CHARGE])[0][:] == (12, 12, None)
    with closing(Ledger(redis_url, "cluster", "another")) as fates:
        # Where nothing was lost, one that is new begins where the group is.
        accounts = Accounts(fates)
        accounts.join(before, 0)
        accounts.raise_reached({before: 20})
        assert start_of(fates, Kafka(0, 30, 20, metadata), "handoff") == 20
        assert accounts.read_progress([CHARGE])[0][:] == (20, 20, None)


def test_what_is_read_again_gives_a_ledger_no_credit_that_it_never_earned(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        kafka: Any = Kafka(0, 30, 20, "")
        assignment = assignment_of(kafka, fates, "completion")
        accounts, place = Accounts(fates), ("orders", 0)
        assignment.add_place(place)
        assignment.restart(place, 25)
        assert accounts.read_progress([CHARGE])[0][:] == (None, None, None)
        accounts.join(CHARGE, 0)
        for reached, found in ((12, 12), (25, 25), (28, 25)):
            accounts.raise_reached({CHARGE: reached})
            assignment.restart(place, 25)
            assert accounts.read_progress([CHARGE])[0].reached == found


def test_the_ledger_knows_what_is_safe_before_it_is_committed_and_also_what_was_read_again(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        seen: list[tuple[int, int | None, str | None]] = []
        place = ("orders", 0)
        one = SimpleNamespace(place=place, safe=lambda: 5, reached=-1, accounts={"charge": CHARGE})
        one.note_reached = lambda offset: setattr(one, "reached", offset)

        class Assigned(dict[Any, Any]):
            partitions = (one,)
            committed: ClassVar[dict[Place, int]] = {place: 9}
            logs: ClassVar[dict[Place, KnownLog]] = {place: KnownLog("id", 2)}

            def epoch_below(self, place: Place, offset: int) -> int:
                return -1

            def find_commit_mode(self, place: Place) -> str:
                return "completion"

        class Consumer:
            def store_offsets(self, offsets: list[TopicPartition]) -> None:
                (known,) = Accounts(fates).read_progress([CHARGE])
                seen.extend((each.offset, known.reached, each.metadata) for each in offsets)

            def commit(self, **options: Any) -> None:
                pass

        assigned: Any = Assigned({place: one})
        consumer: Any = Consumer()
        commits = OffsetCommits(assigned, fates, False, BridgeMetrics())
        commits.commit(consumer, set(), wait=False)
        assert (Accounts(fates).read_progress([CHARGE])[0].reached, seen) == (5, [])
        one.safe = lambda: 12
        commits.commit(consumer, set(), wait=False)
        assert seen == [(12, 12, commit_note(fates.state().epoch, assigned.logs[place].id, "completion"))]


def test_a_ledger_set_back_while_it_is_looked_at_is_looked_at_anew(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates, closing(Ledger(redis_url, "cluster", "x")) as other:
        other.write([Mark(CHARGE, [1], Fate.DONE)])
        accounts, metadata = Accounts(fates), commit_note(fates.state().epoch)
        accounts.join(CHARGE, 0)
        accounts.raise_reached({CHARGE: 20})
        find = Ledger.find_many

        def restored(self: Ledger, *asked: Any) -> list[int | None]:
            monkeypatch.setattr(Ledger, "find_many", find)
            accounts.raise_reached({CHARGE: 12})
            with fates.asking("set it back") as pipe:
                pipe.decr("ledger:writes")
                pipe.execute()
            return find(self, *asked)

        monkeypatch.setattr(Ledger, "find_many", restored)
        assert start_of(fates, Kafka(0, 30, 20, metadata)) == 12
        assert accounts.read_progress([CHARGE])[0].reached == 12


def test_a_ledger_set_back_between_the_look_at_it_and_the_commit_is_given_no_credit(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        fates.write([Mark(CHARGE, [1], Fate.DONE)])
        Accounts(fates).raise_reached({CHARGE: 5})
        place = ("orders", 0)

        def safe() -> int:
            # After the look at the ledger, and before it is told.
            with fates.asking("set it back") as pipe:
                pipe.set("ledger:writes", 0)
                pipe.execute()
            return 12

        one = SimpleNamespace(place=place, safe=safe, reached=-1, accounts={"charge": CHARGE})
        one.note_reached = lambda offset: setattr(one, "reached", offset)
        assigned: Any = SimpleNamespace(partitions=[one], committed={place: 9})
        commits, consumer = OffsetCommits(assigned, fates, False, BridgeMetrics()), None
        doubt = commits.commit(consumer, set(), wait=False)  # type: ignore[arg-type]
        assert "lost writes" in str(doubt)
        assert (Accounts(fates).read_progress([CHARGE])[0].reached, one.reached) == (5, -1)


def test_a_group_whose_offsets_kafka_forgot_goes_on_where_the_ledger_knows_it_to_be(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        nothing = -1001
        # A group that never was here begins as Kafka is told to.
        assert start_of(fates, Kafka(0, 30, nothing, "")) == 0
        # Its pages have expired; how far it had come has not.
        Accounts(fates).raise_reached({CHARGE: 20})
        assert start_of(fates, Kafka(0, 30, nothing, "")) == 20
        assert start_of(fates, Kafka(25, 30, nothing, "")) == 25
        # A log that ends before is another.
        Accounts(fates).raise_reached({CHARGE: 31})
        assert start_of(fates, Kafka(0, 30, nothing, "")) == 0


def test_what_an_external_commit_passes_over_is_discarded_as_by_a_reset(
    redis_url: str, caplog: pytest.LogCaptureFixture
):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        accounts = Accounts(fates)
        accounts.join(CHARGE, 0)
        accounts.raise_reached({CHARGE: 20})
        fates.write(
            [Mark(CHARGE, range(20), Fate.DONE), Mark(CHARGE, [22], Fate.HANDED), Mark(CHARGE, [23], Fate.PARKED)]
        )
        # Somebody has skipped 20 to 29 with Kafka's own tool.
        assert start_of(fates, Kafka(0, 40, 30, "")) == 30
        found = [Fate(fate) for fate in fates.fates(CHARGE, 19, 30)]
        skipped = [Fate.DISCARDED]
        assert found == [Fate.DONE, *skipped * 2, Fate.HANDED, Fate.PARKED, *skipped * 6, Fate.OPEN]
        assert (
            "passes over 8 deliveries of charge that had not run, from offset 20 on: they are discarded" in caplog.text
        )
        # Said once, and the same again; and what was lost below is no part of it.
        assert start_of(fates, Kafka(0, 40, 30, "")) == 30
        assert caplog.text.count("passes over") == 1
        fates.forget(CHARGE, 7, 7)
        assert start_of(fates, Kafka(0, 40, 30, "")) == 7
        assert "the ledger has no fate of offset 7 for charge" in caplog.text


def test_what_a_consumer_that_is_no_bridge_has_read_is_not_discarded(redis_url: str, caplog: pytest.LogCaptureFixture):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        accounts = Accounts(fates)
        accounts.join(CHARGE, 0)
        accounts.raise_reached({CHARGE: 20})
        fates.write([Mark(CHARGE, range(20), Fate.DONE)])
        # kafka-console-consumer with the group's id: it says the leader epoch of what it read.
        assert start_of(fates, Kafka(0, 40, 30, "", epoch=0)) == 20
        assert [Fate(fate) for fate in fates.fates(CHARGE, 20, 29)] == [Fate.OPEN] * 10
        assert "a consumer that is no bridge has read and committed with this group's id" in caplog.text
        assert "discarded" not in caplog.text


def test_why_something_below_the_commit_is_read_again_is_said_as_it_is(
    redis_url: str, caplog: pytest.LogCaptureFixture
):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        accounts, metadata = Accounts(fates), commit_note(fates.state().epoch, "id")
        accounts.join(CHARGE, 0)
        fates.write([Mark(CHARGE, range(20), Fate.DONE)])
        accounts.join(CHARGE._replace(handler="notify"), 0)
        # The group went on without it, as after a roll-back.
        accounts.raise_reached({CHARGE: 20, CHARGE._replace(handler="notify"): 30})
        assert start_of(fates, Kafka(0, 40, 30, metadata)) == 20
        assert "charge has had nothing from offset 20 on (the group went on without this handler" in caplog.text
        accounts.raise_reached({CHARGE: 30})
        assert start_of(fates, Kafka(0, 40, 30, metadata)) == 20
        assert "the ledger has no fate of offset 20 for charge" in caplog.text
        assert "has lost" not in caplog.text


def test_a_handler_that_was_away_is_no_sign_of_a_ledger_that_went_back(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge")) as fates:
        accounts, metadata = Accounts(fates), commit_note(fates.state().epoch)
        for name, reached in (("charge", 500_000), ("notify", 70)):
            account = CHARGE._replace(handler=name)
            accounts.join(account, 0)
            accounts.raise_reached({account: reached})
        assert start_of(fates, Kafka(0, 600_000, 500_000, metadata)) == 500_000


def test_a_topic_that_was_quiet_until_its_page_expired_is_not_run_again(stack: Stack):
    choose(stack, {"orders": {"commit": "handoff"}})
    stack.make_topics("orders")
    bridge = stack.bridge()
    stack.produce("orders", *range(20))
    eventually(lambda: stack.committed("orders") == 20, 15)
    with ledger(stack, "orders") as (fates, account), stack.redis() as client:
        fates.write([Mark(account, range(20), Fate.DONE)])
        client.delete(fates.page_key(account, 0))
        client.hset(ledger_key(fates.cluster, fates.group, "pages", *account), "0", time.time() - 1)
    stack.produce("orders", 20)
    eventually(lambda: stack.committed("orders") == 21, 15)
    assert audit(stack)["unaccounted"] == 0
    assert bridge.terminate() == 0
    again = stack.bridge()
    stack.produce("orders", 21)
    eventually(lambda: stack.committed("orders") == 22, 15)
    assert stack.waiting() == 22
    assert "read again" not in again.text


@pytest.mark.slow
def test_a_ledger_that_does_not_answer_when_partitions_are_assigned_is_asked_when_it_does(
    stack: Stack, mortal_redis: Any
):
    stack.environ |= {"CELERY_BROKER_URL": mortal_redis.fresh_url()}
    stack.broker = stack.environ["CELERY_BROKER_URL"]
    choose(stack, {"orders": {"commit": "handoff"}})
    stack.make_topics("orders")
    stack.produce("orders", *range(20))
    bridge = stack.bridge()
    eventually(lambda: stack.committed("orders") == 20, 15)
    assert bridge.terminate() == 0
    with ledger(stack, "orders") as (fates, account):
        # As if Redis had lost them.
        fates.forget(account, 5, 7)
        mortal_redis.freeze()
        try:
            late = stack.bridge(wait=False)
            # What it asks Redis before has no answer either, each for ten seconds.
            late.says("assigned: ", 90)
            late.says("cannot be handed off")
        finally:
            mortal_redis.thaw()
        eventually(lambda: stack.waiting() == 23, 30, "what was lost is handed off again")
        assert fates.fates(account, 0, 19) == bytes([Fate.HANDED] * 20)
    assert audit(stack)["unaccounted"] == 0


def test_no_page_expires_on_which_the_commit_still_waits_for_something(redis_url: str):
    with closing(Ledger(redis_url, "cluster", "bridge", keep=1)) as fates, redis.Redis.from_url(redis_url) as client:
        assignment = assignment_of(Kafka(0, 30, 0, ""), fates, "completion")
        assignment.add_place(("orders", 0))
        assignment.begin(("orders", 0), 10, 0, None)
        partition = assignment.get_partition(("orders", 0))
        partition.offsets.read([10, 11, 12])
        fates.write([Push(CHARGE, [10, 11, 12], "celery", [b"entry"]), Mark(CHARGE, [3 * PAGE], Fate.DONE)])
        keys = [fates.page_key(CHARGE, 0), fates.index_key(CHARGE), fates.page_key(CHARGE, 3)]
        for each in keys:
            client.expire(each, 100)
        renew_ledger_pages(fates, assignment.partitions)
        assert [client.ttl(each) > 80_000 for each in keys] == [True, True, False]
