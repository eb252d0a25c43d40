"""How the faults of the desk's run are done: PostgreSQL's here, all others as in tests/chaos/faults.py."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import psycopg

from tests.chaos import faults
from tests.chaos.desk.world import DeskWorld
from tests.chaos.faults import Done, member_frozen, member_killed, member_stopped
from tests.chaos.schedule import Fault


def operator_killed(world: DeskWorld, fault: Fault) -> Done | None:
    """Some time after it has begun to work."""
    if (process := world.alive(fault.lane)) is None:
        return None
    time.sleep(fault.lasts)
    process.kill()
    world.start_member(fault.lane)
    return Done(words=process.text.splitlines()[-1][-60:])


def postgres_killed(world: DeskWorld, fault: Fault) -> Done:
    world.postgres.kill()
    time.sleep(fault.lasts)
    world.postgres.start()
    return Done()


def postgres_stopped(world: DeskWorld, fault: Fault) -> Done:
    world.postgres.stop()
    time.sleep(fault.lasts)
    world.postgres.start()
    return Done()


def postgres_frozen(world: DeskWorld, fault: Fault) -> Done:
    world.postgres.freeze()
    time.sleep(fault.lasts)
    world.postgres.thaw()
    return Done()


def backend_killed(world: DeskWorld, fault: Fault) -> Done | None:
    """PostgreSQL ends every session then, and recovers as after a crash."""
    if not (found := _backends(world)):
        return None
    with suppress(ProcessLookupError):
        os.kill(found[int(fault.draw * len(found))], signal.SIGKILL)
    return Done(words=f"one of {len(found)}")


def connections_cut(world: DeskWorld, fault: Fault) -> Done | None:
    with psycopg.connect(world.postgres.dsn, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
    return Done(words=f"{len(found)} of them") if found else None


def _backends(world: DeskWorld) -> list[int]:
    with psycopg.connect(world.postgres.dsn, autocommit=True) as connection:
        asked = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return sorted(pid for (pid,) in connection.execute(asked))


_OWN: Final[Mapping[tuple[str, str], faults.ActIn[DeskWorld]]] = {
    ("recorder", "killed"): member_killed,
    ("recorder", "told to stop"): member_stopped,
    ("recorder", "frozen"): member_frozen,
    ("operator", "killed"): operator_killed,
    ("operator", "frozen"): member_frozen,
    ("postgres", "killed"): postgres_killed,
    ("postgres", "told to stop"): postgres_stopped,
    ("postgres", "frozen"): postgres_frozen,
    ("postgres", "a backend killed"): backend_killed,
    ("postgres", "connections cut"): connections_cut,
}
ACTS: Final[Mapping[tuple[str, str], faults.ActIn[DeskWorld]]] = {**faults.ACTS, **_OWN}


def act(world: DeskWorld, fault: Fault) -> Done | None:
    """Do a fault, to its end."""
    return ACTS[fault.lane.split()[0], fault.kind](world, fault)
