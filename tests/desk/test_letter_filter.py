"""A filter matches the same letters in memory as in the database."""

import pytest

from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.model import filter_syntax
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter, accepts_letter, check_topic_filter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import FilterFault
from tests.desk.letters import letter
from tests.desk.test_letter_writer import record

LETTERS = [
    letter(0, key=b"4711", error_message="card declined", error_class="bank.CardDeclined", failed_at=1_000),
    letter(1, key=None, error_class="shop.CardDeclined", reason="permanent", version="1.4.1", failed_at=2_000),
    letter(
        2,
        key=b"\x00\xff",
        handler="orders.handlers.notify",
        headers=(("tenant", b"blue"), ("trace", b"\x00\xff")),
        failed_at=3_000,
    ),
    letter(
        3, handler="", origin="spring", value=b'{"name": "Zo\xc3\xab"}', headers=(("tenant", None),), failed_at=3_000
    ),
    letter(4, error_class="carddeclined", error_message="Declined by bank", value=None, key=b"", failed_at=4_000),
]
FILTERS = [
    ALL_LETTERS,
    LetterFilter(handlers=("orders.handlers.notify",)),
    LetterFilter(handlers=("orders.handlers.notify", "")),
    LetterFilter(topics=("orders",)),
    LetterFilter(topics=("refunds",)),
    LetterFilter(exceptions=("CardDeclined",)),
    LetterFilter(exceptions=("Declined",)),
    LetterFilter(exceptions=("bank.CardDeclined", "carddeclined")),
    LetterFilter(reasons=("permanent",)),
    LetterFilter(versions=("1.4.1",)),
    LetterFilter(versions=("",)),
    LetterFilter(origins=("spring",)),
    LetterFilter(consumer_groups=("bridge",)),
    LetterFilter(consumer_groups=("payments",)),
    LetterFilter(text="DECLINED bank"),
    LetterFilter(text="zoë"),
    LetterFilter(text="4711"),
    LetterFilter(text="decl"),
    LetterFilter(key=b"4711"),
    LetterFilter(key=b""),
    LetterFilter(key=b"\x00\xff"),
    LetterFilter(headers=(("tenant", "blue"),)),
    LetterFilter(headers=(("tenant", ""),)),
    LetterFilter(headers=(filter_syntax.parse_header("trace=0x00ff"),)),
    LetterFilter(since=3_000),
    LetterFilter(until=3_000),
    LetterFilter(attempts=13),
    LetterFilter(attempts=14),
    LetterFilter(since=2_000, until=4_000, handlers=("orders.handlers.notify",)),
]


def test_a_letter_is_accepted_where_the_database_finds_it(database):
    record(database, *LETTERS, largest=1_000_000)
    for asked in FILTERS:
        found = {each.offset for each in LetterLookup(database).each(asked)}
        assert {each.identity.offset for each in LETTERS if accepts_letter(asked, each)} == found, asked


@pytest.mark.parametrize(
    "asked",
    [
        LetterFilter(ids=(1,)),
        LetterFilter(groups=(1,)),
        LetterFilter(statuses=(LetterStatus.OPEN,)),
        LetterFilter(plans=(1,)),
        LetterFilter(died_again=True),
        LetterFilter(values=(("id", "1"),)),
    ],
)
def test_what_only_the_database_knows_is_refused_of_a_topic(asked):
    with pytest.raises(FilterFault, match="without --from-topic"):
        check_topic_filter(asked)


@pytest.mark.parametrize(
    ("filled", "said"),
    [
        ({"exceptions": tuple(map(str, range(101)))}, "101 values of exception"),
        ({"headers": tuple(("name", str(each)) for each in range(101))}, "101 values of header"),
        ({"values": tuple((str(each), "") for each in range(101))}, "101 values of value"),
        ({"text": " ".join(map(str, range(101)))}, "101 words"),
    ],
)
def test_a_filter_has_no_more_values_than_a_database_can_search_for(filled, said):
    with pytest.raises(FilterFault, match=said):
        LetterFilter(**filled)
