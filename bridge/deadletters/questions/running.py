"""What of handlers runs now: which versions of them on how many workers, and whether what they need is down."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

from bridge.errors import LedgerUnavailable
from bridge.handlers import Routes
from bridge.ledger import Ledger
from bridge.ledger.breakers import Breakers
from bridge.ledger.members import Members
from bridge.settings import Settings

#: Seconds for which Redis is waited for: a page without this part is better than none.
ANSWER_WITHIN: Final = 2.0


class Running(NamedTuple):
    """What runs.

    Attributes:
        versions: by handler, how many living workers have which version; "" of those that report none.
        down: by handler, what it needs and whose breaker is open.
        trouble: why it is not known; "": it is.
        started: by handler and version, when the first living worker that has it came up, ms since the epoch.
    """

    versions: Mapping[str, Mapping[str, int]]
    down: Mapping[str, str]
    trouble: str = ""
    started: Mapping[str, Mapping[str, int]] = {}


def running(settings: Settings, routes: Routes) -> Running:
    """Ask Redis; that it does not answer is a sentence."""
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        return Running({}, {}, "There is no Redis, so it is not known what runs.")
    try:
        with closing(ledger):
            workers = [*Members(ledger, "workers").living().values()]
            down = Breakers(ledger).open_ones(sorted(routes.terms)) if routes.terms else {}
    except LedgerUnavailable as error:
        return Running({}, {}, str(error))
    needed = {each.name: name for name in down for each in routes if name in each.needs}
    return Running(versions(settings.group, workers), needed, started=started(settings.group, workers))


def versions(group: str, workers: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """By handler, how many workers of a group have which version (pure).

    Parameters:
        workers: what each announces.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for worker in workers:
        if worker.get("group", group) == group:
            told = worker.get("handler_versions") or {}
            for handler in worker.get("handlers", ()):
                found[str(handler)][str(told.get(handler) or "")] += 1
    return {handler: dict(counted) for handler, counted in found.items()}


def started(group: str, workers: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """By handler and version, when the first of these workers came up that has it, ms since the epoch (pure).

    Parameters:
        workers: what each announces; of one that reports no version nothing is known.
    """
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for worker in workers:
        at = worker.get("started")
        if worker.get("group", group) == group and isinstance(at, (int, float)):
            for handler, version in (worker.get("handler_versions") or {}).items():
                of = found[str(handler)]
                if version:
                    of[str(version)] = min(int(at * 1000), of.get(str(version), int(at * 1000)))
    return dict(found)
