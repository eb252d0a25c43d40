"""Plans in the background are done beside each other, by whoever is first, and left when the process ends."""

from threading import Event, Thread

from bridge.deadletters.db import plan_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions, PlanState
from bridge.deadletters.replay.plan_runner import RESUME_BACKOFF, resume_plans
from tests.processes import eventually


def approved(database: Database) -> int:
    """A plan that is to be done, and that nobody does."""
    with database.writing() as connection:
        id_, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions())
        plan_rows.change_plan_state(connection, id_, [PlanState.PLANNED, PlanState.MAKING], PlanState.APPLYING)
    return id_


def test_none_waits_for_another_that_may_wait_for_it(database: Database):
    first, second = approved(database), approved(database)
    begun, stopping = {first: Event(), second: Event()}, Event()
    ended = []

    def do(id_: int, who: str) -> None:
        # As one that needs of a lane what the other has claimed of it.
        begun[id_].set()
        assert begun[first if id_ == second else second].wait(20)
        ended.append(id_)
        with database.writing() as connection:
            plan_rows.change_plan_state(connection, id_, [PlanState.APPLYING], PlanState.DONE)

    thread = Thread(target=resume_plans, args=(database, do, stopping), daemon=True)
    thread.start()
    eventually(lambda: sorted(ended) == [first, second], 20)
    stopping.set()
    thread.join(20)
    assert not thread.is_alive()


def test_one_that_fails_stops_no_other_and_is_taken_up_again_after_a_while(database: Database):
    first, second = approved(database), approved(database)
    done, stopping = [], Event()

    def do(id_: int, who: str) -> None:
        done.append(id_)
        fails = id_ == first and done.count(first) == 1
        with database.writing() as connection:
            if fails:
                plan_rows.release_plan(connection, id_, who)
            else:
                plan_rows.change_plan_state(connection, id_, [PlanState.APPLYING], PlanState.DONE)
        if fails:
            raise ValueError("not expected")

    thread = Thread(target=resume_plans, args=(database, do, stopping), daemon=True)
    thread.start()
    eventually(lambda: done.count(first) == 2, 20)
    stopping.set()
    thread.join(20)
    assert done.count(second) == 1


def test_one_that_fails_again_and_again_is_tried_once_a_minute():
    assert [RESUME_BACKOFF.compute_pause(failures) for failures in (0, 1, 2, 3, 4, 1_000)] == [5, 10, 20, 40, 60, 60]
