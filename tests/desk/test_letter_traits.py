"""The headers and fields that set the letters of a group apart, without what is masked."""

import json

import pytest

from bridge.deadletters.db.letter_rows import find_recorded_places
from bridge.deadletters.inspection.failure_groups import FailureGroups
from bridge.deadletters.masking.letter_mask import NO_MASKS, LetterMasks
from bridge.deadletters.masking.letter_traits import GroupTraits
from bridge.deadletters.model.stored_letter import LetterStatus, pack_headers
from bridge.settings.masked_fields import read_mask_rules
from tests.desk import rows


@pytest.fixture
def group(database):
    """Three open letters and one that is done, beside two letters of another group and one of another topic."""
    header = pack_headers([("region", b"eu"), ("token", b"zebra"), ("by", b"zebra;1")])
    with database.writing() as connection:
        of = rows.kind(connection)
        other, far = rows.kind(connection, error_class="a.B"), rows.kind(connection, topic="refunds", error_class="a.C")
        for offset in range(3):
            value = json.dumps(
                {"card": "zebra", "note": "of zebra", "amount": 7, "n": offset, "deep": {"in": {"it": "x"}, "card": 1}}
            ).encode()
            rows.letter(connection, of, offset, value=value, value_size=len(value), headers=header, key=b"ann")
        rows.letter(connection, of, 3, LetterStatus.RESOLVED, value=b'{"amount": 9}')
        for offset in range(4, 6):
            rows.letter(connection, other, offset, value=b'{"amount": 8, "currency": "EUR"}')
        rows.letter(connection, far, 9, value=b'{"far": 1}')
        id_ = rows.group_of(connection, of)
    return FailureGroups(database).one(id_)


def test_open_letters_of_a_group_are_compared_with_others_of_its_topics(database, group):
    found = GroupTraits(database, NO_MASKS).find_traits(group)
    assert (len(found.these.traits), len(found.others.traits), found.these.unread) == (3, 2, 0)
    assert {(each.what, each.name, each.says, each.letters, each.others) for each in found.traits} == {
        ("field", "card", "zebra", 3, 0),
        ("field", "note", "of zebra", 3, 0),
        ("field", "amount", "7", 3, 0),
        ("field", "currency", None, 3, 0),
        ("header", "region", "eu", 3, 0),
        ("header", "token", "zebra", 3, 0),
        ("header", "by", "zebra;1", 3, 0),
        ("field", "deep.in.it", "x", 3, 0),
        ("key", "", "ann", 3, 0),
        ("field", "deep.card", "1", 3, 0),
    }


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        ("orders: card, @header.token", {"amount", "currency", "region", "deep.in.it", ""}),
        ("orders: CARD", {"amount", "currency", "region", "deep.in.it", ""}),
        ("*: @value", {"region", ""}),
        ("*: @value; orders: @key", {"region"}),
        ("orders: @header.*", {"amount", "currency", "deep.in.it", "deep.card", ""}),
    ],
)
def test_what_is_masked_is_not_compared_nor_what_quotes_it(database, group, mask, left):
    found = GroupTraits(database, LetterMasks(read_mask_rules(mask))).find_traits(group)
    assert {each.name for each in found.traits} == left


def test_of_a_value_in_which_masks_cannot_be_found_nothing_is_compared(database, group):
    with database.writing() as connection:
        rows.letter(
            connection, rows.kind(connection), 77, value=b'{"card": "zebra', headers=pack_headers([("x", b"zebra")])
        )
    assert len(GroupTraits(database, LetterMasks(read_mask_rules("orders: card"))).find_traits(group).these.traits) == 3
    unmasked = GroupTraits(database, NO_MASKS).find_traits(group).these
    assert (len(unmasked.traits), unmasked.unread) == (4, 1)


def test_what_has_letters_no_more_has_nothing_in_common(database, group):
    with database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM letters")
    assert GroupTraits(database, NO_MASKS).find_traits(group).traits == []


def test_what_has_a_letter_of_the_handler_is_no_success_of_it_whatever_became_of_it(database):
    with database.writing() as connection:
        of = rows.kind(connection)
        rows.letter(connection, of, 3, LetterStatus.RESOLVED)
        rows.letter(connection, rows.kind(connection, handler="other"), 4)
        rows.letter(connection, rows.kind(connection, topic="refunds"), 5)
        places = [(0, 3), (0, 4), (0, 5), (1, 3)]
        assert find_recorded_places(connection, "orders", "orders.handlers.charge", places) == {(0, 3)}
