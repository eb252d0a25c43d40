"""A delivery's end: publish, wait for the acknowledgement, mark; and what is left where one of these fails."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.signals import task_postrun

from bridge.errors import LedgerUnavailable, PublishFailed
from bridge.formats.celery_header import HEADER, to_header
from bridge.formats.delivery import Attempts, Batch, Dead, Delivery, Message, Via
from bridge.formats.failure import Failure
from bridge.formats.retry_record import RetryRecordPosition
from bridge.kafka.publisher import ParkRequest, Publisher
from bridge.ledger import Fate
from tasks.execution.batch_fates import BatchFates
from tasks.execution.dead_letter_writer import bury
from tasks.execution.settlement import Settlement, follows_loss

DEAD = Dead("permanent", Failure("E", "m", "", 1))
#: In a retry topic, and not due.
LIES = RetryRecordPosition("orders.retry.5m", 0, 3, passed=False)


class Acts:
    """A ledger and a Kafka that write down what they were asked, in its order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done_so_far: list[str] = []
        self.kafka_down = self.ledger_down = self.listened = False
        self.letters: set[int] = set()
        self.refused: set[int] = set()
        self.looked: list[float | None] = []
        self.forgotten: float | None = None
        self.ledger: Any = None
        self.unwritten: dict[int, Fate] = {}
        self.given_up: set[int] = set()
        monkeypatch.setattr(Publisher, "get_publisher", lambda app: self)
        monkeypatch.setattr(BatchFates, "for_batch", lambda app, batch: self)
        monkeypatch.setattr("tasks.execution.settlement.can_bundle", lambda: True)

    def open_when_taken(self, offset: int, properties: Any) -> bool:
        return True

    # Kafka

    def dead_letter(self, delivery: Delivery, dead: Dead, group: str) -> None:
        if self.kafka_down:
            raise PublishFailed("Kafka is away")
        self.letters.add(delivery.message.offset)
        self.done_so_far.append(f"published {delivery.message.offset}")

    def has_dead_letter(self, delivery: Delivery, group: str, written_before: float | None = None) -> bool:
        self.looked.append(written_before)
        return delivery.message.offset in self.letters

    def park(self, clones: list[ParkRequest], group: str) -> list[PublishFailed | None]:
        self.done_so_far.append(f"published {[clone.delivery.message.offset for clone in clones]}")
        return [PublishFailed("no") if clone.delivery.message.offset in self.refused else None for clone in clones]

    def parked_in(
        self, deliveries: Any, delays: Any, group: str, written_before: float | None = None
    ) -> list[list[RetryRecordPosition]]:
        self.looked.append(written_before)
        return [[LIES] if delivery.message.offset in self.letters else [] for delivery in deliveries]

    # The ledger

    def mark_all(self, offsets: list[int], fate: Fate) -> None:
        self.unwritten.update(dict.fromkeys(offsets, fate))
        if self.ledger_down:
            raise LedgerUnavailable("no answer")
        self.unwritten.clear()
        self.done_so_far.append(f"marked {offsets} {fate.name.lower()} at once")

    def is_discarded(self, offset: int) -> bool:
        return offset in self.given_up

    def settled(self, offsets: list[int]) -> set[int]:
        return set()

    def find_wipe(self, message: Message) -> float | None:
        return self.forgotten

    def note_task(self, task_id: str, offsets: list[int]) -> None:
        self.done_so_far.append(f"{task_id} carried {offsets}")

    def note_single_task(self, offset: int) -> None:
        """Told of apart: see test_ledger_telemetry.py."""

    def done(self, offset: int, *, now: bool = False) -> None:
        self._mark(offset, Fate.DONE, "at once" if now else "soon")

    def bundle_done(self, offset: int) -> bool:
        if self.listened:
            self.done_so_far.append(f"marked {offset} done along")
        return self.listened

    def mark(self, offset: int, fate: Fate) -> None:
        self._mark(offset, fate, "at once")

    def _mark(self, offset: int, fate: Fate, when: str) -> None:
        self.unwritten[offset] = fate
        if self.ledger_down:
            raise LedgerUnavailable("no answer")
        del self.unwritten[offset]
        self.done_so_far.append(f"marked {offset} {fate.name.lower()} {when}")


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> Acts:
    return Acts(monkeypatch)


def batch(*offsets: int) -> Batch:
    made = tuple(Delivery(Message("orders", 0, offset, value=b"{}"), "h") for offset in offsets)
    return Batch("h", "orders", 0, made)


