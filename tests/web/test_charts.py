"""What is promised of the pictures of an hour and a day: each strip has its own scale, and one time axis is for all."""

import re
from datetime import datetime

import pytest

from bridge.console import template_filters
from bridge.console.pages import charts
from bridge.console.pages.chart_options import DAY, HOUR, QUARTER, RANGES, WEEK, ChartControls, ChartOptions
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


def test_what_is_chosen_of_charts_is_one_word_each_and_what_is_not_known_changes_nothing():
    for words in ("", "15m", "7d", "took-24h", "shared", "table", "15m.7d.took-7d.shared.table"):
        assert ChartOptions.parse(words).text == words
    assert ChartOptions.parse("15m.x.<script>.24h.1h") == ChartOptions(minutes=QUARTER)


def test_a_link_changes_one_choice_and_keeps_the_others_and_the_rest_of_the_address():
    controls = ChartControls(ChartOptions.parse("7d.shared"), "/", [("show", "all"), ("charts", "7d.shared")])
    assert [(each.words, each.current) for each in controls.minutes] == [("15 min", False), ("1 h", True)]
    assert controls.minutes[0].address == "/?show=all&charts=15m.7d.shared"
    assert [each.address for each in controls.hours] == ["/?show=all&charts=shared", "/?show=all&charts=7d.shared"]
    assert controls.scales[0].address == "/?show=all&charts=7d"
    assert [each.words for each in controls.durations] == ["15 min", "1 h", "24 h", "7 d"]
    assert ChartControls(ChartOptions.parse("shared"), "/").scales[0].address == "/"


def test_a_quarter_of_an_hour_has_the_last_minutes_of_the_hour():
    found = status(counts=[counts(minutes={"handled": [7, *[1] * 14]})])
    quarter = charts.build_hour_chart(found, NOW, options=ChartOptions(minutes=QUARTER))
    assert quarter is not None
    assert (quarter.strips[0].total, quarter.strips[0].most, quarter.unit_count) == (21, 7, 15)
    assert quarter.ticks == [(0, "02:45"), (33, "02:50"), (67, "02:55"), (99, "02:59")]
    assert quarter.describe_bar(quarter.strips[0], 0) == "02:45 UTC: 7"


def test_a_week_has_the_hours_of_redis_with_their_days_and_the_dead_letters_of_the_database():
    handled = [0] * 100 + [5] * 68
    week = charts.build_day_chart(
        status(), [0] * 167 + [9], NOW, options=ChartOptions(hours=WEEK), week={"handled": handled, "dead": [0] * 168}
    )
    assert week is not None
    assert [(each.name, each.total) for each in week.strips] == [("Handled", 340), ("Dead letters", 9)]
    assert week.describe_bar(week.strips[1], 167) == "22 Nov, 01:00 UTC: 9"
    assert [words for _, words in week.ticks] == ["16 Nov", "18 Nov", "20 Nov", "22 Nov"]
    assert week.unit_count == 168
    alone = charts.build_day_chart(status(), [1] * 168, NOW, options=ChartOptions(hours=WEEK), week=None)
    assert alone is not None
    assert [each.name for each in alone.strips] == ["Dead letters"], "what Redis does not say is not drawn as nothing"


def test_on_one_scale_the_heights_of_all_counts_compare():
    minutes = {"handled": [1000, 4000, 10], "failed": [400, 0, 0]}
    hour = charts.build_hour_chart(status(counts=[counts(minutes=minutes)]), NOW, options=ChartOptions(shared=True))
    assert hour is not None
    assert hour.shared == 4000
    assert heights(hour.strips[1].path) == {57: 10}
    assert shown(status(counts=[counts(minutes=minutes)]), NOW).shared is None


def test_a_level_has_a_scale_of_its_own_and_a_time_without_a_bridge_is_a_gap():
    values = (*[None] * 57, 40, 0, None)
    level = charts.ChartLevel("Backlog", values)
    hour = charts.build_hour_chart(status(), NOW, options=ChartOptions(shared=True), level=level)
    assert hour is not None
    backlog = hour.strips[-1]
    assert (backlog.name, backlog.last, backlog.most, heights(backlog.path)) == ("Backlog", 0, 40, {57: 100})
    assert backlog.said == "Backlog, the highest of each minute: at most 40, 0 at last, not known for 58 minutes"
    assert hour.describe_bar(backlog, 59) == "02:59 UTC: not known"
    time, row = hour.list_rows()[1]
    assert (time, row[0], row[-1]) == ("02:58 UTC", 120, 0)
    never = charts.build_hour_chart(status(), NOW, level=charts.ChartLevel("Backlog", (None,) * 60))
    assert never is not None
    assert "never measured" in never.strips[-1].said


@pytest.mark.parametrize("span", RANGES)
def test_the_labels_of_a_time_axis_are_a_few_in_order(span):
    places = [place for place, _ in charts.list_ticks(NOW - 30_000 - 59 * 60_000, span)]
    assert places == sorted(places)
    assert 3 <= len(places) <= 5
    assert all(0 <= place <= 99 for place in places)
    assert span in (QUARTER, HOUR, DAY, WEEK)
