"""What is promised of statuses and of the trail: one of two moves a letter, and it is counted and told with that."""

import threading

from bridge.deadletters.db import audit_rows, letter_rows
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.desk.rows import counted, kind, letter


def test_only_letters_with_the_expected_status_are_moved_and_they_are_counted_where_they_are_now(database):
    with database.writing() as connection:
        one = kind(connection)
        open_, other = letter(connection, one, 1), letter(connection, one, 2)
        ended = letter(connection, one, 3, LetterStatus.RESOLVED)
        moved = letter_rows.change_letter_status(
            connection, [ended, other, open_, 999], LetterStatus.OPEN, LetterStatus.REPLAYING, 5, plan_id=7
        )
        assert moved == [open_, other]
        assert counted(connection, one) == {"replaying": 2, "resolved": 1}
        assert letter_rows.change_letter_status(connection, [open_], LetterStatus.OPEN, LetterStatus.DISCARDED, 6) == []
        assert counted(connection, one) == {"replaying": 2, "resolved": 1}


def test_more_letters_than_one_statement_takes_are_moved(database, monkeypatch):
    monkeypatch.setattr(letter_rows, "IDS_AT_ONCE", 2)
    with database.writing() as connection:
        one, two = kind(connection), kind(connection, reason="poison")
        ids = [letter(connection, each, at) for at in range(3) for each in (one, two)]
        assert letter_rows.change_letter_status(
            connection, reversed(ids), LetterStatus.OPEN, LetterStatus.ARCHIVED, 5
        ) == sorted(ids)
        assert counted(connection, one) == counted(connection, two) == {"archived": 3}


def test_of_two_who_move_the_same_letters_at_once_each_letter_is_moved_by_one(database):
    with database.writing() as connection:
        one, two = kind(connection), kind(connection, reason="poison")
        ids = [letter(connection, each, at) for at in range(50) for each in (one, two)]
    moved: list[list[int]] = []
    begin = threading.Barrier(4)

    def move(order: int) -> None:
        begin.wait()
        with database.writing() as connection:
            moved.append(
                letter_rows.change_letter_status(connection, ids[::order], LetterStatus.OPEN, LetterStatus.REPLAYING, 5)
            )

    threads = [threading.Thread(target=move, args=(order,)) for order in (1, -1, 1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(id_ for some in moved for id_ in some) == ids
    with database.reading() as connection:
        assert counted(connection, one) == counted(connection, two) == {"replaying": 50}


def test_the_trail_tells_of_a_letter_a_group_or_a_plan_what_was_done_by_whom(database):
    with database.writing() as connection:
        audit_rows.write_entry(connection, 1, "ann", "note", "asked the bank", letter_id=3, letter="orders-0-1:charge")
        audit_rows.write_entry(connection, 2, "bob", "fixed", "in 1.4", group_id=5)
        audit_rows.write_entry(connection, 3, "bob", "replay", "12 letters", plan_id=9)
    with database.reading() as connection:
        assert [(each.by, each.said) for each in audit_rows.read_history(connection, letter_id=3)] == [
            ("ann", "asked the bank")
        ]
        assert [(each.by, each.said) for each in audit_rows.read_history(connection, group_id=5)] == [("bob", "in 1.4")]
        assert [each.at for each in audit_rows.read_history(connection, plan_id=9)] == [3]
        assert [each.at for each in audit_rows.read_history(connection)] == [1, 2, 3]
        assert [each.at for each in audit_rows.read_history(connection, last=2)] == [2, 3]


def test_what_was_undone_is_not_in_the_trail(database):
    try:
        with database.writing() as connection:
            audit_rows.write_entry(connection, 1, "ann", "note", "never")
            raise KeyError
    except KeyError:
        pass
    with database.reading() as connection:
        assert audit_rows.read_history(connection) == []
