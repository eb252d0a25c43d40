"""Versions of the handlers' code, compared (pure)."""

from collections.abc import Iterable, Mapping
from typing import Any

from packaging.version import InvalidVersion, Version


def has(version: str, fixed_in: str) -> bool:
    """Whether code of a version has what was mended in another: it is that one, or a later one.

    What is no version by PEP 440 (a commit's hash) has no order: only the same has it.

    Parameters:
        version: as workers report it; empty: they do not, and nobody knows what they have.
    """
    if not version:
        return False
    try:
        return Version(version) >= Version(fixed_in)
    except InvalidVersion:
        return version == fixed_in


def ready(handler: str, fixed_in: str, workers: Iterable[Mapping[str, Any]]) -> bool:
    """Whether every living worker that knows a handler has what was mended: what is sent back may reach any of them.

    Parameters:
        workers: what each announces; one of an older release does not say which version it has.
    """
    found = [worker for worker in workers if handler in worker.get("handlers", ())]
    return bool(found) and all(has(_version(worker, handler), fixed_in) for worker in found)


def waits_for(handler: str, fixed_in: str, workers: Iterable[Mapping[str, Any]]) -> str:
    """Why nothing goes back yet to a handler that was mended, a sentence; empty: every living worker has it.

    Parameters:
        workers: what each announces.
    """
    found = [_version(worker, handler) for worker in workers if handler in worker.get("handlers", ())]
    if not found:
        return f"no worker that lives has {handler}: its letters go back once one does that reports {fixed_in}"
    if silent := sum(not version for version in found):
        return (
            f"{silent} of {len(found)} workers report no version of {handler}, so nothing goes back by itself: "
            "set KAFKA_HANDLERS_VERSION where they start"
        )
    older = sorted({version for version in found if not has(version, fixed_in)})
    return f"workers still have {', '.join(older)}: its letters go back once all have {fixed_in}" if older else ""


def _version(worker: Mapping[str, Any], handler: str) -> str:
    return str(worker.get("handler_versions", {}).get(handler) or "")
