"""Whatever dies, and wherever, while plans are applied: each letter is sent once, and none is forgotten."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select

from bridge.deadletters.db import letter_rows, plan_item_rows, plan_rows, sql
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay import kafka_lookup, plan_action, plan_runner, replay_action, replay_target
from bridge.deadletters.replay.plan_runner import PlanRunner, RunnerHooks
from bridge.errors import PlanTakenOver
from bridge.formats.retry_record import read_retry_key
from bridge.ledger import Fate
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.desk.kafka_in_memory import Crash, Kafka
from tests.desk.rows import counted, kind, letter
from tests.hypothesis_profiles import examples

HANDLER, OTHER = "orders.handlers.charge", "orders.handlers.notify"
CHOSEN = Settings(FileSettings(), EnvironmentSettings(BRIDGE_GROUP="bridge"), "", {})
LETTERS = 7


class Ends:
    """Where the replay topic of two partitions ends."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._ends = {each.place: each.end for each in kafka.extents(None, ["orders.replay"])}

    def spot(self, topic: str, partition: int) -> LogPosition:
        return LogPosition(topic, partition % 2, self._ends[topic, partition % 2])

    def passed(self, spot: LogPosition) -> None:
        self._ends[spot.topic, spot.partition] = max(self._ends[spot.topic, spot.partition], spot.offset + 1)


class Mortal(Database):
    """A database whose process may die before, in and after each transaction that writes."""

    happens: Callable[[str], str] = staticmethod(lambda point: "")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        # The machine lives: what is written need not be on the disk.
        event.listen(self._engine, "connect", lambda made, _: made.execute("PRAGMA synchronous=OFF").close())

    @contextmanager
    def writing(self) -> Iterator[Any]:
        if self.happens("before") == "crash":
            raise Crash
        with super().writing() as connection:
            yield connection
            if self.happens("within") == "crash":
                raise Crash
        if self.happens("after") == "crash":
            raise Crash


class World:
    """Letters, and a plan to replay them all."""

    def __init__(self, url: str, happens: Callable[[str], str], options: PlanOptions) -> None:
        self.database, self.happens = Mortal(url), happens
        self.database.migrate()
        with self.database.writing() as connection:
            self.kind = kind(connection, HANDLER)
            ids = [letter(connection, self.kind, number, partition=number % 3) for number in range(LETTERS)]
            self.ids = ids
            self.plan, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, options)
            plan_item_rows.freeze_letters(
                connection,
                self.plan,
                select_matching_letters(LetterFilter(statuses=(LetterStatus.OPEN,))),
                canary=options.canary,
            )
        self.kafka = Kafka(happens, self.ends)
        self.database.happens = happens

    def process(self, who: str) -> None:
        """One process that takes the plan up, as far as it comes."""
        with self.database.writing() as connection:
            connection.execute(tables.plans.update().values(leased_until=0))
        with self.database.writing() as connection:
            if not plan_rows.lease_plan(connection, self.plan, who):
                return
            plan = plan_rows.read_plan(connection, self.plan)
        assert plan is not None
        ends, fates = Ends(self.kafka), SimpleNamespace(read_fates=lambda some: [Fate.DEAD] * len(some))
        doing = replay_action.ReplayAction(CHOSEN, self.database, plan, 0, ends, fates, [HANDLER, OTHER])  # type: ignore[arg-type]
        doing._producer = self.kafka  # type: ignore[assignment]
        PlanRunner(self.database, plan, doing, who, RunnerHooks(self.look, tuple, lambda: None, lambda: False)).run()

    def look(self) -> None:
        """Sees how what was sent ends."""

    def ends(self) -> None:
        """Handlers may be faster than who notes what was sent."""
        with Database.writing(self.database) as connection:
            under_way = select(tables.letters.c.id).where(tables.letters.c.status == LetterStatus.REPLAYING)
            at = sql.read_clock(connection)
            for id_ in connection.execute(under_way).scalars().all():
                if (end := self.happens("end")) in ("done", "dead") and self.is_sent(connection, id_):
                    status = LetterStatus.RESOLVED if end == "done" else LetterStatus.OPEN
                    letter_rows.change_letter_status(connection, [id_], LetterStatus.REPLAYING, status, at)
                    plan_item_rows.end_items_of_letters(connection, [id_], PlanItemState(end), at)

    def is_sent(self, connection: Any, id_: int) -> bool:
        offset = connection.execute(select(tables.letters.c.offset).where(tables.letters.c.id == id_)).scalar_one()
        return offset in self.sent()

    def sent(self) -> Counter[int]:
        """How often each origin's offset was sent."""
        found = (read_retry_key(record) for record in self.kafka.records)  # type: ignore[arg-type]
        return Counter(int(each[0].partition(":")[0].rpartition("-")[2]) for each in found if each)

    def outcomes(self) -> dict[str, int]:
        with self.database.reading() as connection:
            plan = plan_rows.read_plan(connection, self.plan)
            assert plan is not None
            return dict(plan.outcomes)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_runner, "BATCH", 3)
    monkeypatch.setattr(plan_runner, "TRY_EVERY", 0.0)


