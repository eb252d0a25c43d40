"""The dead-letter store as the command line and the console use it: one object with everything that may be asked of
it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from celery import Celery

from bridge.deadletters.accounts.account_session import IssuedSessions, UserSessions
from bridge.deadletters.accounts.api_token import ApiTokens
from bridge.deadletters.accounts.audit_log import AuditLog, LetterNotes
from bridge.deadletters.accounts.idempotency_key import IdempotentRequests
from bridge.deadletters.accounts.user_account import UserAdministration, Users
from bridge.deadletters.alarms.webhook_service import WebhookService
from bridge.deadletters.db.audit_table import RequestClaim
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.plan_table import OverPlans
from bridge.deadletters.editing.letter_edit import LetterEditor
from bridge.deadletters.inspection.failure_groups import FailureGroups
from bridge.deadletters.inspection.group_details import GroupCauses, GroupDetails
from bridge.deadletters.inspection.group_versions import GroupVersions
from bridge.deadletters.inspection.letter_file import LetterTransfers
from bridge.deadletters.inspection.letter_lookup import AbsentNames, LetterLookup
from bridge.deadletters.inspection.letter_statistics import LetterTotals
from bridge.deadletters.inspection.policy_trial import PolicyTrials
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.masking.letter_traits import GroupTraits
from bridge.deadletters.masking.masked_edit import MaskedDifferences, MaskedEditor
from bridge.deadletters.masking.masked_lists import MaskedLists
from bridge.deadletters.replay.letter_copy import LetterCopies
from bridge.deadletters.replay.plan_progress import PlanProgressReader
from bridge.deadletters.replay.plan_service import PlanService
from bridge.deadletters.replay.redrive_plan import RedrivePlanner
from bridge.deadletters.replay.replay_outcomes import UnknownOutcomes
from bridge.handler_routes import Routes
from bridge.settings import Settings


@dataclass(frozen=True)
class DeadLetterService:
    """The dead letters of one group, in one database.

    Attributes:
        app: whose tasks the handlers are: their codecs and models say what a value is.
    """

    app: Celery
    settings: Settings
    routes: Routes
    database: Database
    _over: OverPlans = field(default_factory=dict, init=False, repr=False, compare=False)

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
    def letters(self) -> LetterLookup:
        """Dead letters looked at."""
        return LetterLookup(self.database)

    @property
    def absent(self) -> AbsentNames:
        """What is asked for and is not there."""
        return AbsentNames(self.routes, self.database)

    @property
    def groups(self) -> FailureGroups:
        """Dead letters that are one thing to mend."""
        return FailureGroups(self.database)

    @property
    def causes(self) -> GroupCauses:
        """The causes within groups."""
        return GroupCauses(self.database)

    @property
    def standings(self) -> GroupDetails:
        """Groups with what is known beside them, and what to do with each next."""
        return GroupDetails(self.settings, self.routes, self.database)

    @property
    def versions(self) -> GroupVersions:
        """In which versions groups have failed, and which run."""
        return GroupVersions(self.settings, self.routes, self.database)

    @property
    def totals(self) -> LetterTotals:
        """All of them in figures."""
        return LetterTotals(self.database)

    @property
    def plans(self) -> PlanService:
        """What is done with many letters at once: replayed, discarded, archived."""
        return PlanService(self.app, self.settings, self.routes, self.database, self._over)

    @property
    def progress(self) -> PlanProgressReader:
        """How far single plans are."""
        return PlanProgressReader(self.database)

    @property
    def notes(self) -> LetterNotes:
        """What people say of them."""
        return LetterNotes(self.database)

    @property
    def unknown_ends(self) -> UnknownOutcomes:
        """Letters of which nobody can tell whether their replay ran."""
        return UnknownOutcomes(self.database)

    @property
    def trail(self) -> AuditLog:
        """Who did what, and when."""
        return AuditLog(self.database)

    @property
    def transfers(self) -> LetterTransfers:
        """Letters into files, and out of them."""
        return LetterTransfers(self.database)

    @property
    def simulations(self) -> PolicyTrials:
        """Policies tried on them."""
        return PolicyTrials(self.app, self.settings, self.routes, self.database)

    @property
    def mending(self) -> LetterEditor:
        """Values that are edited, patched, or asked whether their handlers would take them."""
        return LetterEditor(self.app, self.database)

    def editing(self, masks: LetterMasks) -> MaskedEditor:
        """The same by somebody who does not see all of them."""
        return MaskedEditor(self.letters, self.mending, masks)

    def differing(self, masks: LetterMasks) -> MaskedDifferences:
        """How plans change values, likewise."""
        return MaskedDifferences(self.database, masks)

    def lists(self, masks: LetterMasks) -> MaskedLists:
        """Lists for somebody who does not see all of their letters."""
        return MaskedLists(self.database, masks)

    def common(self, masks: LetterMasks) -> GroupTraits:
        """What the letters of a group have in common, likewise."""
        return GroupTraits(self.database, masks)

    @property
    def copies(self) -> LetterCopies:
        """Letters copied elsewhere."""
        return LetterCopies(self.settings, self.routes, self.database)

    @property
    def redrive(self) -> RedrivePlanner:
        """Ranges of source topics, sent again."""
        return RedrivePlanner(self.settings, self.routes, self.database)

    @property
    def users(self) -> Users:
        """Who may sign in to the console."""
        return Users(self.database)

    @property
    def admins(self) -> UserAdministration:
        """What an admin does with them in a browser."""
        return UserAdministration(self.database)

    @property
    def webhooks(self) -> WebhookService:
        """Addresses that are told of alarms."""
        return WebhookService(self.settings, self.database)

    @property
    def sessions(self) -> UserSessions:
        """Who is signed in to it."""
        return UserSessions(self.database)

    @property
    def issued(self) -> IssuedSessions:
        """Who is signed in to it by the word of an issuer."""
        return IssuedSessions(self.database)

    @property
    def tokens(self) -> ApiTokens:
        """What programs sign in to it with."""
        return ApiTokens(self.database)

    @property
    def requests(self) -> IdempotentRequests:
        """What programs have asked of it."""
        return IdempotentRequests(self.database)

    def doing(self, claim: RequestClaim) -> Self:
        """This desk, while it does a request: what it does is noted as that one's."""
        return replace(self, database=self.database.doing(claim))
