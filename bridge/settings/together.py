"""Settings and handlers together, with every fault at once: what both processes ask before they start."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from celery import Celery

from bridge.handlers import Routes, find_routes
from bridge.settings.modules import no_handler
from bridge.settings.reading import read
from bridge.settings.values import Settings


class Together(NamedTuple):
    """What can be known without a connection.

    Attributes:
        settings: with defaults where they are wrong.
        routes: the handlers that were found.
        faults: everything that is wrong, a sentence each.
    """

    settings: Settings
    routes: Routes
    faults: list[str]


def together(app: Celery, environ: Mapping[str, str], broken: Iterable[str] = ()) -> Together:
    """Read the settings, and the handlers of the modules that were imported.

    Parameters:
        broken: what was wrong with importing them.
    """
    chosen, wrong = read(app, environ)
    routes, lost = find_routes(app)
    faults = [*broken, *wrong, *lost]
    if not routes.topics and not faults:
        faults.append(no_handler(app, environ))
    return Together(chosen, routes, faults)
