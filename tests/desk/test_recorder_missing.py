"""A recorder that is gone is missed, and one that never was is not; on a real Kafka and Redis."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.deadletters.questions.recorders import Recorders, recorders
from bridge.deadletters.recorder.announcing import announcing
from bridge.ledger import Ledger
from bridge.ledger.members import ANNOUNCED_FOR, Members
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.desk.recorders import bury, has, recorder
from tests.processes import Stack, eventually, pytest_runtest_makereport, stack
from tests.promises import command, json_of

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
    return recorders(settings(stack)).gone_since


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
        assert Members(found, "recorders").last_seen() == {}


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
    found = Ledger.of(settings)
    assert found is not None
    with closing(found):
        yield found


@contextmanager
def announced(settings: Settings, alive: bool) -> Iterator[None]:
    """A recorder of these settings whose loop turns, or hangs."""
    stopping, desk = threading.Event(), SimpleNamespace(settings=settings)
    do: Any = announcing(lambda: alive, lambda: "one").do
    thread = threading.Thread(target=do, args=(desk, stopping))
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
        living = Members(found, "recorders")
        with announced(shop, alive=False), announced(other, alive=True):
            with ledger(other) as others:
                eventually(lambda: Members(others, "recorders").living())
            assert living.living() == {}
        assert living.last_seen() == {}
        with announced(shop, alive=True):
            eventually(living.living)
        assert [*living.last_seen()] == ["group shop"]


@pytest.mark.parametrize("broker", ["memory://", "redis://127.0.0.1:1/0"])
def test_where_redis_cannot_say_nothing_is_said(broker: str):
    asked = Settings(FileSettings(), EnvironmentSettings(), broker, {})
    assert recorders(asked) == Recorders(None, wanted=True)
