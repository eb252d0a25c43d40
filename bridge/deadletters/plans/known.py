"""Which handlers there are: of the app, under all their names, and of living workers."""

from contextlib import closing, suppress

from celery import Celery

from bridge.errors import LedgerUnavailable
from bridge.handlers import Routes
from bridge.ledger import Ledger
from bridge.ledger.members import Members
from bridge.settings import Settings


def known_handlers(app: Celery, settings: Settings, routes: Routes) -> frozenset[str]:
    """The names of the handlers that this app or a living worker knows; what Redis does not tell is left out."""
    names = set(routes.handlers)
    for name in routes.handlers:
        names |= set(getattr(app.tasks.get(name), "other_names", ()))
    if (ledger := Ledger.of(settings)) is not None:
        with closing(ledger), suppress(LedgerUnavailable):
            for state in Members(ledger, "workers").living().values():
                names |= set(map(str, state.get("handlers", ())))
    return frozenset(names)
