"""The order of two versions of the handlers' code, and whether all workers have a fix (pure)."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from bridge.formats.text_forms import format_share

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
