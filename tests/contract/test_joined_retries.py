"""Messages that wait join those that are due with them, in the step that lets them wait."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Connection

from bridge.formats.celery_header import HEADER, from_header
from bridge.formats.delivery import Attempts, Batch, Delivery, Message
from bridge.formats.failure import Failure
from lossless import transport
from lossless.transport.delayed_messages import TriedTag, format_joined_count, make_joins_header
from lossless.transport.queue_inspection import find_messages
from tasks.execution import message_resend

DUE = 4_000_000_000.0


@pytest.fixture
def channel(any_redis_server: str) -> Iterator[Any]:
    transport.use()
    with redis.Redis.from_url(any_redis_server) as client:
        client.flushall()
    with Connection(any_redis_server) as connection:
        yield connection.default_channel


def put(channel: Any, *items: object, name: str = "a", most: int = 5, due: float = DUE, **more: Any) -> None:
    header = {"of": name, "items": list(items), "joined": format_joined_count(len(items)), **more.pop("behind", {})}
    headers = {"eta": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(due))}+00:00", "data": header, **more}
    headers["joins"] = make_joins_header(name, "items", most)
    properties = {"delivery_tag": f"{time.monotonic()}", "priority": more.get("priority", 0)}
    channel._put("q", {"body": "", "headers": headers, "properties": properties})


def waiting(channel: Any) -> list[list[object]]:
    found = channel.waiting("q", 100)
    assert all(int(each["headers"]["data"]["joined"]) == len(each["headers"]["data"]["items"]) for each in found)
    return sorted(each["headers"]["data"]["items"] for each in found)


def test_what_is_due_together_waits_as_one(channel: Any) -> None:
    put(channel, [1, "a"], [2, {"error": 'x], "joined": "0007"} "items": ['}])
    put(channel, [3, None])
    put(channel, [4, "d"])
    assert waiting(channel) == [[[1, "a"], [2, {"error": 'x], "joined": "0007"} "items": ['}], [3, None], [4, "d"]]]


def test_what_is_sent_again_because_the_answer_was_lost_is_joined_once(channel: Any) -> None:
    put(channel, [1, "a"])
    for _ in range(2):
        put(channel, [3, None], [4, "d"])
    assert waiting(channel) == [[[1, "a"], [3, None], [4, "d"]]]


def test_what_filled_a_message_and_is_sent_again_is_joined_once_too(channel: Any) -> None:
    put(channel, [1, "a"], most=3)
    for _ in range(2):
        put(channel, [3, None], [4, "d"], most=3)
    assert waiting(channel) == [[[1, "a"], [3, None], [4, "d"]]]


def test_what_is_sent_again_is_found_where_many_are_due_at_that_moment(channel: Any) -> None:
    def filled(name: str, number: int, tag: str) -> dict[str, Any]:
        data = {"of": name, "items": [number], "joined": format_joined_count(1)}
        headers = {
            "a": name,
            "eta": "2999-01-01T00:00:00+00:00",
            "data": data,
            "joins": make_joins_header(name, "items", 9),
        }
        return {"body": "", "headers": headers, "properties": {"delivery_tag": tag, "priority": 0}}

    channel._put("q", filled("z", 1, "1"))
    channel._put("q", filled("z", 2, "2"))
    for number in range(30):
        channel._put("q", filled(f"{number:02}", 0, f"{number}"))
    channel._put("q", filled("z", 2, TriedTag("2")))
    (found,) = (items for items in waiting(channel) if items != [0])
    assert found == [1, 2]


def test_the_limit_is_that_of_who_joins(channel: Any) -> None:
    put(channel, [1], [2], most=9)
    put(channel, [3], most=2)
    assert waiting(channel) == [[[1], [2]], [[3]]]
    put(channel, [4], [5], most=9)
    assert sorted(map(len, waiting(channel))) in ([1, 4], [2, 3])


def test_who_looks_for_a_message_sees_all_that_joins_meanwhile(channel: Any) -> None:
    for number in range(100):
        put(channel, [number], name=f"{number}", due=DUE + number)
    seen: set[int] = set()
    for step, sighting in enumerate(islice(find_messages(channel, "q"), 100)):
        seen.update(item for (item,) in json.loads(sighting.raw)["headers"]["data"]["items"])
        if step % 10 == 0:
            for number in range(100):
                put(channel, [1000 + step], name=f"{number}", due=DUE + number, most=100)
    assert seen >= set(range(100))


def test_no_message_carries_more_than_it_may(channel: Any) -> None:
    for number in range(0, 12, 3):
        put(channel, [number], [number + 1], [number + 2], most=7)
    assert sorted(map(len, waiting(channel))) == [6, 6]
    put(channel, *([at] for at in range(100, 109)), most=7)
    assert sorted(map(len, waiting(channel))) == [6, 6, 9]


def test_a_message_is_not_made_larger_than_a_million_bytes(channel: Any) -> None:
    for number in range(3):
        put(channel, [number, "x" * 400_000])
    assert sorted(map(len, waiting(channel))) == [1, 2]


@pytest.mark.parametrize("other", [{"name": "b"}, {"due": DUE + 1}, {"priority": 9}], ids=repr)
def test_what_is_another_or_due_at_another_time_waits_by_itself(channel: Any, other: dict[str, Any]) -> None:
    put(channel, [1, "a"])
    put(channel, [2, "b"], **other)
    assert waiting(channel) == [[[1, "a"]], [[2, "b"]]]


@pytest.mark.parametrize(
    "doubtful",
    [{"x": {"items": []}}, {"behind": {"more": 1}}, {"x": {"l": [1], "joined": "0001"}}],
    ids=repr,
)
def test_where_the_list_is_not_beyond_doubt_a_message_waits_by_itself(channel: Any, doubtful: dict[str, Any]) -> None:
    for _ in range(2):
        put(channel, [1, "a"], **doubtful)
        put(channel, [2, "b"])
    assert [[1, "a"]] in waiting(channel)
    assert sum(map(len, waiting(channel))) >= 3


@pytest.mark.parametrize("junk", [5, "text", {}, {"name": "a", "items": "items", "most": "all"}], ids=repr)
def test_a_header_of_that_name_that_is_none_of_ours_joins_nothing(channel: Any, junk: object) -> None:
    for number in range(2):
        headers = {"eta": "2999-01-01T00:00:00+00:00", "data": {"items": [number], "joined": "0001"}, "joins": junk}
        properties = {"delivery_tag": str(number), "priority": 0}
        channel._put("q", {"body": "", "headers": headers, "properties": properties})
    assert waiting(channel) == [[0], [1]]


def test_it_is_a_message_like_any_other_when_it_is_due(channel: Any) -> None:
    put(channel, [1, "a"])
    put(channel, [2, "b"])
    with channel.conn_or_acquire() as client:
        (entry,) = client.zrange("_waiting.q", 0, -1)
    key, _, raw = entry.partition(b"\0")
    assert key == b"q"
    assert json.loads(raw)["headers"]["data"] == {"of": "a", "items": [[1, "a"], [2, "b"]], "joined": "0002"}


def failed(*offsets: int, order: str | None = None) -> Batch:
    failure = Failure("OSError", "no", "", 5)
    found = [Message("orders", 3, offset, b"k", b"v" * offset) for offset in offsets]
    deliveries = tuple(Delivery(message, "charge").failed(failure, spent=True) for message in found)
    return Batch("charge", "orders", 3, deliveries, "cluster", "bridge", "id", order)


@pytest.fixture
def sent(any_redis_server: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[int]]]:
    """Sends batches again, each with the others' most, and returns the offsets of the messages that wait then."""
    transport.use()
    monkeypatch.setattr(message_resend.time, "time", lambda: DUE - 2)  # type: ignore[attr-defined]
    app = Celery("joining", broker=any_redis_server, set_as_current=False)
    with redis.Redis.from_url(any_redis_server) as client:
        client.flushall()

    def send(*batches: Batch, most: int = 200, check: bool = True) -> list[list[int]]:
        for batch in batches:
            message_resend.send_on(app, batch, 1.0, {"routing_key": "q"}, most)
        with app.connection_for_read() as connection:
            found = connection.default_channel.waiting("q", 100)  # type: ignore[attr-defined]
        carried = [from_header(each["headers"]["task"], each["headers"][HEADER]) for each in found]
        whole = {delivery.message.offset: delivery for batch in batches for delivery in batch.deliveries}
        if check:
            assert all(delivery == whole[delivery.message.offset] for each in carried for delivery in each.deliveries)
        return sorted(each.offsets for each in carried)

    return send


def test_retries_of_several_batches_travel_in_one_message(sent: Callable[..., list[list[int]]]) -> None:
    assert sent(failed(1, 2), failed(7), failed(201, 230)) == [[1, 2, 7, 201, 230]]


def test_what_failed_first_is_not_always_the_first_of_its_partition(sent: Callable[..., list[list[int]]]) -> None:
    assert sent(failed(201, 230), failed(1, 7)) == [[1, 7, 201, 230]]


def test_a_delivery_that_was_sent_twice_is_carried_once_as_it_was_last(sent: Callable[..., list[list[int]]]) -> None:
    once, twice = failed(3, 5), failed(5)
    again = replace(twice.deliveries[0], runs=7, attempts=Attempts(failed=7))
    assert sent(failed(1), twice.holding([again]), once, check=False) == [[1, 3, 5]]


@pytest.mark.parametrize(("order", "most"), [("key", 200), ("partition", 200), (None, 1)])
def test_no_retry_is_joined_where_an_order_is_kept_or_one_may_be_carried(
    sent: Callable[..., list[list[int]]], order: str | None, most: int
) -> None:
    assert sent(failed(1, order=order), failed(2, order=order), most=most) == [[1], [2]]
