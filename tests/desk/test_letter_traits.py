"""The headers and fields that set the letters of a group apart, without what is masked."""

import json

import pytest

from bridge.deadletters.inspection.failure_groups import FailureGroups
from bridge.deadletters.masking.letter_mask import NO_MASKS, LetterMasks
from bridge.deadletters.masking.letter_traits import GroupTraits, LetterTrait, TraitSide, find_common_traits
from bridge.deadletters.model.stored_letter import LetterStatus, pack_headers
from bridge.settings.masked_fields import read_mask_rules
from tests.desk import rows


def side(*traits, unread=0):
    return TraitSide([{("field", name): says for name, says in each.items()} for each in traits], unread)


def test_what_half_have_and_others_less_often_is_in_common_and_what_sets_apart_most_comes_first():
    these = side(*({"currency": "EUR", "country": "DE", "id": str(n)} for n in range(10)))
    others = side(*({"currency": "EUR", "country": "DE" if n else "FR", "id": str(n)} for n in range(2)))
    assert find_common_traits(these, others).traits == [LetterTrait("field", "country", "DE", 10, 10, 1, 2)]
    found = find_common_traits(these, TraitSide()).traits
    assert [(each.name, each.of_others) for each in found] == [("country", 0), ("currency", 0)]


def test_what_others_have_and_these_lack_is_in_common_too():
    found = find_common_traits(side({}, {}, {"currency": "EUR"}), side({"currency": "EUR"}, {"currency": None}))
    assert found.traits == [LetterTrait("field", "currency", None, 2, 3, 0, 2)]


def test_of_a_value_that_is_not_read_no_field_is_said_to_be_missing():
    assert find_common_traits(side({}, {"a": "1"}, unread=1), side({"a": "2"})).traits == [
        LetterTrait("field", "a", "1", 1, 1, 0, 1)
    ]


@pytest.fixture
def group(database):
    """Three open letters and one that is done, beside two letters of another group and one of another topic."""
    header = pack_headers([("region", b"eu"), ("token", b"zebra"), ("by", b"zebra;1")])
    with database.writing() as connection:
        of = rows.kind(connection)
        other, far = rows.kind(connection, error_class="a.B"), rows.kind(connection, topic="refunds", error_class="a.C")
        for offset in range(3):
            value = json.dumps({"card": "zebra", "note": "of zebra", "amount": 7, "n": offset, "deep": {}}).encode()
            rows.letter(connection, of, offset, value=value, value_size=len(value), headers=header)
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
    }


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        ("orders: card, @header.token", {"amount", "currency", "region"}),
        ("orders: CARD", {"amount", "currency", "region"}),
        ("*: @value", {"region"}),
        ("orders: @header.*", {"amount", "currency"}),
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
