"""A filter selects the same letters in the database as in plain Python, by every index, page by page."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.deadletters.db import letter_query
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterCursor, LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.desk import filter_model as model
from tests.desk.filter_model import Made
from tests.hypothesis_profiles import examples


def some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=2).map(tuple)


seldom = st.sampled_from([False, False, False, True])
times = st.none() | st.integers(990, 1_210)
headers = st.sampled_from([("tenant", "blue"), ("tenant", "green"), ("trace", "a-1"), ("tenant", ""), ("no", "thing")])


@st.composite
def filters(draw: st.DrawFn) -> LetterFilter:
    since, until = draw(times), draw(times)
    if since is not None and until is not None and since >= until:
        since, until = None, since
    return LetterFilter(
        ids=tuple(draw(st.lists(st.integers(1, 450), max_size=40))) if draw(seldom) else (),
        handlers=draw(some(model.HANDLERS)) if draw(seldom) else (),
        topics=draw(some(model.TOPICS)) if draw(seldom) else (),
        exceptions=draw(some((*model.EXCEPTIONS, "CardDeclined", "Declined"))) if draw(seldom) else (),
        reasons=draw(some(model.REASONS)) if draw(seldom) else (),
        versions=draw(some(model.VERSIONS)) if draw(seldom) else (),
        origins=draw(some(model.ORIGINS)) if draw(seldom) else (),
        consumer_groups=draw(some(model.CONSUMER_GROUPS)) if draw(seldom) else (),
        causes=draw(some(model.CAUSES)) if draw(seldom) else (),
        statuses=draw(some(tuple(LetterStatus))) if draw(seldom) else (),  # type: ignore[arg-type]
        groups=tuple(draw(st.lists(st.integers(1, 16), max_size=3))) if draw(seldom) else (),
        text=draw(st.sampled_from(model.TEXTS)) if draw(seldom) else "",
        key=draw(st.sampled_from(model.KEYS)) if draw(seldom) else None,
        headers=tuple(draw(st.lists(headers, max_size=2))) if draw(seldom) else (),
        values=tuple(draw(st.lists(st.sampled_from([*model.VALUE_FIELDS]), max_size=2))) if draw(seldom) else (),
        since=since,
        until=until,
        plans=tuple(draw(st.lists(st.sampled_from((*model.PLANS, 9)), max_size=2))) if draw(seldom) else (),
        died_again=draw(seldom),
        attempts=draw(st.none() | st.integers(1, 6)) if draw(seldom) else None,
    )


class World:
    def __init__(self, database: Database, letters: list[Made]) -> None:
        self.database = database
        self.letters = letters

    def __repr__(self) -> str:
        return "the world"


@pytest.fixture
def world(database: Database, monkeypatch: pytest.MonkeyPatch) -> World:
    # Of few letters as of a million: each way has an end, and goes on from there.
    for name, small in (("FIRST", 9), ("RARE", 12), ("STRIDE", 17), ("FEW", 60)):
        monkeypatch.setattr(letter_query, name, small)
    monkeypatch.setattr(letter_query, "MOST_LOOKED_THROUGH", 17)
    monkeypatch.setattr(letter_query, "MOST_COUNTED", 30)
    with database.writing() as connection:
        made = model.make(connection, 400, 11)
    return World(database, made)


def every_page(letters: LetterLookup, asked: LetterFilter, limit: int) -> list[int]:
    found: list[int] = []
    before: LetterCursor | None = None
    while True:
        page = letters.page(asked, limit, before)
        assert len(page.letters) <= limit
        found += [each.id for each in page.letters]
        if page.next is None:
            return found
        assert before is None or page.next < before
        before = page.next


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
WIDTHS = st.sampled_from([4, 25, 100])


@settings(max_examples=examples(25), suppress_health_check=QUIET)
@given(asked=filters(), limit=WIDTHS)
def test_pages_plans_and_counts_have_what_a_filter_of_plain_python_has(world, asked, limit):
    agree(world, asked, limit)


@pytest.mark.slow
@settings(max_examples=examples(100), suppress_health_check=QUIET)
@given(asked=filters(), limit=WIDTHS)
def test_so_they_have_with_many_filters(world, asked, limit):
    agree(world, asked, limit)


def agree(world: World, asked: LetterFilter, limit: int) -> None:
    """What the database finds is what plain Python does."""
    expected = model.meant(asked, world.letters)
    letters = LetterLookup(world.database)
    assert every_page(letters, asked, limit) == expected
    among = find_among(world.database, asked)
    with world.database.reading() as connection:
        assert {row.id for row in connection.execute(select_matching_letters(asked, among))} == set(expected)
    counted = letters.count(asked)
    assert counted.number == len(expected) if counted.exact else counted.number <= len(expected)


def test_the_letters_of_a_filter_are_taken_one_after_another_as_many_as_are_wanted(world):
    found = LetterLookup(world.database).each(ALL_LETTERS)
    assert [next(found).id for _ in range(7)] == model.meant(ALL_LETTERS, world.letters)[:7]


def test_counts_of_what_is_tallied_are_exact_however_many_there_are(world):
    asked = LetterFilter(handlers=("orders.handlers.charge",))
    counted = LetterLookup(world.database).count(asked)
    assert counted.exact
    assert counted.number == len(model.meant(asked, world.letters)) > 30


def test_a_word_that_many_have_is_counted_by_the_index(world):
    """However few of them are among the newest, and however many have it: up to where a count stops."""
    for text in model.TEXTS:
        asked = LetterFilter(text=text)
        counted = LetterLookup(world.database).count(asked)
        meant = len(model.meant(asked, world.letters))
        assert (counted.number, counted.exact, counted.among) == (min(meant, 30), meant <= 30, None)


def test_a_count_of_the_newest_alone_says_that_it_is_one(world):
    counts = [LetterLookup(world.database).count(LetterFilter(text=text, attempts=2)) for text in model.TEXTS]
    (among, *_) = [each for each in counts if not each.exact]
    assert str(among) == f"at least {among.number} (counted among the newest 17 alone)"


def test_a_count_that_stops_says_so(world):
    assert str(LetterLookup(world.database).count(LetterFilter(since=0))) == "30+"
