"""The transport's pure decisions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu import Connection
from kombu import transport as _kombu_transport
from kombu.exceptions import OperationalError, VersionMismatch

from lossless import transport
from lossless.transport.message_ownership import OwnerWatch, make_owner, read_patience, sort_fields
from lossless.transport.storage_layout import (
    RESTORED,
    TransportKeys,
    decode_message,
    mark_redelivered,
    read_eta,
    store_message,
)
from lossless.transport.version_check import refuse_unfit_redis

kombu_transport: Any = _kombu_transport


@pytest.mark.parametrize("version", ["6.2.0", "6.2.14", "7.0.15", "8.0", "", "unknown"])
def test_a_redis_that_can_do_it_is_taken(version: str) -> None:
    refuse_unfit_redis({"redis_version": version})


@pytest.mark.parametrize("name", ["redis_mode", "server_mode"])
def test_redis_cluster_is_refused_by_name(name: str) -> None:
    with pytest.raises(VersionMismatch, match="Redis Cluster"):
        refuse_unfit_redis({"redis_version": "7.2.0", name: "cluster"})


@pytest.mark.parametrize("version", ["6.0.20", "5.0.14", "2.8.4"])
def test_a_redis_that_is_too_old_is_refused_by_name(version: str) -> None:
    with pytest.raises(VersionMismatch, match=rf"Redis {version}; this transport needs Redis 6\.2"):
        refuse_unfit_redis({"redis_version": version})


@pytest.mark.parametrize(
    ("url", "name"),
    [("redis://h", "Transport"), ("rediss://h", "Transport"), ("sentinel://h", "SentinelTransport")],
)
def test_urls_stay_as_they_are(url: str, name: str) -> None:
    before = dict(kombu_transport.TRANSPORT_ALIASES)
    try:
        transport.use()
        assert Connection(url).get_transport_cls() is getattr(transport, name)
    finally:
        kombu_transport.TRANSPORT_ALIASES.update(before)
        kombu_transport._transport_cache.clear()


@pytest.mark.parametrize(
    ("eta", "due"),
    [
        ("1970-01-01T00:00:10+00:00", 10.0),
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T01:00:10+01:00", 10.0),
        ("1970-01-01T00:00:10.500000", 10.5),
        (None, None),
        ("soon", None),
        (17, None),
    ],
)
def test_an_eta_is_a_time_or_nothing(eta: Any, due: float | None) -> None:
    assert read_eta({"headers": {"eta": eta}}) == due


def test_a_marked_message_is_redelivered_and_counted() -> None:
    raw = json.dumps({"body": "x", "headers": {}, "properties": {"delivery_info": {}}}).encode()
    once = mark_redelivered(raw, RESTORED)
    twice = decode_message(mark_redelivered(mark_redelivered(once), RESTORED))
    assert decode_message(mark_redelivered(raw))["headers"] == {"redelivered": True}
    assert decode_message(once)["headers"] == {"redelivered": True, "restored": 1}
    assert twice["headers"] == {"redelivered": True, "restored": 2}
    assert twice["properties"]["delivery_info"] == {"redelivered": True}
    assert twice["body"] == "x"


@given(st.binary())
def test_whatever_cannot_be_marked_stays_as_it_is(raw: bytes) -> None:
    assert mark_redelivered(raw) == raw


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")), st.binary())
def test_what_is_stored_can_be_taken_apart(key: str, raw: bytes) -> None:
    name, _, rest = store_message(key, raw).partition(b"\0")
    assert (name.decode(), rest) == (key, raw)


def test_every_key_has_the_prefix() -> None:
    keys = TransportKeys("team.")
    names = [keys.owners, keys.taken("o"), keys.waiting("q"), keys.waiting_queues, keys.undecodable]
    assert all(name.startswith("team._") for name in names)
    assert len(set(names)) == len(names)


def test_an_owner_that_stops_beating_is_dead_after_the_time() -> None:
    watch = OwnerWatch(30)
    found = {at: watch.dead({"a": "7", "b": str(at)}, at) for at in range(0, 61, 5)}
    assert found[25] == []
    assert found[30] == ["a"]
    assert all("b" not in dead for dead in found.values())


def test_a_watcher_that_was_away_watches_anew() -> None:
    watch = OwnerWatch(30)
    for at in range(0, 26, 5):
        assert watch.dead({"a": "7"}, at) == []
    assert watch.dead({"a": "7"}, 100) == []
    for at in range(105, 130, 5):
        assert watch.dead({"a": "7"}, at) == []
    assert watch.dead({"a": "7"}, 130) == ["a"]


@given(
    st.lists(st.tuples(st.floats(0.1, 40), st.booleans()), max_size=40),
    st.integers(2, 60),
)
def test_nobody_is_dead_who_beat_within_the_time(turns: list[tuple[float, bool]], dead_after: int) -> None:
    watch, now, beat, beat_at = OwnerWatch(dead_after), 0.0, 0, 0.0
    for pause, beats in turns:
        now += pause
        if beats:
            beat, beat_at = beat + 1, now
        if watch.dead({"a": str(beat)}, now):
            assert now - beat_at >= dead_after


def test_an_owner_is_dead_after_the_time_that_it_says() -> None:
    watch = OwnerWatch(30)
    patient, hasty, silent = make_owner(120), make_owner(5), "of an old version"
    found = {at: watch.dead({patient: "1", hasty: "1", silent: "1"}, at) for at in range(121)}
    assert (min(at for at in found if hasty in found[at]), min(at for at in found if silent in found[at])) == (5, 30)
    assert min(at for at in found if patient in found[at]) == 120


def test_one_that_says_nothing_has_the_default_at_least() -> None:
    watch = OwnerWatch(2)
    assert [at for at in range(32) if watch.dead({"a": "1"}, at)] == [30, 31]


def test_the_watcher_looks_often_enough_for_the_shortest_time() -> None:
    watch = OwnerWatch(30)
    assert watch.pause() == 5
    watch.dead({make_owner(3): "1", make_owner(300): "1"}, 0)
    assert watch.pause() == 0.5
    watch.dead({make_owner(0.001): "1"}, 1)
    assert watch.pause() == 0.1


@pytest.mark.parametrize("owner", ["a", "a:", "a:x", "a:nan", "a:inf", "a:-1", "a:0"])
def test_a_time_that_is_none_is_not_said(owner: str) -> None:
    assert read_patience(owner) is None


def test_a_time_is_said_by_a_name_that_nobody_else_has() -> None:
    assert read_patience(make_owner(1.5)) == 1.5
    assert make_owner(1.5) != make_owner(1.5)


def test_the_fields_of_an_owner_are_in_order_whatever_they_are() -> None:
    assert sort_fields({"2", "10", "odd", "1"}) == ["odd", "10", "2", "1"]


@pytest.mark.parametrize("kind", [transport.Transport, transport.SentinelTransport])
def test_what_kombu_makes_of_a_connection_lost_while_it_publishes_does_not_end_a_worker(kind: Any) -> None:
    """Celery begins anew at a transport's connection errors, and ends at any other."""
    assert OperationalError in kind.connection_errors
