"""A filter asked of letters themselves means those that it means in the database."""

import pytest

from bridge.deadletters.letters import written
from bridge.deadletters.letters.accepting import accepts, check
from bridge.deadletters.letters.filters import EVERYTHING, Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.questions.letters import Letters
from bridge.errors import FilterFault
from tests.desk.letters import letter
from tests.desk.test_recording import record

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
    EVERYTHING,
    Filter(handlers=("orders.handlers.notify",)),
    Filter(handlers=("orders.handlers.notify", "")),
    Filter(topics=("orders",)),
    Filter(topics=("refunds",)),
    Filter(exceptions=("CardDeclined",)),
    Filter(exceptions=("Declined",)),
    Filter(exceptions=("bank.CardDeclined", "carddeclined")),
    Filter(reasons=("permanent",)),
    Filter(versions=("1.4.1",)),
    Filter(versions=("",)),
    Filter(origins=("spring",)),
    Filter(text="DECLINED bank"),
    Filter(text="zoë"),
    Filter(text="4711"),
    Filter(text="decl"),
    Filter(key=b"4711"),
    Filter(key=b""),
    Filter(key=b"\x00\xff"),
    Filter(headers=(("tenant", "blue"),)),
    Filter(headers=(("tenant", ""),)),
    Filter(headers=(written.header("trace=0x00ff"),)),
    Filter(since=3_000),
    Filter(until=3_000),
    Filter(attempts=13),
    Filter(attempts=14),
    Filter(since=2_000, until=4_000, handlers=("orders.handlers.notify",)),
]


def test_a_letter_is_accepted_where_the_database_finds_it(database):
    record(database, *LETTERS, largest=1_000_000)
    for asked in FILTERS:
        found = {each.offset for each in Letters(database).each(asked)}
        assert {each.identity.offset for each in LETTERS if accepts(asked, each)} == found, asked


@pytest.mark.parametrize(
    "asked",
    [
        Filter(ids=(1,)),
        Filter(groups=(1,)),
        Filter(statuses=(Status.OPEN,)),
        Filter(plans=(1,)),
        Filter(died_again=True),
    ],
)
def test_what_only_the_database_knows_is_refused_of_a_topic(asked):
    with pytest.raises(FilterFault, match="without --from-topic"):
        check(asked)
