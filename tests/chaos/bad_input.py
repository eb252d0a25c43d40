"""Records as nobody should write them, and somebody will: generated from a seed (pure)."""

import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

#: What a topic takes, by Kafka's default, with all that is beside the value.
LIMIT: Final = 1_048_588
#: The key of what is not ours.
FOREIGN: Final = b"foreign"
Headers = list[tuple[str, bytes | None]]
Draw = random.Random


class Bad(NamedTuple):
    """One record; `label` says what is bad about it."""

    label: str
    key: bytes | None
    value: bytes | None
    headers: Headers


def deep(draw: Draw) -> bytes:
    depth = draw.choice([10, 100, 500, 990, 1_000, 5_000, 100_000])
    opened, closed = draw.choice([(b"[", b"]"), (b'{"a":', b"}")])
    return opened * depth + b"1" + closed * (depth if draw.random() < 0.8 else depth - 1)


def almost_json(draw: Draw) -> bytes:
    return draw.choice(
        [
            b"",
            b" ",
            b"nul",
            b"{",
            b'{"id": 1',
            b'{"id": 1}}',
            b"{'id': 1}",
            b'{"id": NaN}',
            b'{"id": -Infinity}',
            b'{"id": 1e999999}',
            b'{"id": %s}' % (b"9" * 5_000),
            b'{"id": 1, "id": 2}',
            b'{"id": "\\ud800"}',
            b'"\\u0000"',
            b"\xef\xbb\xbf{}",
            '{"id": 1}'.encode("utf-16"),
            '{"id": 1}'.encode("utf-32-le"),
            b'{"id": "\xff\xfe"}',
            b"\x00" * draw.randrange(1, 50),
            b'{"__type__": "datetime", "__value__": "no"}',
            b'{"__type__": "bytes", "__value__": "////"}',
            b"[[], {}, null, {}]",
        ]
    )


def wrong_types(draw: Draw) -> bytes:
    strange: list[object] = [None, True, -1, 0, 2**63, 2**200, 1.5, "", "1", "x" * 100, [], {}, [[]], {"id": {}}, ["a"]]
    chosen = draw.choice(strange)
    return json.dumps(draw.choice([chosen, {"id": chosen}, {"id": 1, "names": chosen}, [{"id": 1}]])).encode()


def other_formats(draw: Draw) -> bytes:
    return draw.choice(
        [
            b"\x00" + struct.pack(">i", draw.randrange(1 << 31)) + draw.randbytes(30),  # a schema registry's
            b"\x1f\x8b\x08" + draw.randbytes(40),  # gzip
            b"\x80\x04\x95" + draw.randbytes(40),  # pickle
            b"<order id='1'/>",
            b"id=1&names=a",
            b"\xac\xed\x00\x05sr" + draw.randbytes(30),  # Java
        ]
    )


VALUES: Final[Mapping[str, Callable[[Draw], bytes | None]]] = {
    "random bytes": lambda draw: draw.randbytes(draw.randrange(200)),
    "deep": deep,
    "almost JSON": almost_json,
    "wrong types": wrong_types,
    "other formats": other_formats,
    "null": lambda draw: None,
    "fine": lambda draw: json.dumps({"id": draw.randrange(10**6), "names": ["a"] * draw.randrange(5)}).encode(),
}
#: Names that mean something to us, to Celery or to a tracer.
NAMES: Final = (
    *("origin_topic", "origin_partition", "origin_offset", "origin_timestamp", "origin_topic_id"),
    *("handler", "bridge_group", "retry_number", "retry_timestamp", "retry_until", "delivery_number"),
    *("retry_after", "replay_again", "replay_once", "handlers_version"),
    *("attempts", "attempts_failed", "attempts_lost", "attempts_postponed", "attempts_replayed"),
    *("reason", "error_class", "error_message", "error_traceback", "first_failed_at", "failed_at"),
    *("kafka", "id", "task", "timelimit", "eta", "expires", "retries", "gates", "joins", "redelivered", "argsrepr"),
    *("traceparent", "tracestate", "baggage", "b3", "__proto__", "Content-Type", ""),
)


def hostile(draw: Draw) -> Headers:
    """Headers that forge ours, repeat, are empty, are no text, are many or long."""
    match draw.randrange(6):
        case 0:
            return [(name, _forged(draw)) for name in NAMES]
        case 1:
            return [(draw.choice(NAMES), _forged(draw)) for _ in range(draw.randrange(1, 12))]
        case 2:
            return [(name, _forged(draw)) for name in ("handler", "attempts", "origin_topic") for _ in range(3)]
        case 3:
            return [("n", None)] * draw.randrange(1, 200)
        case 4:
            return [("ü" * draw.randrange(1, 5_000), draw.randbytes(20)), ("\x00\r\n", b"\r\n")]
        case _:
            return [(f"many {number}", b"") for number in range(draw.choice([1, 50, 1_000]))]


def _forged(draw: Draw) -> bytes | None:
    numbers = [b"0", b"-1", b"1", b"99999999999999999999", b"1e9", b"nan", b"1795338190680"]
    words = [b"", b"raw", b"tests.handlers.bad.raw", b"exhausted", b"[3, 1]", b'{"a": 1}', b"\xff\xfe", None]
    return draw.choice([*numbers, *words])


def keys(draw: Draw) -> bytes | None:
    return draw.choice([None, b"", b"k", b"\x00\xff", draw.randbytes(20), b"x" * draw.choice([10, 3_000])])


def records(seed: int, count: int) -> Iterator[Bad]:
    """So many records: each a value of some kind, one in three with hostile headers."""
    draw = random.Random(f"{seed} bad input")
    names = list(VALUES)
    for _ in range(count):
        label = draw.choice(names)
        forged = draw.random() < 1 / 3
        made = VALUES[label](draw)
        # The large ones are few, so that what is generated fits into a Redis.
        plain: Headers = [("trace", b"1")]
        headers = hostile(draw) if forged and draw.random() < 0.3 else plain if forged else []
        yield Bad(f"{label}{', hostile headers' if len(headers) > 1 else ''}", keys(draw), made, headers)


def foreign(seed: int, count: int, group: str) -> Iterator[Bad]:
    """What others write where our retries, replays and dead letters lie: none of it is a delivery of ours.

    Parameters:
        group: ours. Some name it, with numbers that are none; some are whole, and another group's.
    """
    draw = random.Random(f"{seed} foreign")
    for number, bad in enumerate(records(seed + 1, count)):
        numbers = draw.choice([b"-1", b"", b"nan", b"9" * 30, b"1.5"]) if number % 3 else b"0"
        said = {
            "origin_topic": b"orders",
            "origin_partition": numbers,
            "origin_offset": numbers,
            "handler": b"tests.handlers.bad.typed",
            "bridge_group": group.encode() if number % 3 else b"another",
            "retry_timestamp": draw.choice([b"0", b"1795338190680", b"99999999999999", b"soon"]),
            "retry_number": b"1",
        }
        yield bad._replace(key=FOREIGN, headers=bad.headers if number % 2 else [*bad.headers, *said.items()])


def huge(seed: int, count: int) -> Iterator[Bad]:
    """Values up to what a topic takes, JSON or not, which nothing makes smaller."""
    draw = random.Random(f"{seed} huge")
    for number in range(count):
        length = LIMIT - draw.choice([75, 80, 100, 500, 5_000, 50_000, 500_000])
        value = draw.randbytes(length) if number // 4 % 2 else b'{"id": "' + b"7" * (length - 10) + b'"}'
        yield Bad("huge", None, value, [])