def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[str], str], **options: Any) -> World:
    """One on a database of its own, with Kafka in memory."""
    path = tmp_path / f"{uuid4().hex}.db"
    made = World(f"sqlite:///{path}", happens, PlanOptions(**options))
    monkeypatch.setattr(kafka_lookup, "read_extents", made.kafka.extents)
    monkeypatch.setattr(replay_target, "read_extents", made.kafka.extents)
    monkeypatch.setattr(kafka_lookup, "read_records", made.kafka.read)
    return made


_POINTS = {
    "publish": ("", "", "", "lost", "unheard", "crash", "never"),
    "acknowledged": ("", "", "crash"),
    "before": ("",) * 8 + ("crash",),
    "within": ("",) * 8 + ("crash",),
    "after": ("",) * 8 + ("crash",),
    "end": ("", "done", "dead"),
}


QUIET = [HealthCheck.function_scoped_fixture]


@settings(max_examples=4, suppress_health_check=QUIET)
@given(data=st.data())
def test_wherever_processes_die_each_letter_is_sent_once_or_refused_and_none_is_forgotten(
    tmp_path: Path, data: st.DataObject
):
    carried_out_though_processes_die(tmp_path, data)


@pytest.mark.slow
@settings(max_examples=examples(16), suppress_health_check=QUIET)
@given(data=st.data())
def test_so_it_is_in_many_ways_to_die(tmp_path: Path, data: st.DataObject):
    carried_out_though_processes_die(tmp_path, data)


def carried_out_though_processes_die(tmp_path: Path, data: st.DataObject) -> None:
    """A plan that one process after another dies of, until one has carried it out."""
    faults = [20]

    def happens(point: str) -> str:
        if not faults[0]:
            return ""
        found = data.draw(st.sampled_from(_POINTS[point]), label=point)
        faults[0] -= bool(found)
        return found

    with pytest.MonkeyPatch.context() as monkeypatch:
        made = world(tmp_path, monkeypatch, happens)
        for number in range(100):
            try:
                made.process(f"process {number}")
                made.ends()
            except Crash:
                made.ends()
            with made.database.reading() as connection:
                plan = plan_rows.read_plan(connection, made.plan)
            assert plan is not None
            if plan.state is PlanState.DONE:
                break
        found = made.outcomes()
        assert not {"waiting", "claimed", "skipped"} & found.keys()
        sent = made.sent()
        assert set(sent.values()) <= {1}
        assert len(sent) + found.get("refused", 0) == LETTERS
        with made.database.reading() as connection:
            under_way, open_ = found.get("sent", 0), found.get("dead", 0) + found.get("refused", 0)
            wanted = {"replaying": under_way, "open": open_, "resolved": found.get("done", 0)}
            assert counted(connection, made.kind) == {name: count for name, count in wanted.items() if count}
        made.database.close()


