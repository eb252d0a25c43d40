"""Produces what Python's client refuses to: header names that are no UTF-8, as any C or Java client may send them."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka

_END, _TOPIC, _VALUE, _KEY, _HEADERS, _PARTITION = 0, 1, 4, 5, 10, 3


def load_librdkafka() -> ctypes.CDLL:
    """Return the librdkafka that Python's client has loaded: the same file is the same library."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    return ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))


def produce_raw(servers: str, topic: str, key: bytes, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Produce one record to partition 0, and wait for it."""
    lib = load_librdkafka()
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(lib, name).restype = ctypes.c_void_p
    text = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(lib.rd_kafka_conf_new())
    assert lib.rd_kafka_conf_set(conf, b"bootstrap.servers", servers.encode(), text, 512) == 0, text.value
    client = ctypes.c_void_p(lib.rd_kafka_new(0, conf, text, 512))
    raw = ctypes.c_void_p(lib.rd_kafka_headers_new(len(headers)))
    for label, given in headers:
        lib.rd_kafka_header_add(raw, label, ctypes.c_ssize_t(len(label)), given, ctypes.c_ssize_t(len(given)))
    error = lib.rd_kafka_producev(
        client,
        *(ctypes.c_int(_TOPIC), ctypes.c_char_p(topic.encode())),
        *(ctypes.c_int(_PARTITION), ctypes.c_int32(0)),
        *(ctypes.c_int(_VALUE), ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
        *(ctypes.c_int(_KEY), ctypes.c_char_p(key), ctypes.c_size_t(len(key))),
        *(ctypes.c_int(_HEADERS), raw),
        ctypes.c_int(_END),
    )
    assert error == 0, error
    assert lib.rd_kafka_flush(client, 20_000) == 0
    lib.rd_kafka_destroy(client)
