"""Who is charged with a lost process, and how its neighbours go on."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.celery_header import HEADER, from_header, to_header
from bridge.formats.delivery import Batch, Delivery, Message
from lossless.worker.process_death import LOSS_HISTORY
from tasks.execution.process_loss import (
    TaskNotes,
    clear_loss_headers,
    count_unsaid_losses,
    count_worker_losses,
    find_poison,
    headers_after_loss,
    reset_loss_headers,
    split_after_loss,
)

NOW = 1_700_000_000.0


def batch(*offsets: int, lost: int = 0) -> Batch:
    made = (Delivery(Message("orders", 0, offset, value=b"1"), "h").lost(lost) for offset in offsets)
    return Batch("h", "orders", 0, tuple(made))


def after(sent: Batch, notes: TaskNotes, **headers: Any) -> tuple[int, list[Delivery]]:
    found = headers_after_loss("h", {HEADER: to_header(sent), **headers}, notes, "signal 9 (SIGKILL)", NOW)
    return found["lost"], list(from_header("h", found[HEADER]).deliveries)


offsets = st.lists(st.integers(0, 30), min_size=2, max_size=9, unique=True).map(sorted)


@given(offsets, st.data())
def test_the_one_that_was_running_is_charged_and_its_neighbours_are_as_they_were(
    sent: list[int], data: st.DataObject
) -> None:
    running = data.draw(st.sampled_from(sent))
    done = frozenset(data.draw(st.sets(st.sampled_from(sent)))) - {running}
    lost, found = after(batch(*sent), TaskNotes(done, running))
    assert lost == 1
    for delivery in found:
        charged = delivery.message.offset == running
        assert (delivery.attempts.lost, delivery.runs) == ((1, 1) if charged else (0, 0))
        assert delivery.ended == ("done" if delivery.message.offset in done else "")
        assert delivery.error == ("process lost: signal 9 (SIGKILL)" if charged else "")
        assert delivery.attempts.failed == 0


@given(offsets, st.data())
def test_one_that_was_done_is_not_charged_with_what_came_after_it(sent: list[int], data: st.DataObject) -> None:
    running = data.draw(st.sampled_from(sent))
    lost, found = after(batch(*sent), TaskNotes(frozenset({running}), running), lost=1)
    assert lost == 2
    assert all(delivery.attempts.lost == 0 for delivery in found)


def test_where_nothing_is_known_nobody_is_charged_and_the_message_counts() -> None:
    lost, found = after(batch(1, 2), TaskNotes(), lost=1)
    assert (lost, [each.attempts.lost for each in found]) == (2, [0, 0])


def test_what_was_sent_on_in_a_message_of_its_own_does_not_come_back_too() -> None:
    lost, found = after(batch(1, 2, 3), TaskNotes(frozenset({1}), 3, frozenset({2, 3})))
    assert (lost, [(each.message.offset, each.attempts.lost) for each in found]) == (1, [(1, 0)])
    # A message without deliveries could not be read.
    _, found = after(batch(1, 2), TaskNotes(sent=frozenset({1, 2})))
    assert [each.message.offset for each in found] == [1, 2]


def test_the_only_one_of_a_message_is_the_one_that_ran() -> None:
    lost, (found,) = after(batch(7), TaskNotes())
    assert (lost, found.attempts.lost, found.first_failed_at) == (1, 1, int(NOW * 1000))


def test_processes_lost_before_it_came_by_kafka_count_on() -> None:
    lost, (found,) = after(batch(7, lost=2), TaskNotes())
    assert (lost, found.attempts.lost) == (3, 3)


def test_workers_that_died_with_it_are_no_lost_processes_of_its_own() -> None:
    headers = {"restored": 2, "lost": 0}
    (told,) = count_worker_losses(batch(7).deliveries, headers)
    assert (told.attempts.lost, told.message.attempts.lost, told.message.attempt) == (2, 2, 3)
    again = Batch("h", "orders", 0, (told,))
    lost, (found,) = after(again, TaskNotes(), **clear_loss_headers(headers))
    assert (lost, found.attempts.lost) == (1, 3)


def test_in_an_order_each_counts_its_own() -> None:
    sent = batch(1, 2).holding([batch(1, lost=2).deliveries[0], batch(2).deliveries[0]])
    lost, _ = after(sent, TaskNotes(frozenset({1}), 2), lost=2)
    assert lost == 1


def test_what_is_none_of_ours_counts_as_a_message() -> None:
    assert headers_after_loss("h", {"lost": 1}, TaskNotes(), "x", NOW) == {"lost": 2}
    assert headers_after_loss("h", {HEADER: "x"}, TaskNotes(), "x", NOW) == {"lost": 1}


def test_a_run_that_ends_clears_it_of_workers_and_not_of_processes() -> None:
    assert clear_loss_headers({}) == reset_loss_headers({}) == {}
    assert clear_loss_headers({"restored": 2}) == {"lost": 0, "redelivered": True}
    assert clear_loss_headers({"lost": 1, "restored": 1, LOSS_HISTORY: ["a"]}) == {
        "lost": 1,
        "redelivered": True,
        LOSS_HISTORY: ["a"],
    }
    assert reset_loss_headers({"lost": 1, "prefetched": 2}) == {"lost": 1, "restored": 0, "prefetched": 0}


def test_what_was_charged_runs_alone_and_the_others_together() -> None:
    todo = [*batch(1, 2).deliveries, *batch(3, lost=2).deliveries]
    found = [
        ([each.message.offset for each in some], past) for some, past in split_after_loss(todo, {LOSS_HISTORY: ["a"]})
    ]
    assert found == [([1, 2], {"redelivered": True}), ([3], {"lost": 2, LOSS_HISTORY: ["a"]})]
    assert [len(some) for some, _ in split_after_loss(batch(1, 2, 3).deliveries, {})] == [1, 1, 1]
    assert [past for _, past in split_after_loss(batch(1, 2).deliveries, {})] == [{"redelivered": True}] * 2


def test_poison_is_the_one_that_was_running_most_often_and_else_the_first() -> None:
    todo = [*batch(1).deliveries, *batch(2, lost=1).deliveries, *batch(3, lost=3).deliveries]
    assert [each.message.offset for each in find_poison(todo)] == [3]
    assert [each.message.offset for each in find_poison(batch(4, 5).deliveries)] == [4]
    assert find_poison([]) == []


def test_a_letter_of_a_version_that_charged_nobody_says_what_is_not_counted() -> None:
    assert count_unsaid_losses({"lost": 3, "restored": 1, "headers": {}}) == 4
    assert count_unsaid_losses({"lost": 3, "restored": 1, "headers": {LOSS_HISTORY: ["a"]}}) == 1
    assert count_unsaid_losses({}) == 0
