"""The order of two versions of the handlers' code, and whether all workers have a fix (pure)."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from packaging.version import InvalidVersion, Version

#: A day, and what counts the releases of that day: `20261120`, `2026-11-20`, `2026-11-20.3`, `20261120093000`.
_DATE: Final = re.compile(r"v?(20\d\d)[-._]?(0[1-9]|1[0-2])[-._]?([0-2]\d|3[01])((?:[-._T:]?\d)*)Z?")
#: What a commit's hash looks like, whole or cut; PEP 440 would read a number from digits alone or with one letter.
_HASH: Final = re.compile(r"[0-9a-f]{7,64}")


def has_fix(version: str, fixed_in: str) -> bool:
    """Whether code of a version has what was mended in another: it is that one, or a later one.

    A date has an order. What is no version by PEP 440, and a commit's hash whatever it is made of, has none: only the
    same has it.

    Parameters:
        version: as workers report it; empty: they do not, and nobody knows what they have.
    """
    if not version:
        return False
    try:
        return _parse_version(version) >= _parse_version(fixed_in)
    except InvalidVersion:
        return version == fixed_in


def _parse_version(version: str) -> Version:
    """Raises InvalidVersion where it has no order."""
    if date := _DATE.fullmatch(version):
        return Version(".".join([*date.groups()[:3], *re.findall(r"\d+", date[4])]))
    if _HASH.fullmatch(version):
        raise InvalidVersion(version)
    return Version(version)


def is_fix_deployed(handler: str, fixed_in: str, workers: Iterable[Mapping[str, Any]]) -> bool:
    """Whether every living worker that knows a handler has what was mended: what is sent back may reach any of them.

    Parameters:
        workers: what each announces; one of an older release does not say which version it has.
    """
    found = [worker for worker in workers if handler in worker.get("handlers", ())]
    return bool(found) and all(has_fix(_find_worker_version(worker, handler), fixed_in) for worker in found)


def explain_fix_wait(handler: str, fixed_in: str, workers: Iterable[Mapping[str, Any]]) -> str:
    """Why nothing goes back yet to a handler that was mended, a sentence; empty: every living worker has it.

    Parameters:
        workers: what each announces.
    """
    found = [_find_worker_version(worker, handler) for worker in workers if handler in worker.get("handlers", ())]
    if not found:
        return f"no worker that lives has {handler}: its letters go back once one does that reports {fixed_in}"
    if silent := sum(not version for version in found):
        return (
            f"{silent} of {len(found)} workers report no version of {handler}, so nothing goes back by itself: "
            "set KAFKA_HANDLERS_VERSION where they start"
        )
    older = sorted({version for version in found if not has_fix(version, fixed_in)})
    return f"workers still have {', '.join(older)}: its letters go back once all have {fixed_in}" if older else ""


def _find_worker_version(worker: Mapping[str, Any], handler: str) -> str:
    return str(worker.get("handler_versions", {}).get(handler) or "")
