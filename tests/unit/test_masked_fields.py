"""What is promised of masks: nothing of a masked field is in what is shown, and all else is as it was."""

import json
import random
import string
import time
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.deadletters.masking.letter_mask import LetterMasks, find_quotes, mask_key
from bridge.deadletters.masking.masked_edit import insert_tokens, replace_tokens
from bridge.deadletters.masking.text_redaction import LONGEST_TEXT, MOST, NOT_SHOWN, build_quotes
from bridge.deadletters.masking.value_mask import MASK, find_hidden_parts, mask_value
from bridge.deadletters.model import exact_json
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import EditRefused, FilterFault
from bridge.settings.masked_fields import read_mask_rules
from bridge.settings.setting_defaults import EnvironmentSettings
from bridge.settings.settings_validation import find_environment_faults


def shown(value, fields):
    found = read_mask_rules(f"*: {fields}").find_fields("orders")
    return mask_value(value, find_hidden_parts(value, found))


@pytest.mark.parametrize(
    ("fields", "value", "then"),
    [
        ("email", b'{"email":"ann@a.org","id":1}', b'{"email":"[masked]","id":1}'),
        ("email", b'{"customer":{"email":"a"},"list":[{"email":["b"]}]}', None),
        ("customer.email", b'{"email":"a","customer":{"email":"b"}}', b'{"email":"a","customer":{"email":"[masked]"}}'),
        ("items.price", b'{"items":[{"price":1},{"price":{"a":2}}],"price":3}', None),
        ("*.card", b'{"card":1,"a":{"card":2}}', b'{"card":1,"a":{"card":"[masked]"}}'),
        (
            "card_*",
            b'{"card_number":1,"CARD_CVC":2,"card":3}',
            b'{"card_number":"[masked]","CARD_CVC":"[masked]","card":3}',
        ),
        ("a.b", b'{"a.b":1}', b'{"a.b":"[masked]"}'),
        ("card_*", b'{"card_no.old":1,"a.card":2}', b'{"card_no.old":"[masked]","a.card":2}'),
        ("card", b'{"x.card.old.new":1,"a":{"card.y":2}}', b'{"x.card.old.new":"[masked]","a":{"card.y":"[masked]"}}'),
        ("email", b'[{"email":1}]', b'[{"email":"[masked]"}]'),
        ("@value", b'{"a":1}', b"[masked]"),
        ("@key", b'{"a": 1}', b'{"a": 1}'),
        ("email", b'{"a":1.10, "b":9007199254740993}', b'{"a":1.10, "b":9007199254740993}'),
        ("email", b'{"n":1.10,"b":9007199254740993,"email":1}', b'{"n":1.10,"b":9007199254740993,"email":"[masked]"}'),
        ("email", b"\xff\x00", b"[masked]"),
        ("email", b'{"email":"a","email":"b"}', b"[masked]"),
        ("email", b'{"email":NaN}', b"[masked]"),
        ("email", b"[" * 100_000, b"[masked]"),
    ],
)
def test_a_field_is_masked_wherever_its_path_ends_so_and_all_else_stays_digit_by_digit(fields, value, then):
    found = shown(value, fields)
    if then is None:
        then = {
            "email": b'{"customer":{"email":"[masked]"},"list":[{"email":"[masked]"}]}',
            "items.price": b'{"items":[{"price":"[masked]"},{"price":"[masked]"}],"price":3}',
        }[fields]
    assert found == then


def test_a_tombstone_stays_one():
    assert shown(None, "@value, a") is None


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [("orders", True, True), ("orders.eu", False, True), ("mails", False, False)],
)
def test_a_rule_is_of_the_topics_that_it_names(topic, key, value):
    fields = read_mask_rules("orders: @key, a ; orders*: b,@header.X-Token;").find_fields(topic)
    assert (fields.key, fields.of_value, fields.has_header("x-token")) == (key, value, value)


@pytest.mark.parametrize(
    "text",
    [
        "email",
        "orders",
        "orders:",
        ": email",
        "orders: ,",
        "orders: a..b",
        "orders: @kye",
        "orders: @header.",
        "a b: c",
    ],
)
def test_a_setting_that_can_mean_nothing_stops_the_start(text):
    found = find_environment_faults(EnvironmentSettings(DEADLETTERS_MASK=text))
    assert len(found) == 1
    assert found[0].startswith("DEADLETTERS_MASK: ")


