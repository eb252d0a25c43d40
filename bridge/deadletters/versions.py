"""Versions of the handlers' code, compared (pure)."""

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


def has_order(version: str) -> bool:
    """Whether others can be later than it."""
    try:
        Version(version)
    except InvalidVersion:
        return False
    return True
