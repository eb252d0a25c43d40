"""What is recorded of letters: each once, with its history and its counts."""

from collections import Counter
from contextlib import suppress

import pytest
from sqlalchemy import insert, select, update

from bridge.deadletters.db import letter_rows, letter_writer, plan_rows
from bridge.deadletters.db.kind_rows import MOST_CAUSES, IdCache
from bridge.deadletters.db.table_definitions import failures, groups, hours, items, kinds, letters, tallies, tracebacks
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions
from bridge.deadletters.model.digest import compute_digest
from bridge.deadletters.model.letter_deduplication import DeathKind
from bridge.deadletters.model.stored_letter import LetterStatus, unpack_headers
from bridge.deadletters.model.traceback_parts import restore_message
from bridge.errors import DeskRefused
from bridge.formats.delivery import Attempts
from tests.desk.letters import letter

AT = 20_000
GROUP = ("orders.handlers.charge", "builtins.ValueError", "a.py:pay")


def record(database, *found, at=AT, largest=1_000, ids=None):
    with database.writing() as connection:
        return letter_writer.LetterWriter(connection, ids or IdCache(), at, largest).record(found)


def rows(database, table=letters):
    with database.reading() as connection:
        return [dict(row) for row in connection.execute(select(table)).mappings()]


def tallied(database):
    """Status → count; and that is what a count of the letters says."""
    with database.reading() as connection:
        counted = Counter(tuple(row) for row in connection.execute(select(letters.c.kind_id, letters.c.status)))
        said = {(row.kind_id, row.status): row.count for row in connection.execute(select(tallies)) if row.count}
    assert said == counted
    found: Counter[str] = Counter()
    for (_, status), count in said.items():
        found[status] += count
    return dict(found)


def test_a_letter_is_kept_byte_for_byte_with_all_that_it_says(database):
    whole = letter(
        7,
        key=b"\x00\xff",
        value=b"\xff\x00{",
        headers=(("name", b"\xfe"), ("name", None), ("", b"")),
        number=2,
        attempts=Attempts(3, 1, 4, 1),
        version="1.2",
        error_message="ä\n",
        traceback="x: ä\n\n",
    )
    assert record(database, whole) == [DeathKind.NEW]
    (row,), (kind,), (group,) = rows(database), rows(database, kinds), rows(database, groups)
    assert (row["key"], row["value"], row["value_size"]) == (b"\x00\xff", b"\xff\x00{", 3)
    assert unpack_headers(row["headers"]) == whole.headers
    assert (row["failed"], row["lost"], row["postponed"], row["replayed"]) == (3, 1, 4, 1)
    assert (row["number"], row["runs"], row["status"], row["status_at"]) == (2, 13, "open", AT)
    assert (row["first_failed_at"], row["failed_at"], row["recorded_at"]) == (5_000, 10_000, AT)
    assert (row["letter_topic"], row["letter_partition"], row["letter_offset"]) == ("orders.dlq", 0, 7)
    assert (row["occurrences"], row["failures"], row["plan_id"]) == (1, 1, None)
    assert (kind["group_id"], kind["version"], kind["reason"]) == (group["id"], "1.2", "exhausted")
    assert (group["place"], group["first_at"], group["last_at"]) == ("a.py:pay", 10_000, 10_000)
    (text,) = rows(database, tracebacks)
    assert restore_message(text["text"], row["error_message"]) == whole.traceback


def test_a_tombstone_and_a_record_without_a_key_are_told_from_empty_ones(database):
    record(database, letter(0, key=None, value=None), letter(1, key=b"", value=b""))
    first, second = rows(database)
    assert (first["key"], first["key_digest"], first["value"], first["value_size"]) == (None, None, None, -1)
    assert (second["key"], second["value"], second["value_size"]) == (b"", b"", 0)
    assert second["key_digest"] is not None


def test_of_a_value_above_the_limit_the_size_alone_is_kept(database):
    record(database, letter(0, value=b"x" * 11), letter(1, value=b"x" * 10), largest=10)
    assert [(row["value"], row["value_size"]) for row in rows(database)] == [(None, 11), (b"x" * 10, 10)]


