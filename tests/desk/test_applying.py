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

from bridge.deadletters.actions import sending, traces
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import ItemState, Options, State, What
from bridge.deadletters.plans import applying
from bridge.deadletters.plans.applying import Applying, Around
from bridge.deadletters.store import clock, items, plans, schema, statuses
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.items import Item
from bridge.deadletters.store.matching import matching
from bridge.deadletters.store.spots import Spot
from bridge.errors import PlanTakenOver
from bridge.ledger import Fate
from bridge.records.parked import whose
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.desk.kafka_in_memory import Crash, Kafka
from tests.desk.rows import counted, kind, letter
from tests.examples import examples

HANDLER, OTHER = "orders.handlers.charge", "orders.handlers.notify"
CHOSEN = Settings(FileSettings(), EnvironmentSettings(BRIDGE_GROUP="bridge"), "", {})
LETTERS = 7


class Ends:
    """Where the replay topic of two partitions ends."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._ends = {each.place: each.end for each in kafka.extents(None, ["orders.replay"])}

    def spot(self, topic: str, partition: int) -> Spot:
        return Spot(topic, partition % 2, self._ends[topic, partition % 2])

    def passed(self, spot: Spot) -> None:
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

    def __init__(self, url: str, happens: Callable[[str], str], options: Options) -> None:
        self.database, self.happens = Mortal(url), happens
        self.database.migrate()
        with self.database.writing() as connection:
            self.kind = kind(connection, HANDLER)
            ids = [letter(connection, self.kind, number, partition=number % 3) for number in range(LETTERS)]
            self.ids = ids
            self.plan, _ = plans.add(connection, What.REPLAY, "ann", "", {}, options)
            items.freeze(connection, self.plan, matching(Filter(statuses=(Status.OPEN,))), canary=options.canary)
        self.kafka = Kafka(happens, self.ends)
        self.database.happens = happens

    def process(self, who: str) -> None:
        """One process that takes the plan up, as far as it comes."""
        with self.database.writing() as connection:
            connection.execute(schema.plans.update().values(leased_until=0))
        with self.database.writing() as connection:
            if not plans.lease(connection, self.plan, who):
                return
            plan = plans.one(connection, self.plan)
        assert plan is not None
        ends, fates = Ends(self.kafka), SimpleNamespace(of=lambda some: [Fate.DEAD] * len(some))
        doing = sending.Sending(CHOSEN, self.database, plan, 0, ends, fates, [HANDLER, OTHER])  # type: ignore[arg-type]
        doing._producer = self.kafka  # type: ignore[assignment]
        Applying(self.database, plan, doing, who, Around(self.look, tuple, lambda: None, lambda: False)).run()

    def look(self) -> None:
        """Sees how what was sent ends."""

    def ends(self) -> None:
        """Handlers may be faster than who notes what was sent."""
        with Database.writing(self.database) as connection:
            under_way = select(schema.letters.c.id).where(schema.letters.c.status == Status.REPLAYING)
            at = clock.now(connection)
            for id_ in connection.execute(under_way).scalars().all():
                if (end := self.happens("end")) in ("done", "dead") and self.is_sent(connection, id_):
                    status = Status.RESOLVED if end == "done" else Status.OPEN
                    statuses.move(connection, [id_], Status.REPLAYING, status, at)
                    items.ended(connection, [id_], ItemState(end), at)

    def is_sent(self, connection: Any, id_: int) -> bool:
        offset = connection.execute(select(schema.letters.c.offset).where(schema.letters.c.id == id_)).scalar_one()
        return offset in self.sent()

    def sent(self) -> Counter[int]:
        """How often each origin's offset was sent."""
        found = (whose(record) for record in self.kafka.records)  # type: ignore[arg-type]
        return Counter(int(each[0].partition(":")[0].rpartition("-")[2]) for each in found if each)

    def outcomes(self) -> dict[str, int]:
        with self.database.reading() as connection:
            plan = plans.one(connection, self.plan)
            assert plan is not None
            return dict(plan.outcomes)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "BATCH", 3)
    monkeypatch.setattr(applying, "TRY_EVERY", 0.0)


def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[str], str], **options: Any) -> World:
    """One on a database of its own, with Kafka in memory."""
    path = tmp_path / f"{uuid4().hex}.db"
    made = World(f"sqlite:///{path}", happens, Options(**options))
    monkeypatch.setattr(traces, "extents", made.kafka.extents)
    monkeypatch.setattr(traces, "records", made.kafka.read)
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
                plan = plans.one(connection, made.plan)
            assert plan is not None
            if plan.state is State.DONE:
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
        connection.execute(schema.items.delete().where(schema.items.c.position > 1))
        beside = f"orders-0-0:{OTHER}"
        items.add(connection, made.plan, [Item(2, made.ids[0], beside, 1)], canary=False)
    with pytest.raises(Crash):
        made.process("one")
    mortal.clear()
    with made.database.writing() as connection:
        statuses.move(connection, made.ids, Status.REPLAYING, Status.OPEN, 1)
        items.ended(connection, made.ids, ItemState.DEAD, 1)
        connection.execute(schema.letters.update().values(number=schema.letters.c.number + 1, failures=2))
    made.process("two")
    assert made.outcomes() == {"dead": 1, "sent": 1}
    assert Counter(each[0] for each in map(whose, made.kafka.records) if each) == {  # type: ignore[arg-type]
        f"orders-0-0:{HANDLER}": 1,
        beside: 1,
    }


