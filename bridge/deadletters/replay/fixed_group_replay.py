"""The automatic replay of groups that are marked as fixed in a version, when all workers have it or a later one.

A group that fails again in such a version is a regression.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from bridge.deadletters.db import account_rows, audit_rows, group_rows, plan_item_rows, plan_rows, sql
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.group_rows import GroupFix
from bridge.deadletters.model.bulk_plan import PlanCounts, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.formats.text_forms import format_share
from bridge.jobs.group_facts import format_letter_count as letters_said
from bridge.ledger import Ledger
from bridge.ledger.group_members import GroupMembers
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: The states of plans that end without a person.
_OVER: Final = (PlanState.DONE, PlanState.FAILED)


def check_fixed_groups(database: Database, living: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
    """Check all groups and causes that are marked as fixed: note regressions, and replay what may go.

    Parameters:
        living: returns the announcements of living workers; called only if a group is marked.

    Raises:
        DeskUnavailable, LedgerUnavailable: the database, or Redis, does not answer; try again.
    """
    with database.reading() as connection:
        found = group_rows.read_fixes(connection)
    if not found:
        return
    told = [*living()]
    for fix in found:
        with database.writing() as connection:
            # Else another recorder, or a person, has changed it since it was read.
            if group_rows.hold_fix(connection, fix) and not _mark_regression(connection, fix):
                _plan_replay(connection, fix, told)


def read_living_workers(settings: Settings) -> list[Mapping[str, Any]]:
    """Return the announcements of the group's living workers; none without a Redis."""
    ledger = Ledger.from_settings(settings)
    if ledger is None:
        return []
    with closing(ledger):
        living = GroupMembers(ledger, "workers").living().values()
    return [worker for worker in living if worker.get("group", settings.group) == settings.group]


def _mark_regression(connection: Connection, fix: GroupFix) -> bool:
    """Return whether a letter failed in the fixed version or a later one; if so, remove the mark."""
    failed = group_rows.find_versions_failed_since(connection, fix)
    if fix.plan_id is not None:
        failed += group_rows.find_versions_dead_again(connection, fix.plan_id)
    version = next((version for version in failed if has_fix(version, fix.fixed_in)), None)
    if version is None:
        return False
    at = sql.read_clock(connection)
    group_rows.note_regression(connection, fix, at)
    it = "it" if fix.cause is None else f"cause {fix.cause}"
    why = f"{it} failed in version {version}, and was to be fixed in {fix.fixed_in}"
    if fix.plan_id is not None:
        plan_rows.change_plan_state(
            connection,
            fix.plan_id,
            [PlanState.PLANNED, PlanState.AWAITING, PlanState.APPLYING],
            PlanState.STOPPED,
            f"regression: {why}",
        )
    audit_rows.write_entry(
        connection, at, _name_actor(fix), "regressed", why, group_id=fix.group_id, plan_id=fix.plan_id
    )
    logger.error("%s of %s has a regression: %s; the rest of its letters stays", fix.name, fix.handler, why)
    return True


def _plan_replay(connection: Connection, fix: GroupFix, workers: Iterable[Mapping[str, Any]]) -> None:
    """Plan a canary of the open letters that failed in other versions, if all workers have the fixed one."""
    if not is_fix_deployed(fix.handler, fix.fixed_in, workers) or not _may_replay(connection, fix):
        return
    versions = [
        version for version in group_rows.count_open_by_version(connection, fix) if not has_fix(version, fix.fixed_in)
    ]
    if not versions:
        return
    causes = () if fix.cause is None else (fix.cause,)
    filter_ = LetterFilter(
        groups=(fix.group_id,), causes=causes, statuses=(LetterStatus.OPEN,), versions=tuple(versions)
    )
    why = f"{fix.name} is fixed in {fix.fixed_in}"
    plan_id, at = plan_rows.add_plan(
        connection,
        PlanKind.REPLAY,
        _name_actor(fix),
        why,
        filter_.to_data(),
        PlanOptions(canary=True),
        account_rows.find_person(connection, fix.fixed_by or ""),
    )
    group_rows.note_fix_plan(connection, fix, plan_id)
    count = plan_item_rows.freeze_letters(connection, plan_id, select_matching_letters(filter_), canary=True)
    plan_rows.note_plan_counts(connection, plan_id, PlanCounts(letters=count))
    # Without a lease, a recorder finds it like a plan of a dead process; a large one awaits a second person there.
    plan_rows.change_plan_state(connection, plan_id, [PlanState.PLANNED], PlanState.APPLYING)
    audit_rows.write_entry(
        connection,
        at,
        _name_actor(fix),
        "replay",
        f"{why}: {letters_said(count)}",
        group_id=fix.group_id,
        plan_id=plan_id,
    )
    logger.info("%s: %d of its letters are replayed by plan %d", why, count, plan_id)


