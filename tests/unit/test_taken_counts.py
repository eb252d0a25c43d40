"""What a recorder says that it has taken in."""

from dataclasses import replace

from bridge.deadletters.recorder.batch_writer import TakenCounts
from tests.desk.letters import letter


def test_what_was_taken_in_is_said_in_the_words_of_the_metric_and_what_others_wrote_besides():
    taken = TakenCounts()
    theirs = letter(1)
    theirs = replace(theirs, kind=theirs.kind._replace(origin="spring"))
    taken.add([letter(0), theirs, None], {("orders.dlq", "new"): 2, ("orders.dlq", "another group's"): 1})
    taken.add([letter(0)] * 1_500, {("orders.dlq", "duplicate"): 1_000, ("mails.dlq", "duplicate"): 500})
    assert str(taken) == "1,503 records: 1,500 duplicate, 2 new, 1 another group's; 1 of them by others (spring 1)"


def test_of_nothing_it_says_no_more_than_that():
    assert str(TakenCounts()) == "0 records"