def settling(acts: Any, batch: Batch, properties: Any = None, **headers: Any) -> Settlement:
    return Settlement.for_batch(task_of(Celery("unit", set_as_current=False), headers, properties), batch, acts)


def task_of(app: Any, headers: Any, properties: Any, **options: Any) -> Any:
    """A task that runs a message."""

    @app.task(name="h", **{"shared": False, "ignore_result": True, **options})
    def h() -> None:
        """Does nothing."""

    h.push_request(headers=headers, properties=properties)
    return h


def test_a_dead_letter_is_marked_after_kafka_has_acknowledged_it(acts: Acts) -> None:
    one = batch(1)
    settling(acts, one).dead(one.deliveries[0], DEAD)
    assert acts.done_so_far == ["published 1", "marked 1 dead at once"]


def test_what_a_person_discards_while_it_runs_gets_no_dead_letter_whose_replay_would_be_skipped(acts: Acts) -> None:
    one = batch(1)
    acts.given_up = {1}
    ends = settling(acts, one)
    ends.dead(one.deliveries[0], DEAD)
    assert acts.done_so_far == []
    assert ends.find_unconfirmed(one.deliveries) == []


def test_what_a_person_discards_after_its_dead_letter_was_written_is_dead(acts: Acts) -> None:
    """An earlier run has written it, and was killed before the mark."""
    tried = replace(batch(1).deliveries[0], attempts=Attempts(lost=1))
    acts.given_up = acts.letters = {1}
    settling(acts, batch(1).holding([tried])).dead(tried, DEAD)
    assert acts.done_so_far == ["marked 1 dead at once"]


def test_what_kafka_did_not_take_is_not_marked_and_has_not_ended(acts: Acts) -> None:
    one = batch(1)
    acts.kafka_down = True
    ends = settling(acts, one)
    with pytest.raises(PublishFailed):
        ends.dead(one.deliveries[0], DEAD)
    assert acts.done_so_far == []
    assert ends.find_unconfirmed(one.deliveries) == list(one.deliveries)


@pytest.mark.parametrize("before", [{"publish_tries": 1}, {"attempts": Attempts(lost=1)}])
def test_what_kafka_may_have_taken_though_it_did_not_say_so_is_looked_for_before_it_is_written_again(
    acts: Acts, before: dict[str, Any]
) -> None:
    one = batch(1)
    tried = replace(one.deliveries[0], **before)
    acts.letters = {1}
    settling(acts, one.holding([tried])).dead(tried, DEAD)
    assert acts.done_so_far == ["marked 1 dead at once"]
    clone = ParkRequest(tried.parked(), 60, 1)
    assert settling(acts, one.holding([tried])).park([clone], [60]) == [None]
    assert acts.done_so_far[1:] == ["marked [1] parked at once"]
    # Also after a run of it, at whose begin it is forgotten how often it was tried.
    ran = replace(tried, publish_tries=0)
    settling(acts, one.holding([tried])).dead(ran, DEAD)
    assert acts.done_so_far[2:] == ["marked 1 dead at once"]


def test_what_was_never_tried_is_not_looked_for(acts: Acts) -> None:
    one = batch(1)
    settling(acts, one).dead(one.deliveries[0], DEAD)
    settling(acts, one).park([ParkRequest(one.deliveries[0].parked(), 60, 1)], [60])
    assert acts.looked == []


def test_what_is_done_is_marked_with_others_unless_it_is_alone_or_follows_a_loss(acts: Acts) -> None:
    for offsets, headers, when in (((1,), {}, "at once"), ((1, 2), {}, "soon"), ((1, 2), {"lost": 1}, "at once")):
        many = batch(*offsets)
        settling(acts, many, **headers).done(many.deliveries[0])
        assert acts.done_so_far.pop() == f"marked 1 done {when}"


TAKEN = {"looked": (0.0, "")}