def test_letters_of_one_fault_share_a_traceback_and_a_kind(database):
    text = "Traceback:\n  a\nValueError: {}\n"
    record(database, *(letter(n, error_message=f"no {n}", traceback=text.format(f"no {n}")) for n in range(50)))
    assert (len(rows(database)), len(rows(database, tracebacks)), len(rows(database, kinds))) == (50, 1, 1)


def test_a_letter_without_a_traceback_has_none(database):
    record(database, letter(0, traceback=""))
    assert rows(database)[0]["traceback_id"] is None


def test_the_same_death_written_twice_is_one_row_with_one_more_occurrence(database):
    assert record(database, letter(0), letter(0, partition=1)) == [
        DeathKind.NEW,
        DeathKind.DUPLICATE,
    ]
    assert record(database, letter(0, partition=2)) == [DeathKind.DUPLICATE]
    (row,) = rows(database)
    assert (row["occurrences"], row["failures"], row["letter_partition"]) == (3, 1, 0)
    assert tallied(database) == {"open": 1}
    assert [row["count"] for row in rows(database, hours)] == [1]


def test_a_record_that_is_read_again_counts_nothing(database):
    again = letter(0, partition=1, number=1, failed_at=30_000)
    record(database, letter(0), again)
    before = rows(database), rows(database, failures), rows(database, hours)
    assert record(database, letter(0), again, at=99_000) == [DeathKind.READ_AGAIN, DeathKind.READ_AGAIN]
    assert (rows(database), rows(database, failures), rows(database, hours)) == before


def died_again(offset=0, at=7_300_000, **other):
    return letter(offset, **{"partition": 1, "number": 1, "failed_at": at, "error_message": "still no"} | other)


def test_what_dies_again_is_open_with_the_new_failure_and_the_old_one_in_its_history(database):
    record(database, letter(0))
    (first,) = rows(database)
    with database.writing() as connection:
        assert letter_rows.change_letter_status(
            connection, [first["id"]], LetterStatus.OPEN, LetterStatus.REPLAYING, 21_000, plan_id=5
        )
    assert record(database, died_again(error_class="builtins.KeyError", value=b"[]"), at=22_000) == [DeathKind.AGAIN]
    (row,), (old,) = rows(database), rows(database, failures)
    assert (row["status"], row["status_at"], row["failures"], row["occurrences"]) == ("open", 22_000, 2, 2)
    assert (row["failed_at"], row["first_failed_at"], row["error_message"]) == (7_300_000, 5_000, "still no")
    assert (row["recorded_at"], row["value"], row["plan_id"]) == (AT, b"[]", 5)
    assert (old["letter_id"], old["number"], old["failed_at"], old["plan_id"]) == (row["id"], 1, 10_000, 5)
    assert (old["kind_id"], old["error_message"]) == (first["kind_id"], "no")
    assert (old["value"], old["value_size"]) == (b"{}", 2)
    assert row["kind_id"] != first["kind_id"]
    assert tallied(database) == {"open": 1}
    assert sorted((row["hour"], row["count"]) for row in rows(database, hours)) == [(0, 1), (2, 1)]


def test_the_same_value_that_died_again_is_not_kept_twice(database):
    record(database, letter(0), died_again())
    assert [(row["value"], row["value_size"]) for row in rows(database, failures)] == [(None, None)]


@pytest.mark.parametrize("status", list(LetterStatus))
def test_a_new_death_opens_it_whatever_it_was(database, status):
    record(database, letter(0))
    moved(database, status)
    record(database, died_again())
    assert tallied(database) == {"open": 1}


@pytest.mark.parametrize("status", list(LetterStatus))
def test_a_duplicate_that_comes_late_changes_no_status(database, status):
    record(database, letter(0))
    moved(database, status)
    record(database, letter(0, partition=1))
    assert tallied(database) == {str(status): 1}
    assert rows(database)[0]["occurrences"] == 2


def moved(database, status):
    (row,) = rows(database)
    with database.writing() as connection:
        if status is not LetterStatus.OPEN:
            assert letter_rows.change_letter_status(connection, [row["id"]], LetterStatus.OPEN, status, 21_000) == [
                row["id"]
            ]