def test_what_was_sent_to_another_handler_is_found_after_a_crash_though_its_letter_has_died_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mortal = {"acknowledged": "crash"}
    made = world(tmp_path, monkeypatch, lambda point: mortal.get(point, ""))
    with made.database.writing() as connection:
        connection.execute(tables.items.delete().where(tables.items.c.position > 1))
        beside = f"orders-0-0:{OTHER}"
        plan_item_rows.add_items(connection, made.plan, [PlanItem(2, made.ids[0], beside, 1)], canary=False)
    with pytest.raises(Crash):
        made.process("one")
    mortal.clear()
    with made.database.writing() as connection:
        letter_rows.change_letter_status(connection, made.ids, LetterStatus.REPLAYING, LetterStatus.OPEN, 1)
        plan_item_rows.end_items_of_letters(connection, made.ids, PlanItemState.DEAD, 1)
        connection.execute(tables.letters.update().values(number=tables.letters.c.number + 1, failures=2))
    made.process("two")
    assert made.outcomes() == {"dead": 1, "sent": 1}
    assert Counter(each[0] for each in map(read_retry_key, made.kafka.records) if each) == {  # type: ignore[arg-type]
        f"orders-0-0:{HANDLER}": 1,
        beside: 1,
    }


def test_how_letters_end_is_looked_at_while_others_still_go_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = world(tmp_path, monkeypatch, lambda point: "")
    looked: list[int] = []
    monkeypatch.setattr(made, "look", lambda: looked.append(made.outcomes().get("waiting", 0)))
    monkeypatch.setattr(plan_runner, "LOOK_AT_WAVE_EVERY", 0.0)
    monkeypatch.setattr(plan_runner, "REST", 0.0)
    made.process("ann")
    assert looked[:2] == [4, 1]


def test_who_takes_long_over_a_batch_shows_that_it_lives_and_stops_once_another_has_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    leases: list[int] = []

    def happens(point: str) -> str:
        if point == "publish":
            with Database.writing(made.database) as connection:
                leases.append(connection.execute(select(tables.plans.c.leased_until)).scalar_one())
                taken = {"leased_by": "another"} if len(leases) == 2 else {}
                connection.execute(tables.plans.update().values(leased_until=0, **taken))
        return ""

    monkeypatch.setattr(plan_action, "BYTES_AT_ONCE", 1)
    monkeypatch.setattr(plan_runner, "SHOW_EVERY", 0.0)
    made = world(tmp_path, monkeypatch, happens)
    with pytest.raises(PlanTakenOver):
        made.process("one")
    assert len(leases) == 2
    assert all(leases)
    made.process("two")
    assert made.outcomes() == {"sent": LETTERS}
    assert set(made.sent().values()) == {1}


def test_a_letter_that_was_taken_or_has_died_again_or_is_gone_is_skipped_with_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = world(tmp_path, monkeypatch, lambda point: "")
    taken, discarded, died, gone, *_ = made.ids
    with made.database.writing() as connection:
        letter_rows.change_letter_status(connection, [taken], LetterStatus.OPEN, LetterStatus.REPLAYING, 1, 99)
        letter_rows.change_letter_status(connection, [discarded], LetterStatus.OPEN, LetterStatus.DISCARDED, 1)
        connection.execute(tables.letters.update().where(tables.letters.c.id == died).values(failures=2))
        connection.execute(tables.letters.delete().where(tables.letters.c.id == gone))
    made.process("one")
    assert made.outcomes() == {"sent": LETTERS - 4, "skipped": 4}
    with made.database.reading() as connection:
        asked = select(tables.items.c.why).where(tables.items.c.state == "skipped").order_by(tables.items.c.position)
        whys = set(connection.execute(asked).scalars())
    assert whys == {
        "it is replaying already, by plan 99",
        "it is discarded by now",
        "it has died again since the plan was made",
        "the letter is gone",
    }


