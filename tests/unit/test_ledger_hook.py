"""What a message says of where its fate lies, and what was found there."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.delivery import Batch, Delivery, Message
from bridge.ledger import Account, Fate, Ledger, is_to_skip
from bridge.ledger.fate_rules import pack_fates
from bridge.ledger.ledger_hook import format_fate_place, read_found_fate
from bridge.ledger.ledger_layout import PAGE
from bridge.ledger.ledger_scripts import LeaseEnd
from lossless.transport.script_hook import LOOKED
from lossless.worker.acknowledgement_bundle import run_traced
from tasks.execution.batch_fates import BUNDLED_WITHIN, LOOK_HOLDS, BatchFates

ACCOUNT = Account("orders.handlers.charge", "orders", "id", 3)


def book(*other_names: str, offset: int = 7) -> BatchFates:
    made = Batch("h", "orders", 0, (Delivery(Message("orders", 0, offset), "h"),), "c", "g", "id")
    return BatchFates(None, made, other_names)


def looked(fate: Fate, ago: float = 0.0) -> dict[str, Any]:
    return {LOOKED: (time.monotonic() - ago, f"f{chr(fate)}")}


@given(st.integers(0, 2**50))
def test_a_message_names_the_byte_that_has_its_fate(offset: int) -> None:
    ledger: Any = SimpleNamespace(page_key=lambda account, page: f"ledger:{account.topic}:{page}")
    page, place = format_fate_place(ledger, ACCOUNT, offset).removeprefix("ledger:orders:").split(" ")
    assert int(page) * PAGE + int(place) * 2 + (offset & 1) == offset


def test_a_real_page_has_no_blank_in_its_key() -> None:
    ledger = Ledger("redis://nowhere", "a cluster", "a group")
    assert format_fate_place(ledger, ACCOUNT._replace(handler='a "name"'), 5).count(" ") == 1


@given(st.sampled_from(Fate), st.sampled_from(Fate), st.integers(0, 10**6))
def test_a_fate_is_read_from_its_half_of_the_byte(own: Fate, neighbour: Fate, offset: int) -> None:
    halves = [neighbour, own] if offset & 1 else [own, neighbour]
    assert read_found_fate("f" + pack_fates(bytes(halves)).decode("latin-1"), offset) is own


def test_what_no_page_has_is_open_and_what_was_not_looked_for_is_nothing() -> None:
    assert read_found_fate("f", 3) is Fate.OPEN
    assert read_found_fate("", 3) is None


def test_what_is_no_fate_is_nothing_so_that_the_ledger_is_asked_and_says_so() -> None:
    assert read_found_fate("f" + pack_fates(bytes([9, Fate.DONE])).decode("latin-1"), 2) is None
    assert read_found_fate("f" + pack_fates(bytes([9, Fate.DONE])).decode("latin-1"), 3) is Fate.DONE
    assert not book(offset=2).open_when_taken(2, {LOOKED: (time.monotonic(), "f\x92")})


@pytest.mark.parametrize("fate", list(Fate))
def test_a_delivery_that_was_settled_when_it_was_taken_is_looked_at_again(fate: Fate) -> None:
    assert book().open_when_taken(7, looked(fate)) == (not is_to_skip(fate))


@pytest.mark.parametrize(
    "properties",
    [{}, {LOOKED: (time.monotonic(), "")}, looked(Fate.HANDED, ago=LOOK_HOLDS + 0.1)],
    ids=["nobody looked", "nothing to look for", "a second ago"],
)
def test_what_was_not_looked_at_just_now_is_looked_at(properties: dict[str, Any]) -> None:
    assert not book().open_when_taken(7, properties)


def test_what_may_have_been_settled_under_another_name_is_looked_at() -> None:
    assert not book("an.older.name").open_when_taken(7, looked(Fate.HANDED))


class Marked:
    """A ledger that knows nothing yet of what is on its way."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def call(self, marks: Any) -> Any:
        return SimpleNamespace(keys=[], args=[])

    def fates_of(self, asked: Any) -> list[bytes]:
        return [bytes([Fate.HANDED]) * len(offsets) for _, offsets in asked]

    def write(self, marks: Any) -> None:
        self.written += marks


def test_what_was_done_here_a_moment_ago_is_settled_before_its_mark_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchFates, "_bundled", {})
    made = Batch("h", "orders", 0, (Delivery(Message("orders", 0, 7), "h"),), "c", "g", "id")
    ledger: Any = Marked()
    run_traced(lambda: (0, str(BatchFates(ledger, made).bundle_done(7)), 0.1))
    assert BatchFates(ledger, made).settled([7, 8]) == {7}
    assert [(mark.fate, list(mark.offsets)) for mark in ledger.written] == [(Fate.DONE, [7])]
    now = time.monotonic() + BUNDLED_WITHIN
    monkeypatch.setattr("tasks.execution.batch_fates.time", SimpleNamespace(monotonic=lambda: now))
    assert BatchFates(ledger, made).settled([7]) == set()


def test_a_mark_that_is_made_apart_after_all_ends_the_lease_of_its_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchFates, "_bundled", {})
    made = Batch("h", "orders", 0, (Delivery(Message("orders", 0, 7), "h"),), "c", "g", "id")
    ledger: Any = Marked()
    lease = LeaseEnd("leases", "1|orders-0-7:h")

    def end_and_fail() -> tuple[int, str, float]:
        fates = BatchFates(ledger, made)
        fates.leases[7] = lease
        assert fates.bundle_done(7)
        # It travels with the mark: nobody else ends it meanwhile.
        assert fates.leases == {}
        return 1, "failed", 0.1

    run_traced(end_and_fail)
    assert ledger.written[-1] == lease