def _may_replay(connection: Connection, fix: GroupFix) -> bool:
    """Return whether the earlier letters went well; a plan that a canary or a person stopped waits for a person."""
    if fix.plan_id is None:
        return True
    plan = plan_rows.read_plan(connection, fix.plan_id)
    return plan is None or (plan.state in _OVER and plan.is_over)


def _name_actor(fix: GroupFix) -> str:
    return f"fixed in {fix.fixed_in}"


#: A date, and the release of that day: `20261120`, `2026-11-20`, `2026-11-20.3`, `20261120093000`.
_DATE: Final = re.compile(r"v?(20\d\d)[-._]?(0[1-9]|1[0-2])[-._]?([0-2]\d|3[01])((?:[-._T:]?\d)*)Z?")
#: A commit's hash, whole or cut; PEP 440 would read a number from some of them.
_HASH: Final = re.compile(r"[0-9a-f]{7,64}")


def has_fix(version: str, fixed_in: str) -> bool:
    """Return whether code of a version has the fix of another: the same version, or a later one.

    Dates and PEP 440 versions have an order. Others, and hashes of commits, have none: only the same version has the
    fix.

    Parameters:
        version: as workers report it; empty: unknown.
    """
    if not version:
        return False
    try:
        return _parse_version(version) >= _parse_version(fixed_in)
    except InvalidVersion:
        return version == fixed_in


def _parse_version(version: str) -> Version:
    """Return the parsed version; raise InvalidVersion if it has no order."""
    if date := _DATE.fullmatch(version):
        return Version(".".join([*date.groups()[:3], *re.findall(r"\d+", date[4])]))
    if _HASH.fullmatch(version):
        raise InvalidVersion(version)
    return Version(version)


def is_fix_deployed(handler: str, fixed_in: str, workers: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether every living worker that knows a handler has the fix: a replay may reach any of them.

    Parameters:
        workers: the announcement of each; an older release does not report its version.
    """
    found = [worker for worker in workers if handler in worker.get("handlers", ())]
    return bool(found) and all(has_fix(_find_worker_version(worker, handler), fixed_in) for worker in found)


def explain_fix_wait(handler: str, fixed_in: str, workers: Iterable[Mapping[str, Any]]) -> str:
    """Return why a fixed handler's letters are not replayed yet; empty if every living worker has the fix.

    Parameters:
        workers: the announcement of each.
    """
    found = [_find_worker_version(worker, handler) for worker in workers if handler in worker.get("handlers", ())]
    if not found:
        return f"no living worker has {handler}: its letters are replayed once one reports {fixed_in}"
    if silent := sum(not version for version in found):
        return (
            f"{format_share(silent, len(found), 'worker', 'report')} no version of {handler}, so nothing is "
            "replayed automatically: "
            "set KAFKA_HANDLERS_VERSION where they start"
        )
    older = sorted({version for version in found if not has_fix(version, fixed_in)})
    return f"workers still have {', '.join(older)}: its letters are replayed once all have {fixed_in}" if older else ""


def _find_worker_version(worker: Mapping[str, Any], handler: str) -> str:
    return str(worker.get("handler_versions", {}).get(handler) or "")