@pytest.mark.parametrize(
    ("offsets", "properties", "headers", "bundled"),
    [
        ((1,), TAKEN, {}, True),
        # The transport takes nothing along.
        ((1,), {}, {}, False),
        ((1,), None, {}, False),
        # Each of many has an end of its own, and there is one acknowledgement.
        ((1, 2), TAKEN, {}, False),
        # What may have killed is marked before anything else can happen.
        ((1,), TAKEN, {"lost": 1}, False),
        ((1,), TAKEN, {"restored": 1}, False),
        ((1,), TAKEN, {"redelivered": True}, False),
    ],
)
def test_the_mark_of_an_only_delivery_goes_along_with_its_acknowledgement(
    acts: Acts, offsets: tuple[int, ...], properties: Any, headers: dict[str, Any], bundled: bool
) -> None:
    acts.listened = True
    one = batch(*offsets)
    ends = settling(acts, one, properties, **headers)
    ends.done(one.deliveries[0])
    assert ("marked 1 done along" in acts.done_so_far) == bundled
    assert len(acts.done_so_far) == 1
    assert ends.find_unconfirmed(one.deliveries[:1]) == []


@pytest.mark.parametrize(
    ("options", "settings", "bundled"),
    [
        # Celery would acknowledge what it finds stored, without the mark.
        ({"ignore_result": False}, {"result_backend": "cache+memory://"}, False),
        ({"ignore_result": False}, {}, True),
        ({}, {"result_backend": "cache+memory://"}, True),
        ({}, {"worker_deduplicate_successful_tasks": True}, False),
    ],
)
def test_a_success_that_others_know_is_marked_before(
    acts: Any, options: dict[str, Any], settings: dict[str, Any], bundled: bool
) -> None:
    acts.listened = True
    app = Celery("unit", set_as_current=False)
    app.conf.update(settings)
    one = batch(1)
    Settlement.for_batch(task_of(app, {}, TAKEN, **options), one, acts).done(one.deliveries[0])
    assert acts.done_so_far == ["marked 1 done along" if bundled else "marked 1 done at once"]


@pytest.mark.parametrize("hook", ["on_success", "after_return", "receiver", None])
def test_a_mark_waits_for_no_hook_and_no_receiver(acts: Any, hook: str | None) -> None:
    def hears(*_: Any, **__: Any) -> None:
        """As others' code does."""

    acts.listened = True
    one = batch(1)
    options = {hook: hears} if hook in ("on_success", "after_return") else {}
    task = task_of(Celery("unit", set_as_current=False), {}, TAKEN, **options)
    if hook == "receiver":
        task_postrun.connect(hears)
    try:
        Settlement.for_batch(task, one, acts).done(one.deliveries[0])
    finally:
        task_postrun.disconnect(hears)
    assert acts.done_so_far == ["marked 1 done at once" if hook else "marked 1 done along"]


