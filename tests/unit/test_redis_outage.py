"""How long what a failing Redis has stopped stays stopped, and what the log says of it."""

import logging
from dataclasses import dataclass, field

import pytest
import redis

from lossless.transport import redis_outage
from lossless.transport.redis_outage import RETRY_INTERVAL, RedisOutage, is_unavailable

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
        *["Taking messages stopped: OOM command not allowed. It goes on as soon as that is mended"] * 2,
    ]
