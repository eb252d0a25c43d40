"""The desk's door: what its commands, and its console, may ask of it and have it do."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from celery import Celery

from bridge.deadletters.copying.copies import Copies
from bridge.deadletters.files.transfers import Transfers
from bridge.deadletters.masking.common import Common
from bridge.deadletters.masking.differing import Differing
from bridge.deadletters.masking.editing import Editing
from bridge.deadletters.masking.lists import Lists
from bridge.deadletters.masking.masks import Masks
from bridge.deadletters.mending.mending import Mending
from bridge.deadletters.outcomes.unknown_ends import UnknownEnds
from bridge.deadletters.plans.plans import Plans
from bridge.deadletters.questions.absent import Absent
from bridge.deadletters.questions.group_causes import GroupCauses
from bridge.deadletters.questions.groups import Groups
from bridge.deadletters.questions.letters import Letters
from bridge.deadletters.questions.notes import Notes
from bridge.deadletters.questions.of_versions import GroupVersions
from bridge.deadletters.questions.progress import Progresses
from bridge.deadletters.questions.simulations import Simulations
from bridge.deadletters.questions.standing import GroupStandings
from bridge.deadletters.questions.totals import Totals
from bridge.deadletters.questions.trail import Trail
from bridge.deadletters.redrive.redrive import Redrive
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.plans import Over
from bridge.deadletters.store.requests import Claim
from bridge.deadletters.users.admins import Admins
from bridge.deadletters.users.issued import Issued
from bridge.deadletters.users.requests import Requests
from bridge.deadletters.users.sessions import Sessions
from bridge.deadletters.users.tokens import Tokens
from bridge.deadletters.users.users import Users
from bridge.deadletters.webhooks.webhooks import Webhooks
from bridge.handlers import Routes
from bridge.settings import Settings


@dataclass(frozen=True)
class Desk:
    """The dead letters of one group, in one database.

    Attributes:
        app: whose tasks the handlers are: their codecs and models say what a value is.
    """

    app: Celery
    settings: Settings
    routes: Routes
    database: Database
    _over: Over = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    @contextmanager
    def opened(cls, app: Celery, settings: Settings, routes: Routes, *, makes: bool = True) -> Iterator[Self]:
        """The desk with its tables as this version needs them.

        Parameters:
            makes: whether a file of SQLite is made where there is none: not by who only looks.

        Raises:
            NoDatabase: there is none, and none was made.
            DeskUnavailable: the database could not be opened, or its tables not be made.
        """
        database = Database(settings.environment.DEADLETTERS_DATABASE_URL)
        try:
            if not makes:
                database.need()
            database.migrate()
            yield cls(app, settings, routes, database)
        finally:
            database.close()

    @staticmethod
    def migrated(settings: Settings, to: str) -> tuple[str, str | None, str]:
        """Bring the desk's tables to a step, as their owner in the database may.

        Returns:
            The database, its step before (`None`: it had no tables), and now.

        Raises:
            DeskUnavailable: the database did not do it.
            NoSuchStep: `to` is no step of this version.
        """
        database = Database(settings.environment.DEADLETTERS_DATABASE_URL)
        try:
            return database.name, *database.migrate(to)
        finally:
            database.close()

    @property
    def letters(self) -> Letters:
        """Dead letters looked at."""
        return Letters(self.database)

    @property
    def absent(self) -> Absent:
        """What is asked for and is not there."""
        return Absent(self.routes, self.database)

    @property
    def groups(self) -> Groups:
        """Dead letters that are one thing to mend."""
        return Groups(self.database)

    @property
    def causes(self) -> GroupCauses:
        """The causes within groups."""
        return GroupCauses(self.database)

    @property
    def standings(self) -> GroupStandings:
        """Groups with what is known beside them, and what to do with each next."""
        return GroupStandings(self.settings, self.routes, self.database)

    @property
    def versions(self) -> GroupVersions:
        """In which versions groups have failed, and which run."""
        return GroupVersions(self.settings, self.routes, self.database)

    @property
    def totals(self) -> Totals:
        """All of them in figures."""
        return Totals(self.database)

    @property
    def plans(self) -> Plans:
        """What is done with many letters at once: replayed, discarded, archived."""
        return Plans(self.app, self.settings, self.routes, self.database, self._over)

    @property
    def progress(self) -> Progresses:
        """How far single plans are."""
        return Progresses(self.database)

    @property
    def notes(self) -> Notes:
        """What people say of them."""
        return Notes(self.database)

    @property
    def unknown_ends(self) -> UnknownEnds:
        """Letters of which nobody can tell whether their replay ran."""
        return UnknownEnds(self.database)

    @property
    def trail(self) -> Trail:
        """Who did what, and when."""
        return Trail(self.database)

    @property
    def transfers(self) -> Transfers:
        """Letters into files, and out of them."""
        return Transfers(self.database)

    @property
    def simulations(self) -> Simulations:
        """Policies tried on them."""
        return Simulations(self.app, self.settings, self.routes, self.database)

    @property
    def mending(self) -> Mending:
        """Values that are edited, patched, or asked whether their handlers would take them."""
        return Mending(self.app, self.database)

    def editing(self, masks: Masks) -> Editing:
        """The same by somebody who does not see all of them."""
        return Editing(self.letters, self.mending, masks)

    def differing(self, masks: Masks) -> Differing:
        """How plans change values, likewise."""
        return Differing(self.database, masks)

    def lists(self, masks: Masks) -> Lists:
        """Lists for somebody who does not see all of their letters."""
        return Lists(self.database, masks)

    def common(self, masks: Masks) -> Common:
        """What the letters of a group have in common, likewise."""
        return Common(self.database, masks)

    @property
    def copies(self) -> Copies:
        """Letters copied elsewhere."""
        return Copies(self.settings, self.routes, self.database)

    @property
    def redrive(self) -> Redrive:
        """Ranges of source topics, sent again."""
        return Redrive(self.settings, self.routes, self.database)

    @property
    def users(self) -> Users:
        """Who may sign in to the console."""
        return Users(self.database)

    @property
    def admins(self) -> Admins:
        """What an admin does with them in a browser."""
        return Admins(self.database)

    @property
    def webhooks(self) -> Webhooks:
        """Addresses that are told of alarms."""
        return Webhooks(self.settings, self.database)

    @property
    def sessions(self) -> Sessions:
        """Who is signed in to it."""
        return Sessions(self.database)

    @property
    def issued(self) -> Issued:
        """Who is signed in to it by the word of an issuer."""
        return Issued(self.database)

    @property
    def tokens(self) -> Tokens:
        """What programs sign in to it with."""
        return Tokens(self.database)

    @property
    def requests(self) -> Requests:
        """What programs have asked of it."""
        return Requests(self.database)

    def doing(self, claim: Claim) -> Self:
        """This desk, while it does a request: what it does is noted as that one's."""
        return replace(self, database=self.database.doing(claim))
