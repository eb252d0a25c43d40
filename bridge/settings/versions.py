"""Which versions run here: what `--version` prints and what bridges and workers announce."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

#: The distribution that this project installs as.
NAME: Final = "celery-kafka-bridge"


@cache
def versions() -> dict[str, str]:
    """The project's version, Celery's and Python's; empty where a package is not installed but on the path."""
    return {NAME: _of(NAME), "celery": _of("celery"), "python": platform.python_version()}


def _of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
