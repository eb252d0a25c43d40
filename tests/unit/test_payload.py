"""A value for a person's eyes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cli.deadletters.payload import DUMPED, LINES, Payload, payload


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, Payload("a tombstone", [])),
        (b"", Payload("empty", [])),
        (b'{"a":1.10,"b":[]}', Payload("JSON", ["{", '  "a": 1.10,', '  "b": []', "}"])),
        ("zoë\nand".encode(), Payload("text", ["zoë", "and"])),
        (b"\x00\xffA", Payload("bytes", [f"00000000  {'00 ff 41':47}  ..A"])),
        (b"a\n" * (LINES + 3), Payload("text", ["a"] * LINES, 3)),
    ],
)
def test_a_value_is_shown_as_what_it_is(value, found):
    assert payload(value) == found


@given(st.binary(max_size=2_000))
def test_any_value_is_shown_and_what_is_left_out_is_counted(value):
    found = payload(value)
    assert len(found.lines) <= LINES
    if found.kind == "bytes":
        assert len(found.lines) == -(-min(len(value), DUMPED) // 16)
        assert found.more == max(0, len(value) - DUMPED)
