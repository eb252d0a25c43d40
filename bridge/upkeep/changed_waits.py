"""What handlers wait by policies that people have changed: the retry topics that this needs are looked for too."""

from collections.abc import Mapping

from celery import Celery

from bridge.handlers import Routes, changed_handlers
from bridge.records.policies import Data
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.needed import needed


class ChangedWaits:
    """Whoever made a change may have found Kafka away, or was not allowed to make topics; a bridge begins later."""

    def __init__(self, app: Celery, settings: Settings, routes: Routes, catalog: Catalog) -> None:
        self._app, self._settings, self._routes, self._catalog = app, settings, routes, catalog
        self._known: Mapping[str, Data] = {}

    def see(self, policies: Mapping[str, Data]) -> None:
        """Have the catalog look for what these need, and make it where it may.

        Parameters:
            policies: by handler, what is changed of its policy.
        """
        if policies == self._known:
            return
        self._known = policies
        changed = changed_handlers(self._app, self._routes, policies)
        self._catalog.need(needed(self._settings, Routes({handler.name: handler for handler in changed})))
