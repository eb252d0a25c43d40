"""What an admin does with users in a browser: as they have seen them, once, and never so that no admin is left."""

from dataclasses import dataclass
from typing import Final

from bridge.deadletters.store import clock, sessions, trail, users
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.users import Secret, User
from bridge.deadletters.users.link import Link
from bridge.deadletters.users.role import Role
from bridge.deadletters.users.users import WHAT, named
from bridge.errors import UserChanged, UserRefused

_GONE: Final = "There is no such user any more: somebody has removed them."


@dataclass(frozen=True)
class Admins:
    """Every method raises DeskUnavailable where the database does not answer, and UserChanged where there is no such
    user any more.

    Parameters of the methods: `token` is of the link by which somebody chooses a password, `by` the admin's name.
    """

    database: Database

    def invite(self, name: str, role: Role, token: str, by: str) -> User:
        """Add somebody, who chooses a password by a link; the same once more changes nothing.

        Raises:
            UserRefused: the name is none, or somebody's already; or the first user would be no admin.
        """
        name = named(name)
        with self.database.writing() as connection:
            found, at = users.find(connection, name), clock.now(connection)
            link = _link(token, at)
            if found is not None:
                if found.role == str(role) and _opens(connection, found, token, at):
                    return found
                raise UserRefused(f"There is a user {name} already: nothing was changed.")
            if role is not Role.ADMIN and not users.is_any(connection):
                raise UserRefused("The first user is an admin, who adds the others: nothing was changed.")
            users.add(connection, name, str(role), link.written(), at, by)
            trail.write(connection, at, by, WHAT, f"{name} added, as {role}, to choose a password by a link")
            return _one(connection, users.find(connection, name))

    def one(self, id_: int) -> User:
        """A user."""
        with self.database.reading() as connection:
            return _one(connection, users.of_id(connection, id_))

    def give_role(self, id_: int, was: str, role: Role, by: str) -> None:
        """Change what somebody may, if it is still what was seen; they are signed out everywhere.

        Raises:
            UserChanged: somebody else has given them another role since.
            UserRefused: no admin would be left.
        """
        with self.database.writing() as connection:
            user = _one(connection, users.hold(connection, id_))
            if user.role == str(role):
                return
            if user.role != was:
                raise UserChanged(f"{user.name} is {user.role} by now. {_last(connection, user.name)}")
            _leaves_admin(connection, user)
            users.set_role(connection, id_, str(role))
            sessions.end_all(connection, id_)
            _note(connection, by, f"{user.name} is {role} now, was {user.role}")

    def new_link(self, id_: int, token: str, by: str) -> User:
        """Have somebody choose another password: the one until now is worth nothing, and they are signed out.

        Raises:
            UserRefused: no admin would be left who can sign in.
        """
        with self.database.writing() as connection:
            user, at = _one(connection, users.hold(connection, id_)), clock.now(connection)
            if not _opens(connection, user, token, at):
                _leaves_admin(connection, user)
                users.set_password(connection, id_, _link(token, at).written())
                sessions.end_all(connection, id_)
                _note(connection, by, f"{user.name} chooses another password by a link")
            return user

    def sign_out(self, id_: int, by: str) -> None:
        """End all of somebody's sessions; nothing is said where they have none."""
        with self.database.writing() as connection:
            user = _one(connection, users.hold(connection, id_))
            if sessions.end_all(connection, id_):
                _note(connection, by, f"{user.name} signed out everywhere")

    def remove(self, id_: int, by: str) -> None:
        """Remove somebody, with all their sessions; nothing where they are gone. What they did stays in the trail.

        Raises:
            UserRefused: no admin would be left.
        """
        with self.database.writing() as connection:
            user = users.hold(connection, id_)
            if user is not None:
                _leaves_admin(connection, user)
                users.remove(connection, id_)
                _note(connection, by, f"{user.name} removed, was {user.role}")

    def invited(self, id_: int, token: str) -> str | None:
        """Who chooses a password by this link; `None`: it was used already, is over, or is none."""
        with self.database.reading() as connection:
            user = users.of_id(connection, id_)
            fits = user is not None and _opens(connection, user, token, clock.now(connection))
            return user.name if user and fits else None

    def choose(self, id_: int, token: str, password: str) -> bool:
        """Take a password that was chosen by a link, which is used up by this; whether it was so.

        Parameters:
            password: its hash.
        """
        with self.database.writing() as connection:
            user = users.hold(connection, id_)
            if user is None or not _opens(connection, user, token, clock.now(connection)):
                return False
            users.set_password(connection, id_, password)
            _note(connection, user.name, f"{user.name} has chosen a password")
            return True


def _one(connection: Connection, found: User | None) -> User:
    if found is None:
        raise UserChanged(_GONE)
    return found


def _link(token: str, at: int) -> Link:
    made = Link.of(token, at)
    if made is None:
        raise UserRefused("This form has no link of the console's: load the page again. Nothing was changed.")
    return made


def _opens(connection: Connection, user: User, token: str, at: int) -> bool:
    secret: Secret | None = users.secret(connection, user.name)
    link = Link.read(secret.password) if secret else None
    return link is not None and link.opens(token, at)


def _leaves_admin(connection: Connection, user: User) -> None:
    """Somebody else is left who may all, and has a password; held, so that two do not take it of each other."""
    if user.role == str(Role.ADMIN) and not users.admins(connection) - {user.id}:
        raise UserRefused(
            f"{user.name} is the last admin with a password: make somebody else one first. Nothing was changed."
        )


def _last(connection: Connection, name: str) -> str:
    """What was done last with somebody."""
    acts = trail.page(connection, "", (WHAT,), None, 200)
    last = next((act for act in acts if act.said.startswith(f"{name} ")), None)
    return f"{last.said}, by {last.by}. " if last else ""


def _note(connection: Connection, by: str, said: str) -> None:
    trail.write(connection, clock.now(connection), by, WHAT, said)
