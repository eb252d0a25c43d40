"""A recorder that is gone is missed, and one that never was is not; on a real Kafka and Redis."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis

from bridge.deadletters.inspection.recorder_presence import RecorderPresence, read_recorder_presence
from bridge.deadletters.recorder.recorder_heartbeat import RecorderMembership
from bridge.errors import RecordedElsewhere
from bridge.ledger import Ledger
from bridge.ledger.group_members import ANNOUNCED_FOR, GroupMembers
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.delivery_checks import command, json_of
from tests.desk.recorders import bury, has, recorder
from tests.processes import Stack, eventually, pytest_runtest_makereport, stack

__all__ = ["pytest_runtest_makereport", "stack"]

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture
def desk(stack: Stack) -> Stack:
    """A stack with a topic, its dead letters' topic, and a database that is empty yet."""
    stack.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{stack.folder}/letters.db"
    stack.make_topics("orders", "orders.dlq")
    return stack


def settings(stack: Stack) -> Settings:
    return Settings(FileSettings(), EnvironmentSettings(BRIDGE_GROUP=stack.environ["BRIDGE_GROUP"]), stack.broker, {})


def said(stack: Stack) -> list[str]:
    return [each for each in json_of(stack, "status")["problems"] if "record`" in each]


def gone_since(stack: Stack) -> float | None:
    return read_recorder_presence(settings(stack)).gone_since


def test_a_recorder_that_was_killed_is_missed_within_seconds_and_one_that_is_back_is_not(desk: Stack):
    bury(desk, range(3))
    process = recorder(desk)
    has(desk.environ["DEADLETTERS_DATABASE_URL"], 3)
    assert said(desk) == []
    before = time.time()
    process.kill()
    since = eventually(lambda: gone_since(desk), ANNOUNCED_FOR + 20, "it is missed")
    # Redis tells whole seconds.
    assert before - 2 - ANNOUNCED_FOR < since < time.time()
    bury(desk, range(3, 5))
    (sentence,) = said(desk)
    assert sentence.startswith("No recorder of dead letters runs, since ")
    assert f"2 records of {desk.topic('orders')}.dlq are not in the dead letters' database yet" in sentence
    assert "Start `bridge deadletters record`" in sentence
    for words in (["list"], ["groups"], ["stats"]):
        assert "No recorder of dead letters runs, since " in command(desk, "deadletters", *words)
    recorder(desk)
    assert said(desk) == []


def test_who_records_by_once_is_not_missed(desk: Stack):
    bury(desk, range(3))
    assert recorder(desk, "--once", wait=False).ends(60) == 0
    has(desk.environ["DEADLETTERS_DATABASE_URL"], 3)
    with ledger(settings(desk)) as found:
        assert GroupMembers(found, "recorders").last_seen() == {}


def test_one_that_is_frozen_is_missed_until_it_goes_on(desk: Stack):
    process = recorder(desk)
    process.signal(signal.SIGSTOP)
    eventually(lambda: gone_since(desk), ANNOUNCED_FOR + 20, "it is missed")
    process.signal(signal.SIGCONT)
    eventually(lambda: gone_since(desk) is None, 20, "it is there again")


def test_where_none_is_to_run_any_more_none_is_missed_until_one_is_started_again(desk: Stack):
    bury(desk, range(3))
    process = recorder(desk)
    has(desk.environ["DEADLETTERS_DATABASE_URL"], 3)
    assert "stop it, and say it again" in command(desk, "deadletters", "record", "--no-more", code=1)
    assert process.terminate() == 0
    eventually(lambda: gone_since(desk), ANNOUNCED_FOR + 20, "it is missed")
    bury(desk, range(3, 5))
    assert len(said(desk)) == 1
    command(desk, "deadletters", "record", "--no-more")
    assert said(desk) == []
    again = recorder(desk)
    has(desk.environ["DEADLETTERS_DATABASE_URL"], 5)
    again.kill()
    eventually(lambda: gone_since(desk), ANNOUNCED_FOR + 20, "it is missed")
    assert len(said(desk)) == 1


@contextmanager
def ledger(settings: Settings) -> Iterator[Ledger]:
    found = Ledger.from_settings(settings)
    assert found is not None
    with closing(found):
        yield found


