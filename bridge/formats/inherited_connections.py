"""The database connections of the user's code that a forked process inherits, and must not use."""

import gc
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any


def find_engines() -> Sequence[Any]:
    """Return the SQLAlchemy engines of this process, for `leave_connections` in a forked one."""
    engine = getattr(sys.modules.get("sqlalchemy"), "Engine", None)
    if engine is None:
        return ()
    with warnings.catch_warnings():
        # Some objects warn when they are asked for their class.
        warnings.simplefilter("ignore")
        return [each for each in gc.get_objects() if issubclass(type(each), engine)]


def leave_connections(engines: Iterable[Any]) -> None:
    """Leave the parent its database connections, in a forked process: two must not share one."""
    for engine in engines:
        engine.dispose(close=False)
    django = sys.modules.get("django.db")
    if django is not None:
        for connection in find_django_connections(django):
            connection.connection = None


def find_django_connections(django: Any) -> Sequence[Any]:
    """Return Django's connections that were used; none if Django is not set up."""
    conf = sys.modules.get("django.conf")
    if conf is None or not conf.settings.configured:
        return ()
    return [*django.connections.all(initialized_only=True)]
