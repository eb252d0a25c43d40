"""A value for a person's eyes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cli.deadletters.letter_printout import MAX_DUMPED_BYTES, MAX_LINES, PayloadText, view_payload


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, PayloadText("a tombstone", [])),
        (b"", PayloadText("empty", [])),
        (b'{"a":1.10,"b":[]}', PayloadText("JSON", ["{", '  "a": 1.10,', '  "b": []', "}"])),
        ("zoë\nand".encode(), PayloadText("text", ["zoë", "and"])),
        (b"\x00\xffA", PayloadText("bytes", [f"00000000  {'00 ff 41':47}  ..A"])),
        (b"a\n" * (MAX_LINES + 3), PayloadText("text", ["a"] * MAX_LINES, 3)),
    ],
)
def test_a_value_is_shown_as_what_it_is(value, found):
    assert view_payload(value) == found


@given(st.binary(max_size=2_000))
def test_any_value_is_shown_and_what_is_left_out_is_counted(value):
    found = view_payload(value)
    assert len(found.lines) <= MAX_LINES
    if found.kind == "bytes":
        assert len(found.lines) == -(-min(len(value), MAX_DUMPED_BYTES) // 16)
        assert found.more == max(0, len(value) - MAX_DUMPED_BYTES)
