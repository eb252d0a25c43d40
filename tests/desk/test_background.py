"""Plans in the background are done beside each other, by whoever is first, and left when the process ends."""

from threading import Event, Thread

from bridge.deadletters.plan.plan import Options, State, What
from bridge.deadletters.plans.background import again_after, go_on
from bridge.deadletters.store import plans
from bridge.deadletters.store.database import Database
from tests.processes import eventually


def approved(database: Database) -> int:
    """A plan that is to be done, and that nobody does."""
    with database.writing() as connection:
        id_, _ = plans.add(connection, What.REPLAY, "ann", "", {}, Options())
        plans.move(connection, id_, [State.PLANNED, State.MAKING], State.APPLYING)
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
            plans.move(connection, id_, [State.APPLYING], State.DONE)

    thread = Thread(target=go_on, args=(database, do, stopping), daemon=True)
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
                plans.release(connection, id_, who)
            else:
                plans.move(connection, id_, [State.APPLYING], State.DONE)
        if fails:
            raise ValueError("not expected")

    thread = Thread(target=go_on, args=(database, do, stopping), daemon=True)
    thread.start()
    eventually(lambda: done.count(first) == 2, 20)
    stopping.set()
    thread.join(20)
    assert done.count(second) == 1


def test_one_that_fails_again_and_again_is_tried_once_a_minute():
    assert [again_after(failures) for failures in (0, 1, 2, 3, 4, 5, 1_000)] == [5, 5, 10, 20, 40, 60, 60]
