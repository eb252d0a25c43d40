"""The address of the desk's database: what it names, and how it is shown, without a secret (pure)."""

from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from bridge.errors import DeskUnavailable

#: The databases that the desk is tested on, by the names that addresses have for them (Heroku's is `postgres`).
DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def read(url: str) -> URL:
    """What an address names, with the driver that the desk uses unless it says another.

    Raises:
        DeskUnavailable: it is none, or names a database that the desk does not work with.
    """
    try:
        made = make_url(url)
    except (ArgumentError, ValueError):
        # Its text may hold a part of the password.
        raise _none() from None
    backend = made.get_backend_name()
    if backend not in DRIVERS:
        raise DeskUnavailable(
            f"DEADLETTERS_DATABASE_URL names a {backend} database: dead letters go into PostgreSQL or SQLite."
        )
    if backend == "sqlite":
        _check_file(made)
    elif "@" in f"{made.host}{made.database}":
        # Of a password with an @ in it what stands behind that: no host and no database is called so.
        raise _none()
    return made.set(drivername=DRIVERS[made.drivername]) if made.drivername in DRIVERS else made


def shown(url: URL) -> str:
    """An address fit for a log: without its password, and without its options, of which some are passwords."""
    return url.set(query={}).render_as_string(hide_password=True)


def _none() -> DeskUnavailable:
    return DeskUnavailable(
        "DEADLETTERS_DATABASE_URL is no address of a database: write postgresql://user:password@host/database, "
        "the password URL-encoded, or sqlite:////path/to/file."
    )


def _check_file(url: URL) -> None:
    if url.database in (None, "", ":memory:"):
        raise DeskUnavailable(
            "DEADLETTERS_DATABASE_URL names a database in memory, which is gone with its process: "
            "write sqlite:////path/to/file."
        )