def test_a_role_for_which_nothing_is_masked_needs_masks():
    assert find_environment_faults(EnvironmentSettings(DEADLETTERS_MASK_NOT_FOR="admin")) != []
    assert find_environment_faults(EnvironmentSettings(DEADLETTERS_MASK=";")) != []
    assert find_environment_faults(EnvironmentSettings(DEADLETTERS_MASK="*: a", DEADLETTERS_MASK_NOT_FOR="admin")) == []


NAMES = st.sampled_from(["email", "name", "card", "Email", "items", "a.email", "é"])
CANARY = "Canary-7c1f!\"\\é\n'"
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.just(CANARY))
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=20
)


def planted(tree, within=False):
    """A tree whose every masked field has the canary, which is nowhere else."""
    if isinstance(tree, dict):
        return {
            name: planted(each, within or name.lower().split(".")[-1] in ("email", "card"))
            for name, each in tree.items()
        }
    if isinstance(tree, list):
        return [planted(each, within) for each in tree]
    if within:
        return CANARY
    return "other" if tree == CANARY else tree


@given(TREES, st.booleans())
def test_no_masked_text_is_in_a_masked_value(tree, ascii_only):
    value = json.dumps(planted(tree), ensure_ascii=ascii_only).encode()
    found = shown(value, "email, card")
    assert b"Canary" not in found
    if b"Canary" not in value and MASK.encode() not in found:
        assert found == value


@given(TREES)
def test_what_was_edited_with_tokens_is_what_it_was_without_them(tree):
    value = json.dumps(planted(tree)).encode()
    found = find_hidden_parts(value, read_mask_rules("*: email, card").find_fields("orders"))
    assume(found.is_any)
    offered = insert_tokens(found, value)
    assert b"Canary" not in offered
    assert replace_tokens(offered.decode(), found, value) == exact_json.write_json(exact_json.parse_json(value), value)


VALUE = b'{"id":1,"buyer":{"email":"ann@example.org","n":1.10},"lines":[{"card":41},{"card":42}]}'


def edited(text):
    found = find_hidden_parts(VALUE, read_mask_rules("*: buyer.email, card").find_fields("orders"))
    return replace_tokens(text, found, VALUE)


OFFERED = '{"id":1,"buyer":{"email":"[masked 1]","n":1.10},"lines":[{"card":"[masked 2]"},{"card":"[masked 3]"}]}'


def test_what_is_masked_goes_along_unchanged_digit_by_digit():
    assert (
        insert_tokens(
            find_hidden_parts(VALUE, read_mask_rules("*: buyer.email, card").find_fields("orders")), VALUE
        ).decode()
        == OFFERED
    )
    assert edited(OFFERED) == VALUE
    assert edited(OFFERED.replace('"id":1', '"id":2')) == VALUE.replace(b'"id":1', b'"id":2')
    more = OFFERED.replace('[{"card":"[masked 2]"}', '[{"a":5},{"card":"[masked 2]"}')
    assert edited(more) == VALUE.replace(b'[{"card":41}', b'[{"a":5},{"card":41}')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OFFERED.replace('"id":1', '"id":"[masked 1]"'), "is in another place"),
        (OFFERED.replace('"id"', '"[masked 1]"'), "is in another place"),
        (OFFERED.replace('"[masked 1]"', '"x [masked 1]"'), "is in another place"),
        (OFFERED.replace('"[masked 1]"', '"bob@example.org"'), r"\[masked 1\] is gone"),
        (OFFERED.replace('{"card":"[masked 3]"}', ""), "no JSON"),
        (OFFERED.replace(',{"card":"[masked 3]"}', ""), r"\[masked 3\] is gone"),
        (OFFERED.replace("masked 3", "masked 2"), "twice"),
        (OFFERED.replace('"buyer"', '"seller"'), "is in another place"),
        ("", "no JSON"),
    ],
)
def test_a_token_stays_where_it_stands_so_that_it_shows_nothing(text, says):
    with pytest.raises(EditRefused, match=says) as error:
        edited(text)
    assert "ann@" not in str(error.value)


def test_a_value_that_has_a_token_s_words_in_it_gets_other_tokens():
    value = b'{"email":"a@example.org","note":"[masked 1]"}'
    found = find_hidden_parts(value, read_mask_rules("*: email").find_fields("orders"))
    offered = insert_tokens(found, value)
    assert offered == b'{"email":"[masked\' 1]","note":"[masked 1]"}'
    assert replace_tokens(offered.decode(), found, value) == value


