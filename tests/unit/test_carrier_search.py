"""A parked delivery that no retry topic has is lost only if no message that will run it carries it."""

from typing import Any

import pytest

from bridge.dispatch.carrier_message import CarrierMessage
from bridge.formats.delivery import Attempts, Via
from bridge.inspection.topic_audit import CarrierSearch
from bridge.ledger import RETRY_RECORD, Account, Fate

CHARGE = Account("charge", "orders", "id", 3)
GONE = Via("orders.retry.5m", 3, 8, "before")


class World:
    """A ledger and a search that has found nothing more."""

    def __init__(self, **own: Fate) -> None:
        self._own = {int(name[1:]): fate for name, fate in own.items()}

    def fates_many(self, asked: list[tuple[Account, int, int]]) -> list[bytes]:
        assert all(account == Account(RETRY_RECORD, GONE.topic, "before", 3) for account, _, _ in asked)
        return [bytes([self._own[first]]) for _, first, _ in asked]

    def not_found(self, parked: Any) -> Any:
        return {account: offsets for account, offsets in parked.items() if offsets}


def carrier(via: Via | None) -> CarrierMessage:
    return CarrierMessage("q", "aside", None, Attempts(), 1, "", via=via)


def left(monkeypatch: pytest.MonkeyPatch, world: Any, carriers: Any, elsewhere: bool = False) -> set[int]:
    given: Any = None
    carried = CarrierSearch(given, given, world, given, "orders", ["q"])
    monkeypatch.setattr(carried, "_carriers", lambda wanted: carriers)
    monkeypatch.setattr(carried, "_handed_elsewhere", lambda search: elsewhere)
    found: set[int] = carried.without({CHARGE: {4, 5, 6}}, world).get(CHARGE, set())
    return found


def test_what_a_message_carries_from_a_topic_that_is_gone_is_on_its_way(monkeypatch: pytest.MonkeyPatch):
    carriers = {(3, 4, "charge"): carrier(GONE), (3, 6, "charge"): carrier(GONE._replace(offset=9))}
    # The run of 9 is over: its message is only to be dropped.
    assert left(monkeypatch, World(_8=Fate.HANDED, _9=Fate.DONE), carriers) == {5, 6}


def test_a_message_that_came_straight_from_the_source_runs_nothing_that_is_parked(monkeypatch: pytest.MonkeyPatch):
    assert left(monkeypatch, World(), {(3, 4, "charge"): carrier(None)}) == {4, 5, 6}


@pytest.mark.parametrize(("elsewhere", "lost"), [(True, set[int]()), (False, {4, 5, 6})])
def test_where_messages_cannot_be_listed_nothing_is_lost_while_something_is_handed_off_of_gone_topics(
    monkeypatch: pytest.MonkeyPatch, elsewhere: bool, lost: set[int]
):
    assert left(monkeypatch, World(), None, elsewhere) == lost