def test_how_letters_end_is_looked_at_while_others_still_go_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = world(tmp_path, monkeypatch, lambda point: "")
    looked: list[int] = []
    monkeypatch.setattr(made, "look", lambda: looked.append(made.outcomes().get("waiting", 0)))
    monkeypatch.setattr(applying, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(applying, "REST", 0.0)
    made.process("ann")
    assert looked[:2] == [4, 1]


def test_who_takes_long_over_a_batch_shows_that_it_lives_and_stops_once_another_has_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    leases: list[int] = []

    def happens(point: str) -> str:
        if point == "publish":
            with Database.writing(made.database) as connection:
                leases.append(connection.execute(select(schema.plans.c.leased_until)).scalar_one())
                taken = {"leased_by": "another"} if len(leases) == 2 else {}
                connection.execute(schema.plans.update().values(leased_until=0, **taken))
        return ""

    monkeypatch.setattr(sending, "AT_ONCE", 1)
    monkeypatch.setattr(applying, "SHOW_EVERY", 0.0)
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
        statuses.move(connection, [taken], Status.OPEN, Status.REPLAYING, 1, 99)
        statuses.move(connection, [discarded], Status.OPEN, Status.DISCARDED, 1)
        connection.execute(schema.letters.update().where(schema.letters.c.id == died).values(failures=2))
        connection.execute(schema.letters.delete().where(schema.letters.c.id == gone))
    made.process("one")
    assert made.outcomes() == {"sent": LETTERS - 4, "skipped": 4}
    with made.database.reading() as connection:
        asked = select(schema.items.c.why).where(schema.items.c.state == "skipped").order_by(schema.items.c.position)
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
        id_, _ = plans.add(connection, What.REPLAY, "ann", "", {}, Options())
        assert plans.lease(connection, id_, "one")
    with database.writing() as connection:
        assert not plans.lease(connection, id_, "two")
        assert plans.hold(connection, id_, "one") is State.APPLYING
        assert plans.abandoned(connection) == []
        connection.execute(schema.plans.update().values(leased_until=0))
    with database.writing() as connection:
        assert plans.abandoned(connection) == [id_]
        assert plans.lease(connection, id_, "two")
        assert plans.hold(connection, id_, "one") is None


def test_a_lease_of_a_clock_that_was_an_hour_ahead_holds_nobody_up(database: Database):
    with database.writing() as connection:
        id_, at = plans.add(connection, What.REPLAY, "ann", "", {}, Options())
        assert plans.lease(connection, id_, "one")
        # A clock that goes back a little takes a plan from nobody.
        connection.execute(schema.plans.update().values(leased_until=at + plans.LEASE + 60_000))
        assert not plans.lease(connection, id_, "two")
        connection.execute(schema.plans.update().values(leased_until=at + 3_600_000))
        assert plans.abandoned(connection) == [id_]
        assert plans.lease(connection, id_, "two")


def test_who_has_a_plan_that_was_stopped_notes_what_is_under_way_and_then_lets_it_go(database: Database):
    with database.writing() as connection:
        id_, _ = plans.add(connection, What.REPLAY, "ann", "", {}, Options())
        plans.lease(connection, id_, "one")
        assert plans.move(connection, id_, [State.APPLYING], State.STOPPED, "enough")
        assert plans.hold(connection, id_, "one") is State.STOPPED
        assert not plans.lease(connection, id_, "two")
        plans.release(connection, id_, "one")
        assert plans.lease(connection, id_, "two")
        assert plans.hold(connection, id_, "two") is State.STOPPED


@pytest.mark.parametrize("over", [State.STOPPED, State.FAILED])
def test_what_a_process_had_claimed_that_died_is_sent_though_the_plan_ended_since_and_nothing_more_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: State
):
    mortal = {"publish": "crash"}
    made = world(tmp_path, monkeypatch, lambda point: mortal.get(point, ""))
    with pytest.raises(Crash):
        made.process("one")
    mortal.clear()
    with made.database.writing() as connection:
        connection.execute(schema.plans.update().values(leased_until=0))
        assert plans.move(connection, made.plan, [State.APPLYING], over, "enough")
    assert made.outcomes() == {"claimed": 3, "waiting": LETTERS - 3}
    with made.database.reading() as connection:
        assert plans.abandoned(connection) == [made.plan]
    made.process("two")
    assert made.outcomes() == {"sent": 3, "waiting": LETTERS - 3}
    assert set(made.sent().values()) == {1}
    with made.database.reading() as connection:
        assert plans.abandoned(connection) == []
        stopped = plans.one(connection, made.plan)
    assert stopped is not None
    assert (stopped.state, stopped.stopped) == (over, "enough")
