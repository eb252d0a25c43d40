"""How far dead-letter topics are recorded: changed only by who knows how far they were."""

import threading
from concurrent.futures import Future

import pytest
from sqlalchemy import select

from bridge.deadletters.db import position_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.position_rows import PositionStep, RecordedLog, RecordedPosition
from bridge.deadletters.recorder import start_position
from bridge.errors import RecordedByAnother
from bridge.settings import EnvironmentSettings, FileSettings, Settings

HERE = RecordedLog("bridge", "orders.dlq", "id", 0)
THERE = RecordedLog("bridge", "orders.dlq", "id", 1)


def move(database, *steps, at=1):
    with database.writing() as connection:
        position_rows.move_positions(connection, steps, at)


def known(database):
    with database.reading() as connection:
        return position_rows.read_positions(connection, ["bridge", ""], ["orders.dlq"])


def test_a_log_goes_from_where_it_was(database):
    move(
        database,
        PositionStep(HERE, None, RecordedPosition(5, -1), 5),
        PositionStep(THERE, None, RecordedPosition(0, -1)),
    )
    move(database, PositionStep(HERE, 5, RecordedPosition(9, 2), 1))
    assert known(database) == {HERE: RecordedPosition(9, 2), THERE: RecordedPosition(0, -1)}
    with database.reading() as connection:
        assert list(connection.execute(select(tables.positions.c.missed).order_by("missed")).scalars()) == [0, 6]
        assert position_rows.find_recorded_topics(connection, "bridge") == ["orders.dlq"]
        assert position_rows.find_recorded_topics(connection, "another") == []


@pytest.mark.parametrize("before", [None, 4, 6])
def test_who_does_not_know_how_far_it_is_changes_nothing_of_any(database, before):
    move(database, PositionStep(HERE, None, RecordedPosition(5, -1)))
    with pytest.raises(RecordedByAnother) as refused:
        move(
            database,
            PositionStep(THERE, None, RecordedPosition(3, -1)),
            PositionStep(HERE, before, RecordedPosition(9, 0)),
        )
    assert refused.value.logs == (HERE,)
    assert known(database) == {HERE: RecordedPosition(5, -1)}


def test_logs_of_a_topic_that_was_made_again_and_of_other_groups_are_others(database):
    move(database, PositionStep(HERE, None, RecordedPosition(5, -1)))
    others = [HERE._replace(topic_id="new"), HERE._replace(consumer_group="")]
    move(database, *(PositionStep(log, None, RecordedPosition(1, -1)) for log in others))
    assert known(database) == {HERE: RecordedPosition(5, -1), **{log: RecordedPosition(1, -1) for log in others}}


def test_of_two_who_move_a_log_at_once_one_does(database):
    move(
        database, PositionStep(HERE, None, RecordedPosition(0, -1)), PositionStep(THERE, None, RecordedPosition(0, -1))
    )
    won, lost = [], []

    def run() -> None:
        for n in range(20):
            try:
                move(database, *(PositionStep(log, n, RecordedPosition(n + 1, -1)) for log in (THERE, HERE)))
                won.append(n)
            except RecordedByAnother:
                lost.append(n)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))
    assert len(lost) == 20


def test_one_answer_of_kafka_is_no_proof_that_a_log_lost_something(database, monkeypatch):
    class Catalog:
        cluster, low, high = "a-cluster", 0, 20

        def __init__(self, *_: object) -> None: ...

        def prepare(self) -> None: ...

        def identify(self, topics):
            return {}

        def id_of(self, topic):
            return "id"

        def ask_logs(self, places):
            answers: tuple[Future[int], Future[int]] = (Future(), Future())
            for answer, offset in zip(answers, (Catalog.low, Catalog.high), strict=True):
                answer.set_result(offset)
            return dict.fromkeys(places, answers)

        def read_offset(self, answer):
            return answer.result()

    monkeypatch.setattr(start_position, "TopicCatalog", Catalog)
    move(database, PositionStep(HERE, None, RecordedPosition(20, -1)))
    settings = Settings(FileSettings(), EnvironmentSettings(), "", {})
    looks, place = start_position.StartFinder(settings, database, ()), ("orders.dlq", 0)
    for Catalog.low, Catalog.high in ((0, 3), (25, 30)):
        assert looks.find_starts([place], []).beginnings == []
        lows = Catalog.low, Catalog.high
        Catalog.low, Catalog.high = 0, 20
        assert looks.find_starts([place], []).beginnings[0].at == RecordedPosition(20, -1)
        Catalog.low, Catalog.high = lows
    # Two say the same.
    assert "asked again" in looks.find_starts([place], []).untold[0]
    assert looks.find_starts([place], []).beginnings[0].at == RecordedPosition(25, -1)
