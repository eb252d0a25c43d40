"""A letter as a line of an export: whole again when it is read, and readable as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.inspection.letter_file import read_letter_line, write_letter_line
from bridge.deadletters.model.stored_letter import pack_headers
from bridge.errors import NoExport

TEXT = st.text(st.characters(codec="utf-8"))
BYTES = st.none() | st.binary()
HEADERS = st.lists(st.tuples(TEXT, BYTES)).map(pack_headers)
NEEDED = {
    "digest": b"\0" * 16,
    "consumer_group": "bridge",
    "topic": "orders",
    "topic_id": "",
    "partition": 3,
    "offset": 1234,
    "handler": "orders.handlers.charge",
    "status": "open",
    "failed_at": 1_800_000_000_123,
}
HISTORY = st.lists(st.fixed_dictionaries({"number": st.integers(1, 9), "value": BYTES, "failed_at": st.integers(0)}))


@given(key=BYTES, value=BYTES, headers=HEADERS, timestamp=st.none() | st.integers(-(2**63), 2**63), history=HISTORY)
def test_what_was_written_is_read_byte_for_byte(key, value, headers, timestamp, history):
    stored = {**NEEDED, "key": key, "value": value, "headers": headers, "timestamp": timestamp, "history": history}
    assert read_letter_line(write_letter_line(stored)) == stored


def test_a_line_can_be_read_by_people():
    stored = {
        **NEEDED,
        "value": b'{"id": 1}',
        "key": b"\xff",
        "headers": pack_headers([("trace", b"a"), ("none", None)]),
    }
    found = json.loads(write_letter_line(stored))
    assert found["value"] == {"text": '{"id": 1}', "base64": "eyJpZCI6IDF9"}
    assert found["key"] == {"base64": "/w=="}
    assert found["headers"] == [["trace", {"text": "a", "base64": "YQ=="}], ["none", None]]
    assert found["failed_at"] == "2027-01-15T08:00:00.123+00:00"
    assert "\n" not in write_letter_line({**NEEDED, "error_message": "two\nlines"})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no json",
        b"[]",
        b"{}",
        b"\xff",
        b'{"digest": "x"}',
        json.dumps({**NEEDED, "digest": {"base64": "§"}}),
        "[" * 9999,
    ],
)
def test_what_is_no_line_of_an_export_is_refused(text):
    with pytest.raises(NoExport):
        read_letter_line(text)
