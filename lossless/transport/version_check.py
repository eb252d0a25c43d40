"""The check of versions: libraries whose private parts this package uses, and the oldest Redis."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kombu.exceptions import VersionMismatch

#: From the first version on, and before the second; pyproject.toml says the same.
MADE_FOR = {"celery": ("5.7", "5.8"), "kombu": ("5.7", "5.8"), "redis": ("8.1", "9")}

OLDEST_REDIS = (6, 2)


def refuse_other_versions() -> None:
    """Raise `VersionMismatch`, with every fault, for libraries of a version that this package is not made for.

    A private part that has moved would fail at run time, with messages at stake.
    """
    faults = [fault for name in MADE_FOR if (fault := find_version_fault(name, _installed(name)))]
    if faults:
        raise VersionMismatch("; ".join(faults))


def find_version_fault(name: str, installed: str | None) -> str | None:
    """Return what is wrong with a library's version, or None; one that is not installed has no fault."""
    since, before = MADE_FOR[name]
    if installed is None or _numbers(since) <= _numbers(installed) < _numbers(before):
        return None
    return f"{name} {installed} is installed, but lossless needs {since} or later, before {before}"


def refuse_unfit_redis(info: dict[str, Any]) -> None:
    """Raise `VersionMismatch` for a Redis older than 6.2 or a node of Redis Cluster, given the answer to
    ``INFO server``.
    """
    if "cluster" in (info.get("redis_mode"), info.get("server_mode")):  # Valkey's name for it is the second
        raise VersionMismatch("The broker is Redis Cluster, which is not supported: use one Redis, or Sentinel")
    found = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST_REDIS:
        raise VersionMismatch(f"The broker is Redis {found}; this transport needs Redis 6.2 or newer, as kombu does")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """Return the leading numbers: those of 5.7.0rc1 are 5 and 7."""
    numbers = []
    for part in text.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
