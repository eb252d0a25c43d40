"""What is promised of a value that somebody looks at: all of it can be seen, and nothing of it is changed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.model.payload_view import (
    DEEPEST,
    HEX_PART,
    PART,
    READ,
    PayloadMode,
    find_quoted_text,
    view_payload,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=10,
)


@given(JSON, st.booleans(), st.sampled_from([None, 1, 4]))
def test_indented_json_is_the_same_json(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    found = view_payload(text.encode("utf-8", "surrogatepass"))
    if found.kind == "JSON":
        assert json.loads("\n".join(found.lines)) == value
    else:
        assert not text.isascii()


@given(st.text(alphabet='{}[]",:\\ntrue1e. \n', max_size=40))
def test_what_is_no_json_is_shown_as_it_is(text):
    found = view_payload(text.encode())
    if found.kind == "text":
        assert "\n".join(found.lines) == text


@given(st.binary(max_size=200))
def test_hexadecimal_is_every_byte(value):
    if value:
        found = view_payload(value, PayloadMode.HEX, 0)
        assert bytes.fromhex("".join(line for _, line, _ in found.dump)) == value
        assert [at for at, _, _ in found.dump] == list(range(0, len(value), 16))


@pytest.mark.parametrize("text", ["x" * 3 * PART, "a\n" * 2 * PART, "é\n" * PART, "x" * PART, "x" * (PART + 1)])
def test_parts_of_a_text_are_all_of_it_and_none_is_larger_than_a_part(text):
    parts = [view_payload(text.encode(), PayloadMode.SENT, 0)]
    while (following := parts[-1].next) is not None:
        assert following > parts[-1].at
        parts.append(view_payload(text.encode(), PayloadMode.SENT, following))
    for part in parts:
        shown = "\n".join(part.lines)
        assert len(shown) <= PART
        # Of a part that ends with its line, the line break is not shown.
        assert shown in (text[part.at : part.next], text[part.at : part.next].removesuffix("\n"))
    assert "".join(text[part.at : part.next] for part in parts) == text


def test_where_a_value_stops_being_text_the_look_begins_a_little_before():
    found = view_payload(b"a" * 10_000 + b"\xff" + b"a" * 10_000)
    assert found.way is PayloadMode.HEX
    assert found.fault_at == 10_000
    assert found.dump[0][0] <= 10_000 < found.dump[-1][0]
    assert len(found.dump) == HEX_PART // 16


def test_no_more_of_a_value_is_read_than_a_megabyte_and_what_is_not_is_said():
    found = view_payload(b'{"a":"' + b"\xc3\xa9" * READ + b'"}')
    assert (found.kind, found.way) == ("JSON", PayloadMode.PRETTY)
    assert found.unread == 2 * READ + 8 - READ


def test_what_is_nested_deeper_than_is_indented_stays_on_its_line():
    depth = 10 * DEEPEST
    lines = view_payload(b"[" * depth + b"1" + b"]" * depth).lines
    assert max(len(line) - len(line.lstrip()) for line in lines) <= 2 * DEEPEST
    assert "".join(line.strip() for line in lines) == "[" * depth + "1" + "]" * depth


def test_what_an_error_quotes_is_what_stands_in_its_quotes():
    assert find_quoted_text("""invalid literal for int(): '0,49', not "a b" and not 'x'""") == {"0,49", "a b"}
    assert find_quoted_text("nothing") == frozenset()


def test_escapes_of_readable_characters_are_read_and_the_sent_text_keeps_them():
    sent = rb'{"name":"Zo\u00eb \ud83d\ude00","kept":"\u0022 \\u00eb \u202e \u005c \ud83d \n"}'
    assert view_payload(sent, PayloadMode.PRETTY).lines == [
        "{",
        '  "name": "Zo\u00eb \U0001f600",',
        r'  "kept": "\u0022 \\u00eb \u202e \u005c \ud83d \n"',
        "}",
    ]
    assert view_payload(sent, PayloadMode.SENT).lines == [sent.decode()]


def test_a_text_is_found_in_either_case_in_all_of_the_value_and_the_part_that_has_it_is_shown():
    value = json.dumps({"lines": [{"sku": f"kb-{at}"} for at in range(9_000)], "Note": "urgent"}).encode()
    nothing, note = view_payload(value, search="nowhere"), view_payload(value, search="NOTE")
    assert (nothing.at, nothing.found) == (0, (0, None, True))
    assert note.found == (1, None, True)
    assert '  "Note": "urgent"' in note.lines
    every = view_payload(value, search="kb-")
    assert every.at == 0
    assert every.found is not None
    assert every.next is not None
    assert every.found.number == 9_000
    assert every.next <= (every.found.next or 0) < every.next + 20
    last = view_payload(value, PayloadMode.PRETTY, 0, "kb-8999").found
    assert last is not None
    assert "kb-8999" in view_payload(value, PayloadMode.PRETTY, last.next, "kb-8999").lines[0]


def test_a_text_far_within_a_long_line_is_in_the_part_that_is_shown():
    value = b"x" * 3 * PART + b"needle" + b"y" * PART
    found = view_payload(value, search="needle")
    assert "needle" in found.lines[0]
    assert found.found == (1, None, True)


def test_of_a_search_that_did_not_reach_the_end_that_is_said():
    deep = b"[" * DEEPEST + b"1," * 30_000 + b"1" + b"]" * DEEPEST
    assert view_payload(deep, search="2").found == (0, None, False)
