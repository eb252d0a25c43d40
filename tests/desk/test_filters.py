"""Filters: what a person writes of them, and how they travel."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.model import filter_syntax
from bridge.deadletters.model.letter_filter import (
    MOST_IDS,
    MOST_VALUES,
    LetterFilter,
    describe_filter,
    describe_filter_for_audit,
    list_filter_pairs,
)
from bridge.deadletters.model.search_words import mark_header
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import FilterFault, NoMoment

#: 2026-11-20T08:30:00Z.
NOW = 1_795_163_400.0

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
some_texts = st.lists(texts, max_size=3).map(tuple)
numbers = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
filters = st.builds(
    LetterFilter,
    ids=numbers,
    handlers=some_texts,
    topics=some_texts,
    exceptions=some_texts,
    reasons=some_texts,
    versions=some_texts,
    origins=some_texts,
    consumer_groups=some_texts,
    causes=some_texts,
    statuses=st.lists(st.sampled_from(LetterStatus), max_size=2).map(tuple),
    groups=numbers,
    text=st.sampled_from(["", "declined", "card declined"]),
    key=st.none() | st.binary(max_size=6),
    headers=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    values=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    since=st.none() | st.integers(0, 1_000),
    until=st.none() | st.integers(1_001, 2_000),
    plans=numbers,
    died_again=st.booleans(),
    attempts=st.none() | st.integers(1, 99),
)


@given(filters)
def test_a_filter_travels_as_json(asked):
    assert LetterFilter.from_data(json.loads(json.dumps(asked.to_data()))) == asked


def test_a_filter_may_name_as_many_letters_and_values_as_the_database_takes():
    words = " ".join(map(str, range(MOST_VALUES)))
    assert LetterFilter(ids=(0, *[2**63 - 1] * (MOST_IDS - 1)), text=words).ids[-1] == 2**63 - 1
    assert len(LetterFilter(exceptions=("Declined",) * MOST_VALUES).exceptions) == MOST_VALUES
    with pytest.raises(FilterFault, match="no letter's id"):
        LetterFilter(groups=(2**63,))


@pytest.mark.parametrize(
    ("asked", "words", "audited"),
    [
        (LetterFilter(), "", "all"),
        (LetterFilter(handlers=("charge",), reasons=("poison",)), "handler charge, reason poison", None),
        (LetterFilter(statuses=(LetterStatus.OPEN,), handlers=("charge",)), "handler charge", None),
        (LetterFilter(ids=(7,)), "letter 7", "letter 7"),
        (LetterFilter(ids=(7, 9)), "2 letters, chosen one by one", "2 letters, chosen one by one"),
        (
            LetterFilter(
                handlers=("charge",), text="Zoe", key=b"Zoe", headers=(("name", "Zoe"),), values=(("name", "Zoe"),)
            ),
            None,
            "handler charge, words, a key, headers, fields of the value",
        ),
    ],
)
def test_a_filter_is_described_in_words_and_the_audit_log_has_no_words_keys_and_headers_of_it(asked, words, audited):
    assert words is None or describe_filter(asked.to_data()) == words
    assert audited is None or describe_filter_for_audit(asked) == audited


def test_a_filter_of_nothing_is_empty_json():
    assert LetterFilter().to_data() == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"handler": ["x"]}, "A filter has no handler"),
        ({"since": "yesterday"}, "no filter"),
        ({"statuses": ["gone"]}, "no filter"),
        ({"key": "%"}, "no filter"),
        ({"attempts": -1}, "no number of attempts"),
        ({"plans": [-1]}, "no letter's id"),
        ({"text": "--- !"}, "no word"),
        ({"since": 5, "until": 5}, "`since` must be earlier"),
        ({"handlers": ["a\0b"]}, "a character that the database cannot store"),
        ({"values": [["a", "\ud800"]]}, "a character that the database cannot store"),
        ({"origins": ["\ud800"]}, "a character that the database cannot store"),
        ({"ids": [0] * (MOST_IDS + 1)}, "one by one"),
    ],
)
def test_a_filter_that_means_nothing_says_why(data, said):
    with pytest.raises(FilterFault, match=said):
        LetterFilter.from_data(data)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-20T08:00", "2026-11-20T08:00:00+00:00"),
        ("2026-11-20T08:00+01:00", "2026-11-20T07:00:00+00:00"),
        ("2026-11-20", "2026-11-20T00:00:00+00:00"),
        ("2h", "2026-11-20T06:30:00+00:00"),
        ("3 d", "2026-11-17T08:30:00+00:00"),
        ("90S", "2026-11-20T08:28:30+00:00"),
        ("today", "2026-11-20T00:00:00+00:00"),
        ("Yesterday", "2026-11-19T00:00:00+00:00"),
    ],
)
def test_a_time_is_written_as_people_do(text, at):
    assert filter_syntax.parse_moment(text, NOW) == filter_syntax.parse_moment(at, NOW)


def test_an_end_of_a_range_is_a_word_or_an_offset_as_it_stands_or_a_time_with_its_zone():
    assert [filter_syntax.parse_range_end(text, NOW) for text in ("earliest", "latest", "42")] == [
        "earliest",
        "latest",
        "42",
    ]
    assert filter_syntax.parse_range_end("2h", NOW) == "2026-11-20T06:30:00+00:00"
    with pytest.raises(NoMoment, match="or an offset, earliest or latest"):
        filter_syntax.parse_range_end("-1", NOW)


def test_an_address_has_the_time_of_a_filter_as_a_person_writes_it():
    asked = LetterFilter(since=int(NOW * 1000) + 5).to_data()
    assert list(list_filter_pairs(asked)) == [("since", "2026-11-20T08:30:00.005Z")]


def test_a_time_is_milliseconds_since_the_epoch():
    assert filter_syntax.parse_moment("2026-11-20T08:30:00Z", NOW) == NOW * 1000


@pytest.mark.parametrize(
    "text", ["", "2x", "soon", "20.11.2026", "9" * 30 + "d", "999999d", "9999-12-31T23:59:59-01:00", "٣d"]
)
def test_what_is_no_time_is_told_how_to_write_one(text):
    with pytest.raises(FilterFault, match="is no time: write"):
        filter_syntax.parse_moment(text, NOW)


@pytest.mark.parametrize(
    ("text", "key"),
    [("4711", b"4711"), ("", b""), ("0x00ff", b"\0\xff"), ("base64:AP8=", b"\0\xff"), ("text:0xcafe", b"0xcafe")],
)
def test_a_key_is_text_or_bytes_that_say_how_they_are_written(text, key):
    assert filter_syntax.parse_key(text) == key


@pytest.mark.parametrize("text", ["0xzz", "base64:%"])
def test_a_key_that_is_not_what_it_begins_as_is_refused(text):
    with pytest.raises(FilterFault, match="text:"):
        filter_syntax.parse_key(text)


def test_a_header_is_a_name_and_a_value():
    assert filter_syntax.parse_header("tenant=a=b") == ("tenant", "a=b")
    assert filter_syntax.parse_header("empty=") == ("empty", "")
    for text in ("tenant", "=x"):
        with pytest.raises(FilterFault, match="name=value"):
            filter_syntax.parse_header(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0x00ff", b"\0\xff"), ("base64:AP8=", b"\0\xff"), ("text:0xcafe", b"0xcafe"), ("0x6869", b"hi"), ("a=b", b"a=b")],
)
def test_a_headers_value_is_bytes_that_say_how_they_are_written_and_a_plan_and_an_address_keep_it(text, value):
    asked = LetterFilter(headers=(filter_syntax.parse_header(f"trace={text}"),))
    assert asked.words == (mark_header(("trace", value)),)
    data = json.loads(json.dumps(asked.to_data(), ensure_ascii=False).encode())
    assert LetterFilter.from_data(data) == asked
    ((_, said),) = list_filter_pairs(data)
    assert filter_syntax.parse_header(said) == asked.headers[0]


@pytest.mark.parametrize("text", ["0xzz", "0x0", "base64:%"])
def test_a_headers_value_that_is_not_what_it_begins_as_is_refused(text):
    with pytest.raises(FilterFault, match=r"value of header 'trace', write text:"):
        filter_syntax.parse_header(f"trace={text}")
    with pytest.raises(FilterFault, match="text:"):
        LetterFilter.from_data({"headers": [["trace", text]]})


def test_a_status_that_is_none_is_told_which_there_are():
    assert filter_syntax.parse_statuses(["Open", "archived"]) == (LetterStatus.OPEN, LetterStatus.ARCHIVED)
    with pytest.raises(FilterFault, match="open, replaying, resolved, discarded, archived"):
        filter_syntax.parse_statuses(["closed"])


@pytest.mark.parametrize(
    ("text", "field"),
    [("order.currency=EUR", ("order.currency", "EUR")), ("n=", ("n", "")), ("formula=a=b", ("formula", "a=b"))],
)
def test_a_field_of_a_value_is_its_name_and_its_text(text, field):
    assert filter_syntax.parse_value_field(text) == field
    assert LetterFilter.parse({"value": [text]}, NOW).values == (field,)


@pytest.mark.parametrize("text", ["", "=EUR", "order", "order..currency=EUR", ".order=1", "order.=1"])
def test_what_is_no_field_of_a_value_is_told_how_to_write_one(text):
    with pytest.raises(FilterFault, match=r"write order\.currency=EUR"):
        filter_syntax.parse_value_field(text)
