"""Which records are a person's, which texts quote the person, and what a certificate may name."""

import pytest

from bridge.deadletters.erasure.person_records import PersonRecord, find_deletable_range
from bridge.deadletters.model.erasure_subject import ErasureSubject, SubjectField, parse_subject_field
from bridge.errors import ErasureRefused
from bridge.kafka.record_deletion import RecordRetention

ANN = ErasureSubject((b"4711",), (parse_subject_field("value.customer.id=80231"),), ("Ann Ømann", "ann@example.com"))


@pytest.mark.parametrize(
    ("key", "value", "owns"),
    [
        (b"4711", None, True),
        (b"47110", b"{}", False),
        (None, b'{"customer": {"id": 80231}}', True),
        (None, b'{"customer": {"id": "80231"}}', True),
        (None, b'[{"customer": [{"id": 1}, {"id": 80231}]}]', True),
        (None, b'{"customer": {"id": 802310}}', False),
        (None, b'{"customer": {"id": 80231.0}}', False),
        (None, b'{"id": 80231, "customer": 80231}', False),
        (None, b'{"customer": {"id": 80231', False),
        (None, b"80231 \xff", False),
        (None, None, False),
    ],
)
def test_a_record_is_the_persons_by_its_key_or_a_field_of_its_value(key, value, owns):
    assert ANN.owns(key, value) is owns


@pytest.mark.parametrize("field", ["customer.id=1", "value=1", "value.id", "value.id=", "value..id=1", "header.x=1"])
def test_what_is_no_field_of_a_value_is_refused(field):
    with pytest.raises(ErasureRefused):
        parse_subject_field(field)


def test_a_field_is_found_however_its_producer_escapes_it():
    owner = ErasureSubject((), (parse_subject_field("value.name=Ø/1"),))
    assert owner.owns(None, b'{"name": "\\u00D8\\/1"}')
    assert owner.owns(None, '{"name": "Ø/1"}'.encode())


def test_nobody_is_refused():
    with pytest.raises(ErasureRefused, match="name the person"):
        ErasureSubject(texts=("Ann",))


@pytest.mark.parametrize("text", ["", ".", "@a"])
def test_a_text_that_would_be_erased_everywhere_is_refused(text):
    with pytest.raises(ErasureRefused, match="fewer than 2 letters or digits"):
        ErasureSubject((b"4711",), texts=(text,))


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("no card of ann ømann, 4711!", "no card of [erased], [erased]!"),
        ('{"name": "Ann \\u00d8mann"}', '{"name": "[erased]"}'),
        ("GET /u?m=ann%40example.com", "GET /u?m=[erased]"),
        # Coordinates and numbers of our own are no quotes.
        ("orders-0-4711 of plan 4711, letter 4711", "orders-0-4711 of plan 4711, letter 4711"),
        ("14711 4711x", "14711 4711x"),
    ],
)
def test_quotes_of_the_person_are_redacted_and_nothing_else(text, redacted):
    assert ANN.redact(text) == redacted
    assert ANN.is_quoted(text) is (text != redacted)


def test_the_texts_of_a_json_text_are_redacted_and_its_numbers_stay():
    assert ANN.redact_json('{"key": "4711", "ids": [4711]}') == '{"key": "[erased]", "ids": [4711]}'


def test_a_short_key_is_not_searched_in_texts_unless_it_is_named():
    short = ErasureSubject((b"17",))
    assert (short.redact("17 letters"), short.short_texts) == ("17 letters", 1)
    named = ErasureSubject((b"17",), texts=("17",))
    assert (named.redact("user 17"), named.short_texts) == ("user [erased]", 0)


def test_a_person_has_one_digest_for_one_salt_whatever_the_order_and_the_texts():
    one = ErasureSubject((b"a", b"b"), (SubjectField(("x",), "1"),), ("Ann",))
    same = ErasureSubject((b"b", b"a"), (SubjectField(("x",), "1"),))
    assert one.digest("salt") == same.digest("salt") != one.digest("pepper")
    assert one.digest("salt") != ErasureSubject((b"a",), (SubjectField(("x",), "1"),)).digest("salt")
    assert ErasureSubject((b"x=1",)).digest("salt") != ErasureSubject((), (SubjectField(("x",), "1"),)).digest("salt")


@pytest.mark.parametrize(
    ("limit", "below", "left"), [(0, None, 3), (3, None, 3), (4, 4, 2), (9, 6, 1), (10, 10, 0), (99, 10, 0)]
)
def test_a_partition_is_deleted_up_to_the_last_record_of_the_person_before_what_must_stay(limit, below, left):
    records = [PersonRecord(offset, 0) for offset in (3, 5, 9)]
    found = find_deletable_range(records, limit, "why")
    assert found[:2] == (below, left)
    assert bool(found.why) is bool(left)


@pytest.mark.parametrize(
    ("config", "end"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "1000", "segment.ms": "500"}, 2 + 1.5 + 360),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "segment.ms": "500"}, None),
        ({"cleanup.policy": "compact", "retention.ms": "1000", "segment.ms": "500"}, None),
    ],
)
def test_a_topic_says_until_when_at_the_latest_it_keeps_a_record(config, end):
    retention = RecordRetention.from_config(config)
    assert retention is not None
    assert retention.find_end(2000) == end


def test_a_topic_whose_configuration_is_not_told_says_nothing():
    assert RecordRetention.from_config({}) is None