SECRET = "Ann Ö. O'Neil <ann@example.org>"
WAYS = (str, str.upper, repr, ascii, json.dumps, quote, lambda text: json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cut", [slice(None), slice(0, 20), slice(8, None), slice(5, -5)])
def test_an_error_does_not_quote_what_is_masked_however_it_is_written_or_cut(way, cut):
    said = f"ValueError: bad buyer {way(SECRET)[cut]}, see order 4711"
    found = build_quotes([SECRET]).masked(said)
    assert "xampl" not in found.lower()
    assert "neil" not in found.lower()
    assert found.startswith("ValueError: bad buyer")
    assert found.endswith(", see order 4711")


@given(st.text(min_size=6, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_what_is_masked_and_long_enough_is_in_no_text(secret, before, after):
    assume(secret.lower() not in MASK.lower() and MASK.lower() not in secret.lower())
    found = build_quotes([secret]).masked(f"{before}{secret}{after}")
    assert secret not in found.replace(MASK, "\0") or len(secret) < 6


@pytest.mark.parametrize(("secret", "kept"), [("42", True), ("422", False), ("eur", False)])
def test_short_ones_are_masked_as_words_of_their_own_and_the_shortest_are_not(secret, kept):
    assert (secret in build_quotes([secret]).masked(f"it is {secret}, x{secret}x").replace(f"x{secret}x", "")) is kept


@pytest.mark.parametrize("length", [3, 5, 7, 8, 100])
def test_looking_for_what_is_masked_takes_time_for_the_text_alone(length):
    rng = random.Random(length)
    secrets = ["".join(rng.choices(string.ascii_lowercase, k=length)) for _ in range(30_000 // length)]
    text = " ".join("".join(rng.choices(string.ascii_lowercase, k=9)) for _ in range(3_000))
    began = time.process_time()
    found = build_quotes(secrets).masked(f"{text} {secrets[-1]}")
    assert time.process_time() - began < 0.5
    assert found.endswith(f" {MASK}")


def test_a_text_too_long_to_be_searched_and_the_key_beside_too_much_that_is_masked_are_not_shown():
    assert build_quotes(["ann@a.org"]).masked("x" * (LONGEST_TEXT + 1)) == NOT_SHOWN
    assert build_quotes([]).masked("x" * (LONGEST_TEXT + 1)) != NOT_SHOWN
    fields = read_mask_rules("*: email").find_fields("orders")
    known = find_quotes(fields, [find_hidden_parts(b'{"email":"ann@a.org"}', fields)], None, (), most=5)
    assert mask_key(b"ann@a.org", fields, known) == NOT_SHOWN.encode()


def test_where_it_is_not_known_what_is_masked_no_text_is_shown():
    fields = read_mask_rules("*: email").find_fields("orders")
    unread = find_hidden_parts(b"\xff", fields)
    assert find_quotes(fields, [unread], None, ()).masked("no such thing") == NOT_SHOWN
    assert (
        find_quotes(fields, [find_hidden_parts(None, fields)], None, (), whole=False).masked("no such thing")
        == NOT_SHOWN
    )
    assert build_quotes(["x" * (MOST + 1)]).masked("no such thing") == NOT_SHOWN


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (LetterFilter(text="ann"), False),
        (LetterFilter(text="ann", topics=("mails",)), True),
        (LetterFilter(text="ann", topics=("mails", "orders")), False),
        (LetterFilter(text="ann", topics=("carts",)), False),
        (LetterFilter(key=b"k"), False),
        (LetterFilter(key=b"k", topics=("orders",)), True),
        (LetterFilter(key=b"k", topics=("carts",)), False),
        (LetterFilter(headers=(("X-Token", "1"),)), False),
        (LetterFilter(headers=(("h", "1"),)), True),
        (LetterFilter(exceptions=("E",), handlers=("a",), reasons=("poison",)), True),
    ],
)
def test_what_somebody_does_not_see_is_not_searched(asked, fits):
    masks = LetterMasks(read_mask_rules("orders: email; carts: @key, @header.x-token"))
    if fits:
        assert masks.check(asked) is asked
    else:
        with pytest.raises(FilterFault, match="does not see every field"):
            masks.check(asked)
    assert LetterMasks(read_mask_rules("")).check(asked) is asked
