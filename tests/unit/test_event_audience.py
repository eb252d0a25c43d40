"""Whether somebody listens to task events is asked now and then, and known in between."""

import pytest

from lossless.transport.event_audience import LOOK_EVERY, EventAudience


def heard(*listeners: int | None, at: float = 0.0) -> EventAudience:
    audience = EventAudience()
    for count in listeners:
        audience.note(count, at)
    return audience


@pytest.mark.parametrize(
    ("listeners", "now", "wanted"),
    [
        ((), 0.0, True),
        ((1,), 0.1, True),
        ((None,), 0.1, True),
        ((0,), 0.1, False),
        ((0,), LOOK_EVERY - 0.01, False),
        ((0,), LOOK_EVERY, True),
        ((0, 2), 0.1, True),
        ((2, 0), 0.1, False),
        # What failed tells nothing.
        ((0, None), 0.1, False),
        ((3, None), 0.1, True),
    ],
)
def test_an_event_is_sent_unless_nobody_heard_the_last_a_moment_ago(
    listeners: tuple[int | None, ...], now: float, wanted: bool
):
    assert heard(*listeners).wants(now) is wanted


def test_only_who_comes_after_nobody_has_come():
    audience = EventAudience()
    assert [audience.note(count, 0.0) for count in (1, 0, 0, None, 2, 3, 0, 1)] == [False] * 4 + [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("listeners", "now", "in_flight", "asks"),
    [
        ((), 0.0, True, False),
        ((1,), 0.0, True, False),
        ((0,), LOOK_EVERY / 2, False, True),
        ((0,), 10 * LOOK_EVERY, True, True),
        # The next event asks for itself.
        ((0,), LOOK_EVERY, False, False),
        ((0, 1), LOOK_EVERY / 2, True, False),
    ],
)
def test_a_heartbeat_asks_where_who_has_come_would_miss_something(
    listeners: tuple[int, ...], now: float, in_flight: bool, asks: bool
):
    assert heard(*listeners).should_ask(now, in_flight) is asks


def test_while_nobody_listens_one_event_a_second_is_sent_however_many_there_are():
    audience, sent = EventAudience(), 0
    for tick in range(10_000):
        now = tick / 1_000
        if audience.wants(now):
            sent += 1
            audience.note(0, now)
    assert sent == 10
