"""What is promised of the pictures of an hour and a day: each strip has its own scale, and one time axis is for all."""

import re
from datetime import datetime

import pytest

from bridge.console import template_filters
from bridge.console.pages import charts
from tests.desk.letters import HANDLER
from tests.web.status_answer import WORKER, counts, status

#: When the first minute of the counts begins is 02:00; this is in the last of them.
NOW = int(datetime.fromisoformat("2026-11-21T02:59:30+00:00").timestamp() * 1000)


def shown(found, now):
    """The picture of an hour, which is known."""
    made = charts.build_hour_chart(found, now)
    assert made is not None
    return made


def day_of(found, letters):
    """That of a day."""
    made = charts.build_day_chart(found, letters, NOW)
    assert made is not None
    return made


def heights(path):
    """The heights of a path's bars, by their slot."""
    return {int(x) // charts.SLOT_WIDTH: int(high) for x, high in re.findall(r"M(\d+) 100v-(\d+)", path)}


def test_an_hour_has_four_strips_of_what_all_handlers_did_each_with_its_own_scale():
    minutes = {"handled": [1000, 4000, 10], "failed": [3, 0, 0], "dead": [0, 1, 0]}
    other = {**counts(minutes={"handled": [0, 1000, 0]}), "handler": "shop.other"}
    hour = shown(status(counts=[counts(minutes=minutes), other]), NOW)
    assert [each.name for each in hour.strips] == ["Handled", "Attempts failed", "Dead letters", "Replayed"]
    handled, failed, dead, replayed = hour.strips
    assert (handled.last, handled.most, handled.total) == (5000, 5000, 6010)
    assert heights(handled.path) == {57: 20, 58: 100, 59: 3}, "what is not zero is seen"
    assert heights(failed.path) == {57: 100}
    assert heights(dead.path) == {58: 100}
    assert replayed.path == ""
    assert handled.said == "Handled by the minute: 6,010 in 60 minutes, at most 5,000 in one, 10 in this one"


def test_all_of_an_hour_stands_on_the_time_axis_of_who_counted():
    hour = shown(status(), NOW + 3_600_000)
    assert hour.ticks[0] == (0, "02:00")
    assert hour.ticks[-1] == (99, "02:59")
    assert hour.wide == 60 * charts.SLOT_WIDTH


def test_when_a_version_came_up_and_a_topic_was_halted_is_marked_where_it_was():
    halted = {"orders": {"since": "2026-11-21T02:15:00+00:00", "by": "ann", "why": "x"}}
    older = {**WORKER, "started": "2026-11-21T02:40:00Z"}
    before = {**WORKER, "started": "2026-11-21T01:59:00Z", "handler_versions": {HANDLER: "1.0"}}
    hour = shown(status(halted=halted, workers={"a": older, "b": WORKER, "c": before}), NOW)
    assert [(mark.what, mark.x) for mark in hour.marks] == [("orders halted", 60.0), ("1.4.2 came up", 124.0)]


def test_what_is_not_known_is_not_drawn_as_nothing():
    assert charts.build_hour_chart(status(counts=None), NOW) is None
    assert charts.build_day_chart(status(counts=None), None, NOW) is None
    day = day_of(status(counts=None), [0] * 22 + [7, 1])
    assert [(each.name, each.most) for each in day.strips] == [("Dead letters", 7)]
    assert charts.build_handler_strip(status(), "orders", "shop.other") is None


def test_of_a_group_without_handlers_a_day_is_empty():
    day = day_of(status(counts=[]), None)
    assert [each.total for each in day.strips] == [0] * 4


@pytest.mark.parametrize(
    ("count", "shown"),
    [(9_999_999, "9,999,999"), (10_000_000, "10.0 M"), (153_140_000, "153.1 M"), (12_300_000_000, "12.3 G")],
)
def test_a_number_is_whole_as_long_as_it_can_be_read(count, shown):
    assert template_filters.large(count) == shown


@pytest.mark.parametrize(("minute", "shown"), [(1, "0.017"), (20, "0.33"), (120, "2"), (8_520, "142")])
def test_what_is_handled_in_a_minute_is_said_by_the_second(minute, shown):
    assert template_filters.a_second(minute) == shown
