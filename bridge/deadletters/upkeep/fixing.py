"""Groups and causes that were fixed in a version go back by themselves once workers have it; and open if that fails.

One of the recorder's duties. Of several recorders one makes the plan: who makes it holds the group meanwhile, and notes
it there.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any, Final

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import Counts, Options, State, What
from bridge.deadletters.store import clock, fixes, items, plans, trail
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.fixes import Fix
from bridge.deadletters.store.matching import matching
from bridge.deadletters.upkeep.versions import has, ready
from bridge.ledger import Ledger
from bridge.ledger.members import Members
from bridge.settings import Settings
from bridge.upkeep.facts import letters as letters_said

logger = logging.getLogger(__name__)

#: Plans of which nothing more comes by itself.
_OVER: Final = (State.DONE, State.FAILED)


def look(database: Database, living: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
    """Look at all groups and causes that are marked as fixed: say which have failed again, send back what may go.

    Parameters:
        living: tells what living workers announce (`workers`); asked where a group is marked.

    Raises:
        DeskUnavailable, LedgerUnavailable: the database, or Redis, does not answer; it is looked again.
    """
    with database.reading() as connection:
        found = fixes.fixed(connection)
    if not found:
        return
    told = [*living()]
    for fix in found:
        with database.writing() as connection:
            # Else another recorder, or a person, has changed it since it was read.
            if fixes.hold(connection, fix) and not _regressed(connection, fix):
                _send_back(connection, fix, told)


def workers(settings: Settings) -> list[Mapping[str, Any]]:
    """What the living workers of the group announce; without a Redis none is known.

    Raises:
        LedgerUnavailable: Redis does not answer.
    """
    ledger = Ledger.of(settings)
    if ledger is None:
        return []
    with closing(ledger):
        living = Members(ledger, "workers").living().values()
    return [worker for worker in living if worker.get("group", settings.group) == settings.group]


def _regressed(connection: Connection, fix: Fix) -> bool:
    """Whether a letter has failed in the version that was to fix it, or a later one; then the mark is taken back."""
    failed = fixes.failed_since(connection, fix)
    if fix.plan_id is not None:
        failed += fixes.dead_again(connection, fix.plan_id)
    version = next((version for version in failed if has(version, fix.fixed_in)), None)
    if version is None:
        return False
    at = clock.now(connection)
    fixes.regressed(connection, fix, at)
    it = "it" if fix.cause is None else f"cause {fix.cause}"
    why = f"{it} failed in version {version}, and was to be fixed in {fix.fixed_in}"
    if fix.plan_id is not None:
        plans.move(connection, fix.plan_id, [State.PLANNED, State.APPLYING], State.STOPPED, f"regression: {why}")
    trail.write(connection, at, _by(fix), "regressed", why, group_id=fix.group_id, plan_id=fix.plan_id)
    logger.error("%s of %s has a regression: %s; the rest of its letters stays", fix.name, fix.handler, why)
    return True


def _send_back(connection: Connection, fix: Fix, workers: Iterable[Mapping[str, Any]]) -> None:
    """Plan a canary of what is open and failed in other versions, where all workers have the one that mends it."""
    if not ready(fix.handler, fix.fixed_in, workers) or not _may_go(connection, fix):
        return
    versions = [version for version in fixes.open_versions(connection, fix) if not has(version, fix.fixed_in)]
    if not versions:
        return
    causes = () if fix.cause is None else (fix.cause,)
    asked = Filter(groups=(fix.group_id,), causes=causes, statuses=(Status.OPEN,), versions=tuple(versions))
    why = f"{fix.name} is fixed in {fix.fixed_in}"
    plan_id, at = plans.add(connection, What.REPLAY, _by(fix), why, asked.to_data(), Options(canary=True))
    fixes.planned(connection, fix, plan_id)
    count = items.freeze(connection, plan_id, matching(asked), canary=True)
    plans.counted(connection, plan_id, Counts(letters=count))
    # Who has no lease of it finds it then, as one that was left by a process that died.
    plans.move(connection, plan_id, [State.PLANNED], State.APPLYING)
    trail.write(
        connection, at, _by(fix), "replay", f"{why}: {letters_said(count)}", group_id=fix.group_id, plan_id=plan_id
    )
    logger.info("%s: %d of its letters go back, by plan %d", why, count, plan_id)


def _may_go(connection: Connection, fix: Fix) -> bool:
    """Whether the letters that went before have gone well; what a canary or a person has stopped waits for a person."""
    if fix.plan_id is None:
        return True
    plan = plans.one(connection, fix.plan_id)
    return plan is None or (plan.state in _OVER and plan.is_over)


def _by(fix: Fix) -> str:
    return f"fixed in {fix.fixed_in}"
