"""The dead-letter store as the command line and the console use it: one object for all queries and actions."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from celery import Celery

from bridge.deadletters.accounts.account_session import IssuedSessions, UserSessions
from bridge.deadletters.accounts.api_token import ApiTokens
from bridge.deadletters.accounts.audit_log import AuditLog, LetterNotes
from bridge.deadletters.accounts.idempotency_key import IdempotentRequests
from bridge.deadletters.accounts.saved_view import SavedViews
from bridge.deadletters.accounts.user_account import UserAdministration, Users
from bridge.deadletters.alarms.webhook_service import WebhookService
from bridge.deadletters.db.audit_rows import RequestClaim
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.plan_rows import OverPlans
from bridge.deadletters.db.row_scope import RowScope
from bridge.deadletters.editing.letter_edit import LetterEditor
from bridge.deadletters.editing.shadow_replay import ShadowReplay
from bridge.deadletters.erasure.person_data import PersonSearch
from bridge.deadletters.erasure.person_erasure import PersonErasure
from bridge.deadletters.inspection.failure_groups import FailureGroups
from bridge.deadletters.inspection.group_details import GroupCauses, GroupDetails, GroupVersions
from bridge.deadletters.inspection.letter_file import LetterTransfers
from bridge.deadletters.inspection.letter_lookup import AbsentNames, LetterLookup
from bridge.deadletters.inspection.letter_statistics import LetterTotals
from bridge.deadletters.inspection.policy_trial import PolicyTrials
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.masking.letter_traits import GroupTraits
from bridge.deadletters.masking.masked_edit import MaskedDifferences, MaskedEditor
from bridge.deadletters.masking.masked_lists import MaskedLists
from bridge.deadletters.model.erasure_subject import ErasureSubject
from bridge.deadletters.model.letter_scope import EVERYTHING, LetterScope
from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.deadletters.replay.copy_action import LetterCopies
from bridge.deadletters.replay.handled_sample import HandledRecords
from bridge.deadletters.replay.plan_progress import PlanProgressReader
from bridge.deadletters.replay.plan_service import PlanService
from bridge.deadletters.replay.redrive_plan import RedrivePlanner
from bridge.deadletters.replay.replay_outcomes import UnknownOutcomes
from bridge.errors import ErasureRefused
from bridge.handler_routes import Routes
from bridge.settings import Settings


def open_database(settings: Settings) -> Database:
    """Return the database, with the values of letters as their schemas tell.

    Raises:
        DeskUnavailable: the address is invalid.
    """
    payloads = PayloadCodec.from_options(settings.registry)
    return Database(settings.environment.DEADLETTERS_DATABASE_URL, payloads)


@dataclass(frozen=True)
class DeadLetterService:
    """The dead letters of one group, in one database.

    Attributes:
        app: the Celery app of the handlers, whose codecs and models read the values.
        scope: the letters that the account sees which uses it.
    """

    app: Celery
    settings: Settings
    routes: Routes
    database: Database
    scope: LetterScope = EVERYTHING
    _over: OverPlans = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    @contextmanager
    def opened(cls, app: Celery, settings: Settings, routes: Routes, *, makes: bool = True) -> Iterator[Self]:
        """Open the dead-letter store, with its tables as this version needs them.

        Parameters:
            makes: whether a missing SQLite file is created: not by commands that only read.

        Raises:
            NoDatabase: the file is missing and was not created.
            DeskUnavailable: the database could not be opened, or its tables not be created.
        """
        database = open_database(settings)
        try:
            if not makes:
                database.need()
            database.migrate()
            yield cls(app, settings, routes, database)
        finally:
            database.close()

    @staticmethod
    def migrated(settings: Settings, to: str) -> tuple[str, str | None, str]:
        """Migrate the tables to a step, which their owner in the database may do.

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
        """Return the lookup of dead letters."""
        return LetterLookup(self.database)

    @property
    def absent(self) -> AbsentNames:
        """Return the check for names that do not exist."""
        return AbsentNames(self.routes, self.database)

    @property
    def groups(self) -> FailureGroups:
        """Return the failure groups."""
        return FailureGroups(self.database)

    @property
    def causes(self) -> GroupCauses:
        """Return the causes within failure groups."""
        return GroupCauses(self.database)

    @property
    def standings(self) -> GroupDetails:
        """Return the details of groups, with a suggested next step for each."""
        return GroupDetails(self.settings, self.routes, self.database)

    @property
    def versions(self) -> GroupVersions:
        """Return the versions in which groups failed, and which run."""
        return GroupVersions(self.settings, self.routes, self.database)

    @property
    def totals(self) -> LetterTotals:
        """Return the figures of all letters."""
        return LetterTotals(self.database)

    @property
    def plans(self) -> PlanService:
        """Return the plans: bulk replays, discards and archivals."""
        return PlanService(self.app, self.settings, self.routes, self.database, self._over)

    @property
    def progress(self) -> PlanProgressReader:
        """Return the progress of single plans."""
        return PlanProgressReader(self.database)

    @property
    def notes(self) -> LetterNotes:
        """Return the notes on letters and groups."""
        return LetterNotes(self.database)

    @property
    def unknown_ends(self) -> UnknownOutcomes:
        """Return the letters whose replay has an unknown outcome."""
        return UnknownOutcomes(self.database)

    @property
    def trail(self) -> AuditLog:
        """Return the audit log."""
        return AuditLog(self.database)

    @property
    def transfers(self) -> LetterTransfers:
        """Return the export and import of letters."""
        return LetterTransfers(self.database)

    @property
    def simulations(self) -> PolicyTrials:
        """Return the trials of policies."""
        return PolicyTrials(self.app, self.settings, self.routes, self.database)

    @property
    def mending(self) -> LetterEditor:
        """Return the editor of values, with patches and checks."""
        return LetterEditor(self.app, self.database)

    @property
    def shadows(self) -> ShadowReplay:
        """Return the shadow replays of letters."""
        return ShadowReplay(self.app, self.settings, self.database)

    def editing(self, masks: LetterMasks) -> MaskedEditor:
        """Return the editor for a role that does not see all fields."""
        return MaskedEditor(self.letters, self.mending, masks)

    def differing(self, masks: LetterMasks) -> MaskedDifferences:
        """Return the differences that plans make, for such a role."""
        return MaskedDifferences(self.database, masks)

    def lists(self, masks: LetterMasks) -> MaskedLists:
        """Return the lists for such a role."""
        return MaskedLists(self.database, masks)

    def common(self, masks: LetterMasks) -> GroupTraits:
        """Return the common traits of a group's letters, for such a role."""
        return GroupTraits(self.database, masks)

    @property
    def handled(self) -> HandledRecords:
        """Return the samples of what was handled beside letters."""
        return HandledRecords(self.settings, self.database)

    @property
    def copies(self) -> LetterCopies:
        """Return the copies of letters."""
        return LetterCopies(self.settings, self.routes, self.database)

    @property
    def redrive(self) -> RedrivePlanner:
        """Return the redrives of source topics."""
        return RedrivePlanner(self.settings, self.routes, self.database)

    def erasure(self, subject: ErasureSubject) -> PersonErasure:
        """Return the erasure of a person, for accounts without a scope: it reaches all letters.

        Raises:
            ErasureRefused: the account has a scope.
        """
        if self.scope:
            raise ErasureRefused("An account with a scope erases nobody: the person's letters may be of others.")
        search = PersonSearch(self.app, self.settings, self.routes, self.database, subject)
        return PersonErasure(search, self.plans)

    @property
    def users(self) -> Users:
        """Return the users of the console."""
        return Users(self.database)

    @property
    def admins(self) -> UserAdministration:
        """Return the administration of users."""
        return UserAdministration(self.database)

    @property
    def webhooks(self) -> WebhookService:
        """Return the webhooks."""
        return WebhookService(self.settings, self.database)

    @property
    def sessions(self) -> UserSessions:
        """Return the sessions of users."""
        return UserSessions(self.database)

    @property
    def issued(self) -> IssuedSessions:
        """Return the sessions of an OpenID Connect issuer."""
        return IssuedSessions(self.database)

    @property
    def tokens(self) -> ApiTokens:
        """Return the API tokens."""
        return ApiTokens(self.database)

    @property
    def views(self) -> SavedViews:
        """Return the saved views of the list of letters."""
        return SavedViews(self.database)

    @property
    def requests(self) -> IdempotentRequests:
        """Return the idempotent requests of programs."""
        return IdempotentRequests(self.database)

    def doing(self, claim: RequestClaim) -> Self:
        """Return the store for a request: its audit entries complete the request."""
        return replace(self, database=self.database.doing(claim))

    def for_scope(self, scope: LetterScope, person: str) -> Self:
        """Return the store as an account with a scope sees it; without a scope, the whole store.

        Every query and action reads and changes covered letters alone (db/row_scope.py), and knows covered topics
        alone, with the handlers of these.

        Parameters:
            person: the account's name.
        """
        if not scope:
            return self
        group = self.settings.group
        routes = self.routes.only(topic for topic in self.routes.topics if scope.covers(topic, group))
        return replace(self, database=self.database.for_scope(RowScope(scope, person)), routes=routes, scope=scope)
