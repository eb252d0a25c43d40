"""The bodies that are decoded without kombu, and those that are left to it."""

import uuid
from typing import Any

import pytest
from kombu.serialization import dumps, loads, registry  # type: ignore[attr-defined]

from lossless.worker.json_body import JSON_TYPE, decode_plain_json


@pytest.mark.parametrize("value", [[[], {}, {"chord": None}], [["ä", 1, 2.5, True], {"a": {"b": [None]}}, {}], "text"])
def test_plain_json_is_read_as_kombu_reads_it(value: Any) -> None:
    content_type, encoding, body = dumps(value, serializer="json")
    found = decode_plain_json(body.encode(), content_type)
    assert found == loads(body, content_type, encoding) == value


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (dumps([uuid.uuid4()], serializer="json")[2].encode(), JSON_TYPE),
        (b"[1", JSON_TYPE),
        (b"\xff", JSON_TYPE),
        (b"[" * 100_000, JSON_TYPE),
        ("[]", JSON_TYPE),
        (b"[]", "application/x-python-serialize"),
        (b"[]", None),
    ],
    ids=["a type of kombu's", "cut", "no text", "nested too deeply", "no bytes", "another type", "no type"],
)
def test_what_is_no_plain_json_is_left_to_kombu(body: object, content_type: str | None) -> None:
    assert decode_plain_json(body, content_type) is None


def test_a_decoder_of_the_applications_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._decoders, JSON_TYPE, lambda body: "its own")
    assert decode_plain_json(b"[]", JSON_TYPE) is None
