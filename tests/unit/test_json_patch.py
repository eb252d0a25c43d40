"""A JSON Patch over values: what it changes, and what stays byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.editing import value_diff
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.editing.value_diff import LINES, diff_values
from bridge.deadletters.model import exact_json
from bridge.errors import NoJson, PatchDoesNotApply, PatchRefused

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def patched(value: bytes | None, *operations: Any) -> bytes:
    return ValuePatch.read(json.dumps(operations)).applied(value)


@pytest.mark.parametrize(
    ("value", "operation", "made"),
    [
        (b'{"a": 1, "b": 2}', {"op": "replace", "path": "/b", "value": 3}, b'{"a":1,"b":3}'),
        (b'{"a": 1}', {"op": "add", "path": "/currency", "value": "EUR"}, b'{"a":1,"currency":"EUR"}'),
        (b'{"a": 1, "b": 2}', {"op": "remove", "path": "/a"}, b'{"b":2}'),
        (b'{"a": 1}', {"op": "move", "from": "/a", "path": "/b"}, b'{"b":1}'),
        (b'{"a": [1, 2]}', {"op": "add", "path": "/a/-", "value": 3.50}, b'{"a":[1,2,3.5]}'),
        (b"[1]", {"op": "replace", "path": "", "value": None}, b"null"),
    ],
)
def test_an_operation_changes_what_it_names(value, operation, made):
    assert patched(value, operation) == made


@pytest.mark.parametrize(
    "kept",
    ["123456789012345678901234567890", "0.1000000000000000055511151231257827", "1E400", "-0", "1.10", "-0.0", "1e5"],
)
def test_numbers_that_a_float_would_damage_stay_as_they_were_written(kept):
    value = f'{{"amount": {kept}, "b": 1}}'.encode()
    assert patched(value, {"op": "replace", "path": "/b", "value": 2}) == f'{{"amount":{kept},"b":2}}'.encode()


def test_numbers_of_the_patch_stay_as_they_were_written_too():
    patch = ValuePatch.read('[{"op": "add", "path": "/amount", "value": 0.1000000000000000055511151231257827}]')
    assert patch.applied(b"{}") == b'{"amount":0.1000000000000000055511151231257827}'


def test_keys_keep_their_order():
    assert patched(b'{"z":1,"a":2,"m":3}', {"op": "replace", "path": "/a", "value": 0}) == b'{"z":1,"a":0,"m":3}'


@pytest.mark.parametrize("value", ['{"name":"Jürgen","b":1}', '{"name":"J\\u00fcrgen","b":1}'])
def test_a_value_in_ascii_stays_in_ascii_and_another_in_utf_8(value):
    made = patched(value.encode(), {"op": "replace", "path": "/b", "value": 2})
    assert made == value.replace('"b":1', '"b":2').encode()


def test_half_a_surrogate_pair_is_kept_as_the_escape_that_it_was():
    value = '{"name":"ü \\ud800","b":1}'.encode()
    assert json.loads(patched(value, {"op": "remove", "path": "/b"})) == {"name": "ü \ud800"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "tombstone"),
        (b"no json", "expecting value"),
        (b"\x00\x00\x00\x00\x07avro\xff", "no text|expecting value"),
        (b'{"a": 1, "a": 2}', "a key twice"),
        (b'{"a": NaN}', "NaN or Infinity"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a": 1e99999999999999999999}', "too large"),
    ],
)
def test_what_is_no_json_or_could_not_be_written_again_without_a_loss_is_refused(value, why):
    with pytest.raises(NoJson, match=why):
        patched(value, {"op": "add", "path": "/b", "value": 1})


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "replace", "path": "/secret/b", "value": 1}, "replace /secret/b: there is no such place"),
        ({"op": "remove", "path": "/b"}, "remove /b: there is no such place"),
        ({"op": "test", "path": "/a", "value": 7}, "test /a: it is not that"),
        ({"op": "add", "path": "/list/9", "value": 1}, "add /list/9: there is no such place"),
    ],
)
def test_what_does_not_apply_says_which_operation_and_nothing_of_the_value(operation, why):
    with pytest.raises(PatchDoesNotApply, match=why) as refused:
        patched(b'{"a": "4111 1111", "list": []}', operation)
    assert "4111" not in str(refused.value)


@pytest.mark.parametrize("depth", [300, 600, 900, 2_000])
def test_a_value_of_any_depth_is_copied_or_refused(depth):
    copying = ValuePatch.read('[{"op": "copy", "from": "/a", "path": "/b"}]')
    try:
        said = copying.applied(b'{"a":' + b"[" * depth + b"]" * depth + b"}").decode()
    except NoJson as error:
        said = str(error)
    assert said.endswith("]}") or "nested too deeply" in said


def test_a_test_compares_numbers_by_their_value():
    operations = [{"op": "test", "path": "/a", "value": 1}, {"op": "add", "path": "/b", "value": 2}]
    assert patched(b'{"a": 1.0}', *operations) == b'{"a":1.0,"b":2}'


def test_operations_apply_all_or_none():
    operations = [{"op": "remove", "path": "/a"}, {"op": "remove", "path": "/nothing"}]
    with pytest.raises(PatchDoesNotApply):
        patched(b'{"a": 1}', *operations)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "[1]", '[{"op": "replace"}]', '[{"op": "mend", "path": "/a"}]'),
        *('[{"op": "add", "path": "a"}]', '[{"op": "add", "path": "/a"}]', '[{"op": "move", "path": "/a"}]'),
    ],
)
def test_what_is_no_patch_is_refused_at_once(text):
    with pytest.raises(PatchRefused):
        ValuePatch.read(text)


@given(JSON)
def test_what_a_patch_does_not_change_keeps_its_very_bytes(value):
    text = json.dumps(value, indent=1).encode()
    assert ValuePatch.read(f'[{{"op": "test", "path": "", "value": {text.decode()}}}]').applied(text) == text


@given(JSON)
def test_what_is_written_says_what_was_read(value):
    text = json.dumps(value).encode()
    assert json.loads(exact_json.write_json(exact_json.parse_json(text), text)) == value
    assert json.loads("\n".join(exact_json.write_json_lines(exact_json.parse_json(text)))) == value


def test_a_difference_of_json_is_told_a_member_a_line():
    assert diff_values(b'{"a":1,"b":2}', b'{"a":1,"b":3}').splitlines()[3:] == [
        " {",
        '   "a": 1,',
        '-  "b": 2',
        '+  "b": 3',
        " }",
    ]


def test_a_difference_of_what_is_no_text_is_told_by_its_size():
    assert "-(3 bytes)" in diff_values(b"\xff\xfe\x01", b"{}")


def test_a_long_difference_is_cut_and_says_so():
    found = diff_values(json.dumps(list(range(1000))).encode(), b"[]").splitlines()
    assert len(found) == LINES + 1
    assert "more lines" in found[-1]


def numbers(*values: int) -> bytes:
    return json.dumps(values).encode()


def test_of_values_too_long_to_compare_each_line_is_compared_with_that_in_its_place(monkeypatch):
    monkeypatch.setattr(value_diff, "PAIRS", 4)
    assert diff_values(numbers(1, 2, 3, 4), numbers(9, 2, 3, 8)).splitlines()[2:] == [
        *("@@ -2 +2 @@", "-  1,", "+  9,"),
        *("@@ -5 +5 @@", "-  4", "+  8"),
    ]


def test_of_values_too_long_to_compare_that_are_not_of_one_length_the_sizes_are_said(monkeypatch):
    monkeypatch.setattr(value_diff, "PAIRS", 4)
    found = diff_values(numbers(1, 2, 3, 4), numbers(9, 2, 3, 4, 8)).splitlines()
    assert found[-2:] == ["-(12 bytes)", "+(15 bytes)"]


def test_of_long_values_what_is_the_same_before_and_behind_is_not_compared(monkeypatch):
    monkeypatch.setattr(value_diff, "PAIRS", 90)
    same = range(100)
    found = diff_values(numbers(*same), numbers(*same[:50], 777, *same[50:])).splitlines()
    assert [each for each in found[2:] if each[:1] in "+-"] == ["+  777,"]


@pytest.mark.parametrize(
    "bomb",
    [
        [{"op": "copy", "from": "", "path": f"/y{number}"} for number in range(18)],
        [{"op": "copy", "from": "/k", "path": "/k/-"}] * 17,
        [{"op": "copy", "from": "/k", "path": f"/{number}"} for number in range(400)],
    ],
)
def test_copies_that_double_a_value_over_and_over_are_refused_while_it_is_small(bomb):
    with pytest.raises(PatchDoesNotApply, match=r"copy .*: copies would add more than 1,000,000 bytes to it"):
        patched(json.dumps({"k": ["x" * 3_000]}).encode(), *bomb)


def test_a_large_value_is_copied_within_as_far_as_a_record_may_be_large():
    assert (
        len(patched(json.dumps({"k": "x" * 600_000}).encode(), {"op": "copy", "from": "/k", "path": "/l"})) > 1_200_000
    )
