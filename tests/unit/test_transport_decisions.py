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
from lossless.transport.message_ownership import sort_fields
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


def test_the_fields_of_an_owner_are_in_order_whatever_they_are() -> None:
    assert sort_fields({"2", "10", "odd", "1"}) == ["odd", "10", "2", "1"]


@pytest.mark.parametrize("kind", [transport.Transport, transport.SentinelTransport])
def test_what_kombu_makes_of_a_connection_lost_while_it_publishes_does_not_end_a_worker(kind: Any) -> None:
    """Celery begins anew at a transport's connection errors, and ends at any other."""
    assert OperationalError in kind.connection_errors
