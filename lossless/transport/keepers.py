"""The keepers of this process, one a broker, and their end with it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

from lossless.transport.keeping import Keeper

_keepers: dict[tuple[int, Any], Keeper] = {}
_keepers_lock = threading.Lock()


def keeper_of(broker: Any, make: Callable[[], Keeper]) -> Keeper:
    """Return this process's keeper at ``broker`` (anything hashable), made by ``make`` at first."""
    with _keepers_lock:
        key = (os.getpid(), broker)
        if key not in _keepers:
            _keepers[key] = make()
        return _keepers[key]


@atexit.register
def _close_keepers() -> None:
    for (pid, _), keeper in tuple(_keepers.items()):
        if pid == os.getpid():
            keeper.close()
