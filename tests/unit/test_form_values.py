"""What is promised of a value in a form: what nobody changes there stays what it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.editing.letter_edit import offer_text, read_typed_text
from bridge.errors import EditRefused

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=10,
)


def through_a_browser(text):
    """What a browser sends of a field: every line break as CR LF."""
    return text.replace("\n", "\r\n")


@given(JSON, st.booleans())
def test_json_comes_back_as_the_same_json_and_what_is_shown_is_printable(value, ascii_only):
    before = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "replace")
    found = offer_text(before)
    assert found.is_json
    assert all(each.isprintable() or each == "\n" for each in found.text)
    assert json.loads(read_typed_text(through_a_browser(found.text), before)) == json.loads(before)


def test_a_number_stays_digit_by_digit():
    before = b'{"trace":9007199254740993,"amount":1.10,"large":1E400}'
    assert read_typed_text(through_a_browser(offer_text(before).text), before) == before


@given(st.text(alphabet="ab é{[\n\t", max_size=30))
def test_text_comes_back_byte_for_byte(text):
    before = text.encode()
    found = offer_text(before)
    if not found.is_json:
        assert read_typed_text(through_a_browser(found.text), before) == before


@pytest.mark.parametrize("value", [b"\xff", b"a\r\nb", b"a\rb", b"a\x00b", "a\u202eb".encode()])
def test_what_a_browser_would_change_or_hide_is_refused(value):
    with pytest.raises(EditRefused, match="in a terminal"):
        offer_text(value)


def test_json_with_a_name_twice_is_text_and_nothing_of_it_goes():
    before = b'{"a":1,"a":2}'
    found = offer_text(before)
    assert not found.is_json
    assert read_typed_text(found.text, before) == before
