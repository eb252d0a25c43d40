"""What is promised of times: one format on every page, in UTC or in the reader's zone, and the same moment in both."""

import re
import time
from datetime import UTC, datetime

import pytest

from bridge.console import shown_zone
from bridge.console.pages.charts import build_hour_chart
from bridge.console.template_filters import format_iso_time, format_time
from bridge.deadletters.accounts.user_account import Role
from tests.desk.letters import letter
from tests.web.status_answer import counts, status

#: 20 November 2026, 23:30 in UTC: the next day in Zürich.
LATE = int(datetime(2026, 11, 20, 23, 30, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def zone():
    """Shows times in a zone."""
    yield lambda name: shown_zone.set_zone(shown_zone.find_zone(name))
    shown_zone.set_zone(UTC)


@pytest.mark.parametrize(
    ("name", "words", "zone_name"),
    [
        ("", "20 Nov 2026 23:30:00", "UTC"),
        ("Europe/Zurich", "21 Nov 2026 00:30:00", "CET"),
        ("America/Sao_Paulo", "20 Nov 2026 20:30:00", "UTC-03:00"),
        ("Asia/Kathmandu", "21 Nov 2026 05:15:00", "UTC+05:45"),
    ],
)
def test_a_time_is_in_the_zone_that_is_shown_and_says_the_same_moment(zone, name, words, zone_name):
    zone(name)
    whole = f'<time datetime="2026-11-20T23:30:00.000Z" title="2026-11-20 23:30:00 UTC">{words}</time>'
    assert format_time(LATE, LATE + 90_000_000) == whole
    assert format_iso_time("2026-11-20T23:30:00+00:00", LATE + 90_000_000) == whole
    assert shown_zone.name_zone(LATE) == zone_name


def test_today_is_the_day_of_the_zone(zone):
    an_hour_later = LATE + 3_600_000
    assert ">20 Nov 2026 23:30:00<" in format_time(LATE, an_hour_later)
    zone("Europe/Zurich")
    assert ">00:30:00<" in format_time(LATE, an_hour_later)


@pytest.mark.parametrize(
    "name", ["Nowhere/Land", "../../etc/passwd", "Europe", "", "x" * 300, "Europe/Zürich", "a b", "/etc/localtime"]
)
def test_a_cookie_that_names_no_zone_is_utc(name):
    assert shown_zone.find_zone(name) is UTC


def test_a_picture_has_the_times_of_the_page(zone):
    found = status(counts=[counts(minutes={"handled": [0, 7]})])
    begin = int(datetime(2026, 11, 21, 2, 59, tzinfo=UTC).timestamp() * 1000)
    for name, first, words in (("", "02:00", "02:01 UTC: 0"), ("Asia/Kathmandu", "07:45", "07:46 UTC+05:45: 0")):
        zone(name)
        hour = build_hour_chart(found, begin)
        assert hour is not None
        assert hour.ticks[0][1] == first
        assert hour.describe_bar(hour.strips[0], 1) == words


@pytest.mark.parametrize("path", ["/letters?status=any", "/letters/1", "/groups", "/groups/1", "/activity", "/plans"])
def test_a_page_has_one_zone_by_its_cookie_and_utc_without(browser, console, record, path):
    record(letter(1))
    now = int(time.time() * 1000)
    console.clock = lambda: now
    ann = browser(Role.VIEWER)
    plain = ann.get(path).text
    assert '<html lang="en" data-zone="UTC"' in plain
    ann.cookies.set("zone", "Asia/Kathmandu")
    local = ann.get(path).text
    moments = re.compile(r'<time datetime="([^"]*)" title="[^"]* UTC">')
    assert moments.findall(local)[:-1] == moments.findall(plain)[:-1]
    shown = re.sub(r'title="[^"]*"|\(UTC\)</label>', "", local[local.index("<main") : local.index('id="keys"')])
    assert "UTC+05:45" in shown
    assert not re.search(r"UTC(?!\+05:45)", shown)


def test_days_of_activity_are_those_of_the_zone(browser, console, desk):
    console.clock = lambda: LATE
    ann = browser()
    assert 'from <time datetime="2026-11-20T00:00:00.000Z"' in ann.get("/activity?range=today").text
    ann.cookies.set("zone", "Europe/Zurich")
    assert 'from <time datetime="2026-11-20T23:00:00.000Z"' in ann.get("/activity?range=today").text


def test_the_next_reader_of_the_process_has_his_own_zone(browser, record):
    record(letter(1))
    ann, vic = browser(), browser(Role.VIEWER)
    ann.cookies.set("zone", "Asia/Kathmandu")
    for _ in range(3):
        assert "UTC+05:45" in ann.get("/letters").text
        assert "UTC+05:45" not in vic.get("/letters").text
