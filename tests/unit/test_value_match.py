"""A field of a value is found where it is, with the text that the value writes."""

import pytest

from bridge.deadletters.model.value_match import describe_unread, has_value_fields

VALUE = b"""{"order": {"currency": "EUR", "lines": [{"sku": "A-1", "n": 1.50}, {"sku": "B-2", "tags": ["new", 7]}]},
    "a.b": {"c": true}, "none": null, "empty": "", "id": 12345678901234567890, "name": "Zo\\u00eb"}"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("order.currency", "EUR"),
        ("order.lines.sku", "A-1"),
        ("order.lines.sku", "B-2"),
        ("order.lines.n", "1.50"),
        ("order.lines.tags", "new"),
        ("order.lines.tags", "7"),
        ("a.b.c", "true"),
        ("none", "null"),
        ("empty", ""),
        ("id", "12345678901234567890"),
        ("name", "Zoë"),
    ],
)
def test_a_field_has_the_text_that_the_value_writes(name, text):
    assert has_value_fields(VALUE, [(name, text)])
    assert not has_value_fields(VALUE, [(name, f"{text}x")])
    assert not has_value_fields(VALUE, [(name, text), ("order.currency", "CHF")])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("order", "EUR"),
        ("order.lines", ""),
        ("currency", "EUR"),
        ("order.lines.n", "1.5"),
        ("Order.currency", "EUR"),
        ("order.currency.x", "EUR"),
        ("nothing", ""),
    ],
)
def test_what_is_not_there_is_not_found(name, text):
    assert not has_value_fields(VALUE, [(name, text)])


@pytest.mark.parametrize(
    "value", [None, b"", b"\xff", b"EUR", b'"EUR"', b'{"a": "1", "a": "2"}', b'{"a": NaN}', b"[" * 100_000]
)
def test_a_value_that_masks_could_not_read_matches_nothing(value):
    assert not has_value_fields(value, [("a", "1")])


def test_a_list_of_records_is_searched_in_each():
    assert has_value_fields(b'[{"a": 1}, [{"a": 2}]]', [("a", "2")])


def test_letters_that_were_not_searched_are_counted_in_words():
    assert describe_unread(1).startswith("1 letter was not searched: its value is larger than 64 KiB")
    assert describe_unread(1_200).startswith("1,200 letters were not searched")