@contextmanager
def announced(settings: Settings, alive: bool) -> Iterator[None]:
    """A recorder of these settings whose loop turns, or hangs."""
    stopping = threading.Event()
    do: Any = RecorderMembership(settings, lambda: alive, stays=True).duty.do
    thread = threading.Thread(target=do, args=(None, stopping))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(10)
        assert not thread.is_alive()


def test_one_whose_loop_hangs_does_not_say_that_it_lives_and_each_group_has_its_own(redis_url: str):
    shop, other = (
        Settings(FileSettings(), EnvironmentSettings(BRIDGE_GROUP=group), redis_url, {}) for group in ("shop", "other")
    )
    with ledger(shop) as found:
        living = GroupMembers(found, "recorders")
        with announced(shop, alive=False), announced(other, alive=True):
            with ledger(other) as others:
                eventually(lambda: GroupMembers(others, "recorders").living())
            assert living.living() == {}
        assert living.last_seen() == {}
        with announced(shop, alive=True):
            eventually(living.living)
        assert [*living.last_seen()] == ["group shop"]


def presences(url: str, stays: bool = True) -> list[RecorderMembership]:
    return [RecorderMembership(Settings(FileSettings(), EnvironmentSettings(), url, {}), stays=stays) for _ in range(2)]


def test_of_two_recorders_with_different_databases_the_second_refuses(redis_url: str):
    first, second = presences(redis_url)
    first.enter("one", "one.db")
    with pytest.raises(RecordedElsewhere, match=r"another database than this one \(two.db\)"):
        second.enter("two", "two.db")
    same, once = presences(redis_url, stays=False)
    same.enter("one", "one.db")
    with pytest.raises(RecordedElsewhere):
        once.enter("two", "two.db")
    with ledger(first._settings) as found:
        first.announce_recorder(found)
    assert first.refused is None


def test_without_a_ledger_a_recorder_says_once_that_it_cannot_notice_another_database(caplog: pytest.LogCaptureFixture):
    (alone, _) = presences("amqp://h")
    for _ in range(2):
        alone.enter("one", "one.db")
    (line,) = caplog.messages
    assert "another recorder of the group 'bridge' with another database than one.db is not noticed" in line


@pytest.mark.parametrize("away", [True, False])
def test_of_two_that_start_in_one_second_or_without_redis_one_ends_as_soon_as_it_is_known(
    redis_url: str, away: bool, monkeypatch: pytest.MonkeyPatch
):
    first, second = presences(redis_url)
    if away:
        monkeypatch.setattr(Ledger, "once", lambda *_: Ledger("redis://127.0.0.1:1/0", "", "bridge", patient=False))
        for presence, identity in ((first, "one"), (second, "two")):
            presence.enter(identity, f"{identity}.db")
    with ledger(first._settings) as found:
        # The first has its time, and the second is seen before it.
        first._since = 1.0
        if not away:
            second.enter("two", "two.db")
            first.enter("one", "one.db")
        for _ in range(2):
            first.announce_recorder(found)
            second.announce_recorder(found)
        assert [each.refused is None for each in (first, second)] == [True, False]
        # A wiped Redis changes nothing of who was there first.
        with redis.Redis.from_url(redis_url) as client:
            client.flushdb()
        second.refused = None
        second.announce_recorder(found)
        first.announce_recorder(found)
        second.announce_recorder(found)
        assert [each.refused is None for each in (first, second)] == [True, False]


def test_one_that_is_refused_while_it_records_ends(desk: Stack):
    bury(desk, range(1))
    with ledger(settings(desk)) as found:
        process = recorder(desk)
        has(desk.environ["DEADLETTERS_DATABASE_URL"], 1)
        GroupMembers(found, "recorders").announce("first", {"database": "another", "since": 1.0}, seconds=60)
        assert process.ends(30) == 1
    assert "records into another database than this one" in process.text


@pytest.mark.parametrize("broker", ["memory://", "redis://127.0.0.1:1/0"])
def test_where_redis_cannot_say_nothing_is_said(broker: str):
    asked = Settings(FileSettings(), EnvironmentSettings(), broker, {})
    assert read_recorder_presence(asked) == RecorderPresence(None, wanted=True)