@pytest.mark.parametrize(
    ("state", "told"), [(PlanItemState.SENT, DeathKind.DUPLICATE), (PlanItemState.UNKNOWN, DeathKind.AGAIN)]
)
def test_a_death_under_the_old_number_is_the_replay_s_end_only_where_that_is_not_known(database, state, told):
    record(database, letter(0))
    moved(database, LetterStatus.REPLAYING)
    with database.writing() as connection:
        plan_id, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions())
        connection.execute(update(letters).values(plan_id=plan_id))
        row = {"plan_id": plan_id, "position": 1, "letter_id": 1, "failures": 1, "state": state}
        connection.execute(insert(items).values(row))
    assert record(database, died_again(number=0)) == [told]


def test_several_deaths_of_a_delivery_in_one_batch_are_all_in_its_history(database):
    deaths = [letter(0, offset=n, number=n, failed_at=10_000 + n, error_message=str(n)) for n in range(5)]
    assert record(database, *deaths) == [DeathKind.NEW, *[DeathKind.AGAIN] * 4]
    (row,) = rows(database)
    assert (row["error_message"], row["failures"], row["occurrences"]) == ("4", 5, 5)
    assert sorted((old["number"], old["error_message"]) for old in rows(database, failures)) == [
        (n + 1, str(n)) for n in range(4)
    ]
    assert tallied(database) == {"open": 1}


def test_a_group_knows_when_it_was_seen_first_and_last(database):
    record(database, letter(0, failed_at=30_000), letter(1, failed_at=10_000))
    record(database, letter(2, failed_at=20_000), letter(3, failed_at=40_000, handler="other"))
    found = {group["handler"]: (group["first_at"], group["last_at"]) for group in rows(database, groups)}
    assert found == {"orders.handlers.charge": (10_000, 30_000), "other": (40_000, 40_000)}


def test_more_letters_than_a_statement_takes_are_written(database):
    assert record(database, *(letter(n) for n in range(2_500))) == [DeathKind.NEW] * 2_500
    assert tallied(database) == {"open": 2_500}


def test_deliveries_of_other_handlers_groups_and_logs_are_others(database):
    record(database, letter(0), letter(0, handler="b"), letter(0, consumer_group="b"), letter(0, topic_id="b"))
    assert len(rows(database)) == 4


def test_ids_that_a_failed_transaction_has_made_are_made_again(database):
    ids = IdCache()
    with suppress(RuntimeError), database.writing() as connection:
        letter_writer.LetterWriter(connection, ids, AT, 1_000).record([letter(0)])
        raise RuntimeError
    assert rows(database) == []
    ids.forget()
    record(database, letter(0), ids=ids)
    ids.keep()
    record(database, letter(1), ids=ids)
    assert len({row["kind_id"] for row in rows(database)}) == len(rows(database, kinds)) == 1


def test_what_was_cleaned_up_since_it_was_remembered_is_refused_and_then_made_again(database):
    ids = IdCache()
    record(database, letter(0), ids=ids)
    ids.keep()
    with database.writing() as connection:
        connection.execute(letters.delete())
        connection.execute(tracebacks.delete())
    with pytest.raises(DeskRefused):
        record(database, letter(0), ids=ids)
    ids.forget()
    assert record(database, letter(0), ids=ids) == [DeathKind.NEW]


def test_a_group_whose_messages_vary_without_end_has_a_bounded_number_of_causes(database):
    found = [letter(at, cause=f"{at:012x}") for at in range(MOST_CAUSES + 5)]
    record(database, *found[:-3])
    record(database, *found[-3:], letter(999, cause="unknown"), letter(1_000, cause=f"{1:012x}"))
    causes = {row["cause"] for row in rows(database, kinds)}
    assert len(rows(database, groups)) == 1
    assert causes == {f"{at:012x}" for at in range(MOST_CAUSES)} | {"other", "unknown"}
    assert tallied(database) == {"open": MOST_CAUSES + 7}


def test_a_group_that_was_recorded_before_causes_keeps_its_id_and_its_kind(database):
    record(database, letter(1))
    record(database, letter(2, cause="1f0c2b3a4d5e"))
    assert [(row["group_id"], row["cause"]) for row in rows(database, kinds)] == [(1, "unknown"), (1, "1f0c2b3a4d5e")]
    assert rows(database, kinds)[0]["digest"] == compute_digest(*GROUP, "orders", "bridge", "bridge", "exhausted", "")
