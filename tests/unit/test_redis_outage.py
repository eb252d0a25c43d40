"""How long what a failing Redis has stopped stays stopped, and what the log says of it."""

import logging
from dataclasses import dataclass, field

import pytest
import redis
from kombu.exceptions import OperationalError

from lossless.transport import redis_outage
from lossless.transport.redis_outage import RETRY_INTERVAL, RedisOutage, describe_redis_error, is_unavailable

FULL = redis.ResponseError("OOM command not allowed")
AWAY = redis.ConnectionError("refused")


@dataclass
class Keeper:
    """One that knows when Redis answered last."""

    answered_at: float = 0.0
    probes: list[None] = field(default_factory=list)

    def probe(self) -> None:
        self.probes.append(None)

    def answered_since(self, moment: float) -> bool:
        return self.answered_at >= moment

    def explained(self, error: Exception) -> str:
        return str(error)


@dataclass
class Clock:
    now: float = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(redis_outage, "monotonic", lambda: clock.now)
    return clock


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (AWAY, True),
        (redis.TimeoutError(), True),
        (OSError(), True),
        (redis.ReadOnlyError("READONLY"), True),
        (redis.ResponseError("script: READONLY You can't write against a read only replica"), True),
        (FULL, False),
        (redis.ResponseError("WRONGTYPE"), False),
    ],
)
def test_a_redis_that_is_away_is_told_from_one_that_refuses(error: Exception, away: bool) -> None:
    assert is_unavailable(error) is away


def test_a_redis_that_was_away_is_used_again_as_soon_as_it_has_answered(clock: Clock) -> None:
    keeper, outage = Keeper(), RedisOutage("Taking")
    assert not outage.lasts(keeper)
    outage.begins(AWAY, keeper)
    assert keeper.probes, "somebody finds out"
    clock.now += 60
    assert outage.lasts(keeper)
    keeper.answered_at = clock.now
    assert not outage.lasts(keeper)


def test_a_redis_that_answers_and_refuses_is_tried_again_after_a_pause(clock: Clock) -> None:
    keeper, outage = Keeper(answered_at=1e9), RedisOutage("Taking")
    outage.begins(FULL, keeper)
    assert outage.lasts(keeper)
    clock.now += RETRY_INTERVAL
    assert not outage.lasts(keeper)


def test_where_nobody_waits_an_outage_out_nothing_is_held_up(clock: Clock) -> None:
    outage = RedisOutage("Taking")
    outage.begins(AWAY, Keeper())
    assert not outage.lasts(None)


def test_an_outage_is_said_once_until_it_is_over(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    keeper, outage = Keeper(), RedisOutage("Taking messages")
    with caplog.at_level(logging.WARNING):
        for error in (AWAY, AWAY, FULL):
            outage.begins(error, keeper)
        outage.ends()
        outage.begins(FULL, keeper)
    assert [record.getMessage() for record in caplog.records] == [
        "Taking messages stopped: refused. It goes on as soon as Redis answers",
        *["Taking messages stopped: OOM command not allowed. It goes on as soon as that is fixed"] * 2,
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
            "Redis is full and refuses writes: raise its maxmemory or free memory "
            "(OutOfMemoryError: command not allowed when used memory > 'maxmemory')",
        ),
        (
            redis.ResponseError("@user_script: 7: -OOM command not allowed when used memory > 'maxmemory'."),
            "Redis is full and refuses writes: raise its maxmemory or free memory "
            "(ResponseError: @user_script: 7: -OOM command not allowed when used memory > 'maxmemory')",
        ),
        (
            OperationalError(
                "Command # 1 (LLEN bridge) of pipeline: command not allowed when used memory > 'maxmemory'."
            ),
            "Redis is full and refuses writes: raise its maxmemory or free memory (OperationalError: Command # 1 "
            "(LLEN bridge) of pipeline: command not allowed when used memory > 'maxmemory')",
        ),
        (
            redis.ResponseError("MISCONF Errors writing to the AOF file"),
            "Redis cannot save its data and refuses writes: see its log, and make room on its disk "
            "(ResponseError: MISCONF Errors writing to the AOF file)",
        ),
        (
            redis.BusyLoadingError("Redis is loading the dataset in memory"),
            "Redis loads its files after a start: wait (BusyLoadingError: Redis is loading the dataset in memory)",
        ),
        (
            redis.ReadOnlyError("You can't write against a read only replica."),
            "this Redis is a replica, or becomes one: connect to the primary "
            "(ReadOnlyError: You can't write against a read only replica)",
        ),
        (
            redis.ResponseError("NOREPLICAS Not enough good replicas to write."),
            "Redis refuses writes because too few replicas follow it: start them (INFO replication) "
            "(ResponseError: NOREPLICAS Not enough good replicas to write)",
        ),
        (
            redis.ResponseError("MISCONF Valkey is configured to save RDB snapshots, but it's unable to"),
            "Redis cannot save its data and refuses writes: see its log, and make room on its disk "
            "(ResponseError: MISCONF Valkey is configured to save RDB snapshots, but it's unable to)",
        ),
        (
            OperationalError("Command # 1 (LLEN) of pipeline caused error: Redis is loading the dataset in memory"),
            "Redis loads its files after a start: wait (OperationalError: Command # 1 (LLEN) of pipeline caused error: "
            "Redis is loading the dataset in memory)",
        ),
        (
            redis.ResponseError("@user_script: 7: -READONLY You can't write against a read only replica."),
            "this Redis is a replica, or becomes one: connect to the primary (ResponseError: @user_script: 7: "
            "-READONLY You can't write against a read only replica)",
        ),
        # RabbitMQ's, of queues that have such names.
        *(
            (OperationalError(f"NOT_FOUND - no queue '{name}'"), f"OperationalError: NOT_FOUND - no queue '{name}'")
            for name in ("UNLOADING", "LOADING", "MISCONF", "READONLY", "NOREPLICAS", "OOM")
        ),
        (redis.ConnectionError("Connection closed by server."), "ConnectionError: Connection closed by server"),
        (RuntimeError("of another kind"), "RuntimeError: of another kind"),
        (TimeoutError(), "TimeoutError()"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_redis_refuses_is_said_with_its_meaning_and_remedy_and_the_raw_words_in_brackets(
    error: Exception, words: str
) -> None:
    """The client's own repr is `server:ResponseError`, without a word of Redis."""
    assert describe_redis_error(error) == words
