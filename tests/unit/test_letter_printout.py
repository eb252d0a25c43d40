"""A value for a person's eyes, on a terminal: the viewer is the console's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cli.deadletters.letter_printout import list_payload_lines
from bridge.deadletters.model.payload_view import HEX_LINE, HEX_PART, view_payload


@pytest.mark.parametrize(
    ("value", "kind", "lines"),
    [
        (None, "a tombstone", []),
        (b"", "empty", []),
        (b'{"a":1.10,"b":[]}', "JSON", ["{", '  "a": 1.10,', '  "b": []', "}"]),
        ("zoë\nand".encode(), "text", ["zoë", "and"]),
        (b"a\na\n", "text", ["a", "a"]),
        (b"\x00\xffA", "bytes", [f"00000000  {'00 ff 41':47}  ..A"]),
    ],
)
def test_a_value_is_shown_as_what_it_is(value, kind, lines):
    view = view_payload(value, at=0)
    assert (view.kind, list_payload_lines(view)) == (kind, lines)


@given(st.binary(max_size=2 * HEX_PART))
def test_any_value_is_shown_and_the_view_says_whether_there_is_more(value):
    view = view_payload(value, at=0)
    if view.kind == "bytes":
        assert len(list_payload_lines(view)) == -(-min(len(value), HEX_PART) // HEX_LINE)
        assert (view.next is None) == (len(value) <= HEX_PART)
