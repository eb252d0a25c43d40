"""What is promised of the way back in a list: it is the way there, backwards, with any filter."""

import pytest

from bridge.deadletters.db import letter_query
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.model.letter_filter import LetterCursor, LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.desk.letters import letter as made
from tests.desk.rows import kind, letter
from tests.desk.test_letter_writer import record


def cursors(found):
    return [LetterCursor(each.failed_at, each.id) for each in found]


@pytest.mark.parametrize(
    "asked",
    [
        LetterFilter(),
        LetterFilter(statuses=(LetterStatus.OPEN,)),
        LetterFilter(statuses=(LetterStatus.OPEN, LetterStatus.RESOLVED)),
        LetterFilter(handlers=("orders.notify",)),
        LetterFilter(handlers=("orders.notify",), statuses=(LetterStatus.RESOLVED,), since=4, until=18),
        LetterFilter(ids=tuple(range(1, 30, 2))),
    ],
)
def test_the_letters_in_front_of_one_are_those_before_it_in_the_list(database, asked):
    with database.writing() as connection:
        kinds = [kind(connection), kind(connection, "orders.notify")]
        for at in range(60):
            status = LetterStatus.RESOLVED if at % 5 == 0 else LetterStatus.OPEN
            letter(connection, kinds[at % 3 == 0], at, status, failed_at=at // 3)
    here = LetterLookup(database)
    every = cursors(here.page(asked, 100).letters)
    assert every
    for at, place in enumerate(every):
        page = here.newer(asked, 4, place)
        assert cursors(page.letters) == every[max(0, at - 4) : at]
        assert (page.next is None) == (at <= 4)
        if page.next is not None:
            assert page.next == every[at - 4]


def test_words_headers_and_keys_are_of_the_filter_on_the_way_back_too(database):
    ways = [(b"k%d" % (at % 2), (("tenant", b"t%d" % (at % 3)),), f"word{at % 5}") for at in range(30)]
    record(
        database,
        *(
            made(at, failed_at=1_000 + at, key=key, headers=headers, error_message=said)
            for at, (key, headers, said) in enumerate(ways)
        ),
    )
    here = LetterLookup(database)
    for asked in (
        LetterFilter(key=b"k1"),
        LetterFilter(headers=(("tenant", "t1"),)),
        LetterFilter(text="word2"),
        LetterFilter(text="word2", key=b"k0"),
    ):
        every = cursors(here.page(asked, 100).letters)
        assert len(every) > 2
        assert cursors(here.newer(asked, 100, every[-1]).letters) == every[:-1]


def test_where_nothing_near_is_of_the_filter_it_says_where_to_look_on(database, monkeypatch):
    monkeypatch.setattr(letter_query, "STRIDE", 10)
    with database.writing() as connection:
        kinds = [kind(connection), kind(connection, "orders.notify")]
        for at in range(41):
            letter(connection, kinds[at in (0, 40)], at, failed_at=at)
    here, asked = LetterLookup(database), LetterFilter(handlers=("orders.notify",))
    (last, first) = cursors(here.page(asked, 5).letters)
    looks, page = 0, here.newer(asked, 5, first)
    while not page.letters:
        looks += 1
        assert page.next is not None
        page = here.newer(asked, 5, page.next)
    assert looks == 3
    assert cursors(page.letters) == [last]