def test_what_kafka_never_takes_is_refused_and_the_letter_open_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = world(tmp_path, monkeypatch, lambda point: "never" if point == "publish" else "")
    made.process("one")
    assert made.outcomes() == {"refused": LETTERS}
    with made.database.reading() as connection:
        assert counted(connection, made.kind) == {"open": LETTERS}


def test_only_one_process_at_a_time_has_a_plan_and_another_once_its_lease_has_run_out(database: Database):
    with database.writing() as connection:
        id_, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions())
        assert plan_rows.lease_plan(connection, id_, "one")
    with database.writing() as connection:
        assert not plan_rows.lease_plan(connection, id_, "two")
        assert plan_rows.renew_plan_lease(connection, id_, "one") is PlanState.APPLYING
        assert plan_rows.find_abandoned_plans(connection) == []
        connection.execute(tables.plans.update().values(leased_until=0))
    with database.writing() as connection:
        assert plan_rows.find_abandoned_plans(connection) == [id_]
        assert plan_rows.lease_plan(connection, id_, "two")
        assert plan_rows.renew_plan_lease(connection, id_, "one") is None


def test_a_lease_of_a_clock_that_was_an_hour_ahead_holds_nobody_up(database: Database):
    with database.writing() as connection:
        id_, at = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions())
        assert plan_rows.lease_plan(connection, id_, "one")
        # A clock that goes back a little takes a plan from nobody.
        connection.execute(tables.plans.update().values(leased_until=at + plan_rows.PLAN_LEASE_MS + 60_000))
        assert not plan_rows.lease_plan(connection, id_, "two")
        connection.execute(tables.plans.update().values(leased_until=at + 3_600_000))
        assert plan_rows.find_abandoned_plans(connection) == [id_]
        assert plan_rows.lease_plan(connection, id_, "two")


def test_who_has_a_plan_that_was_stopped_notes_what_is_under_way_and_then_lets_it_go(database: Database):
    with database.writing() as connection:
        id_, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions())
        plan_rows.lease_plan(connection, id_, "one")
        assert plan_rows.change_plan_state(connection, id_, [PlanState.APPLYING], PlanState.STOPPED, "enough")
        assert plan_rows.renew_plan_lease(connection, id_, "one") is PlanState.STOPPED
        assert not plan_rows.lease_plan(connection, id_, "two")
        plan_rows.release_plan(connection, id_, "one")
        assert plan_rows.lease_plan(connection, id_, "two")
        assert plan_rows.renew_plan_lease(connection, id_, "two") is PlanState.STOPPED


@pytest.mark.parametrize("over", [PlanState.STOPPED, PlanState.FAILED])
def test_what_a_process_had_claimed_that_died_is_sent_though_the_plan_ended_since_and_nothing_more_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: PlanState
):
    mortal = {"publish": "crash"}
    made = world(tmp_path, monkeypatch, lambda point: mortal.get(point, ""))
    with pytest.raises(Crash):
        made.process("one")
    mortal.clear()
    with made.database.writing() as connection:
        connection.execute(tables.plans.update().values(leased_until=0))
        assert plan_rows.change_plan_state(connection, made.plan, [PlanState.APPLYING], over, "enough")
    assert made.outcomes() == {"claimed": 3, "waiting": LETTERS - 3}
    with made.database.reading() as connection:
        assert plan_rows.find_abandoned_plans(connection) == [made.plan]
    made.process("two")
    assert made.outcomes() == {"sent": 3, "waiting": LETTERS - 3}
    assert set(made.sent().values()) == {1}
    with made.database.reading() as connection:
        assert plan_rows.find_abandoned_plans(connection) == []
        stopped = plan_rows.read_plan(connection, made.plan)
    assert stopped is not None
    assert (stopped.state, stopped.stopped) == (over, "enough")