def test_a_look_is_for_processes_whose_main_process_knows_what_ended_since(
    acts: Acts, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = batch(1)
    assert settling(acts, one, TAKEN).is_new(one.deliveries[0], TAKEN)
    monkeypatch.setattr("tasks.execution.settlement.can_bundle", lambda: False)  # threads, solo
    assert not settling(acts, one, TAKEN).is_new(one.deliveries[0], TAKEN)


def test_a_mark_that_nobody_takes_along_is_made_at_once(acts: Acts) -> None:
    one = batch(1)
    settling(acts, one, TAKEN).done(one.deliveries[0])
    assert acts.done_so_far == ["marked 1 done at once"]


def test_what_the_ledger_did_not_take_is_left_with_how_it_ended_and_only_marked_by_the_next(acts: Acts) -> None:
    two = batch(1, 2)
    acts.ledger_down = True
    ends = settling(acts, two)
    with pytest.raises(LedgerUnavailable):
        ends.dead(two.deliveries[0], DEAD)
    left = ends.find_unconfirmed(two.deliveries)
    assert [delivery.ended for delivery in left] == ["dead", ""]
    acts.ledger_down = False
    settling(acts, two.holding(left)).mark_earlier_end(left[0])
    assert acts.done_so_far == ["published 1", "marked 1 dead at once"]


@pytest.mark.parametrize("headers", [{"lost": 1}, {"restored": 1}, {"redelivered": True}])
def test_who_comes_after_another_looks_for_the_dead_letter_and_marks_it(acts: Acts, headers: dict[str, Any]) -> None:
    one = batch(1)
    acts.letters.add(1)
    settling(acts, one, **headers).dead(one.deliveries[0], DEAD)
    assert acts.done_so_far == ["marked 1 dead at once"]


def test_a_burial_finds_the_dead_letter_that_a_wiped_ledger_has_forgotten(acts: Acts) -> None:
    acts.letters.add(1)
    acts.forgotten = 1e9
    request = SimpleNamespace(headers={}, properties={}, retries=0)
    task: Any = SimpleNamespace(app=SimpleNamespace(tasks={}), request=request)
    bury(task, {"task": "h", "headers": {HEADER: to_header(batch(1))}, "reason": "expired"})
    assert acts.done_so_far == ["marked 1 dead at once"]


@pytest.mark.parametrize(
    ("headers", "lost"), [({}, False), ({"lost": 1}, True), ({"restored": 2}, True), ({"redelivered": True}, False)]
)
def test_a_loss_is_a_process_or_a_worker_that_died_with_the_message(headers: dict[str, Any], lost: bool) -> None:
    assert follows_loss(headers) is lost


def clones(batch: Batch) -> list[ParkRequest]:
    return [ParkRequest(each.parked(), 300, 1_000) for each in batch.deliveries]


def test_what_is_parked_is_marked_together_after_kafka_has_acknowledged_it(acts: Acts) -> None:
    two = batch(1, 2)
    assert settling(acts, two).park(clones(two), (300,)) == [None, None]
    assert acts.done_so_far == ["published [1, 2]", "marked [1, 2] parked at once"]
    assert acts.looked == []


def test_what_kafka_did_not_take_is_not_parked_and_has_not_ended(acts: Acts) -> None:
    two = batch(1, 2)
    acts.refused = {1}
    ends = settling(acts, two)
    first, second = ends.park(clones(two), (300,))
    assert (isinstance(first, PublishFailed), second) == (True, None)
    assert acts.done_so_far[-1] == "marked [2] parked at once"
    assert [each.message.offset for each in ends.find_unconfirmed(two.deliveries)] == [1]


@pytest.mark.parametrize("header", ["redelivered", "lost", "restored"])
def test_after_a_loss_it_is_looked_once_what_lies_in_a_retry_topic(acts: Acts, header: str) -> None:
    three = batch(1, 2, 3)
    acts.letters = {1, 3}
    assert settling(acts, three, **{header: 1}).park(clones(three), (300,)) == [None] * 3
    assert acts.done_so_far == ["published [2]", "marked [1, 2, 3] parked at once"]
    assert acts.looked == [None]


def test_where_the_ledger_has_forgotten_it_is_looked_for_what_was_parked_before(acts: Acts) -> None:
    one = batch(1)
    acts.letters, acts.forgotten = {1}, 77.0
    assert settling(acts, one).park(clones(one), (300,)) == [None]
    assert (acts.done_so_far, acts.looked) == (["marked [1] parked at once"], [77.0])


def test_while_it_is_not_known_whether_it_is_parked_already_it_is_not_parked(
    acts: Acts, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = batch(1)
    acts.letters, acts.ledger = {1}, object()

    def silent(*_: Any) -> None:
        raise LedgerUnavailable("no answer")

    monkeypatch.setattr("tasks.execution.settlement.find_records_to_run", silent)
    (failed,) = settling(acts, one, redelivered=True).park(clones(one), (300,))
    assert "no answer" in str(failed)
    assert acts.done_so_far == []


def test_what_is_parked_and_not_marked_travels_with_how_it_ended(acts: Acts) -> None:
    one = batch(1)
    acts.ledger_down = True
    ends = settling(acts, one)
    with pytest.raises(LedgerUnavailable):
        ends.park(clones(one), (300,))
    assert [each.ended for each in ends.find_unconfirmed(one.deliveries)] == ["parked"]


def test_the_mark_of_what_came_by_a_retry_topic_does_not_go_along(acts: Acts) -> None:
    """It has two fates, and the taking has looked at one of them at the most."""
    acts.listened = True
    came = Delivery(Message("orders", 0, 1), "h", number=1, via=Via("orders.retry.5m", 0, 9, "r"))
    one = batch(1).holding([came])
    ends = settling(acts, one, {"looked": [0.0, "f"]})
    assert not ends.is_new(came, {})
    ends.done(came)
    assert acts.done_so_far == ["marked 1 done at once"]


def test_the_task_of_what_was_parked_is_noted_by_its_own_name(acts: Acts) -> None:
    came = Delivery(Message("orders", 0, 1), "h", number=2, via=Via("orders.retry.5m", 0, 9, "r"))
    ends = settling(acts, batch(1).holding([came]))
    ends.done(came)
    ends.note_carrier(came.task_id)
    assert acts.done_so_far[-1] == "orders-0-1:h#2 carried [1]"
