"""The erasure of a person: what is open is discarded first, then each place is erased, and the certificate written.

A run that was interrupted, or found something in flight, is completed by the next one.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from bridge.deadletters.db import audit_rows, erasure_rows, sql
from bridge.deadletters.db.database import Connection, Database, remember_fact
from bridge.deadletters.erasure.erasure_report import ErasureOutcome, build_certificate
from bridge.deadletters.erasure.person_data import PersonData, PersonSearch, read_origin
from bridge.deadletters.erasure.person_records import (
    DeletableRange,
    SearchedTopic,
    find_deletable_range,
    find_first_dead,
    find_first_foreign,
)
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.erasure_certificate import ErasureCertificate
from bridge.deadletters.model.erasure_subject import ErasureSubject
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import format_moment
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.plan_service import PlanService
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.delivery_removal import DeliveryRemoval
from bridge.errors import ErasureRefused
from bridge.formats.delivery import Delivery
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count
from bridge.kafka.clients import admin_client
from bridge.kafka.managed_topic import TopicKind
from bridge.kafka.record_deletion import delete_first_records
from bridge.ledger import RETRY_RECORD, Account, Fate, Mark
from bridge.operator_actions.queue_discard import find_order_risk

#: The fact that holds the salt of digests.
_SALT: Final = "erasure_salt"
#: Most open deliveries that an error names.
_NAMED: Final = 5


@dataclass(frozen=True)
class PersonErasure:
    """The erasure of a person from everything that this project stores of one group.

    Every method raises DeskUnavailable, KafkaUnavailable, LedgerUnavailable or HandoffFailed if one does not answer.
    """

    search: PersonSearch
    plans: PlanService

    @property
    def _database(self) -> Database:
        return self.search.database

    @property
    def _subject(self) -> ErasureSubject:
        return self.search.subject

    def find(self, heard: Callable[[str, int], None]) -> PersonData:
        """Return what there is of the person; nothing is changed.

        Parameters:
            heard: as for `PersonSearch.find`.
        """
        return self.search.find(heard)

    def certify(self, found: PersonData, by: str, why: str) -> ErasureCertificate:
        """Return the certificate of what an erasure would do."""
        why = self._subject.redact(why)
        return self._write(found, ErasureOutcome(ranges=self._find_ranges(found)), by, why, is_plan=True)

    def erase(self, found: PersonData, by: str, why: str, *, discard_open: bool) -> ErasureCertificate:
        """Erase what was found, and return the certificate.

        Parameters:
            discard_open: whether deliveries that have not ended are discarded; else they refuse the erasure.

        Raises:
            ErasureRefused: nothing was erased: something has not ended.
        """
        why = self._subject.redact(why)
        self._check_ends(found, discard_open)
        self._discard(found, by)
        outcome = ErasureOutcome(ranges=self._find_ranges(found))
        with closing(CeleryBroker(self.search.app)) as broker:
            removal = self.search.removal(broker, found.sources)
            self._remove_messages(found, broker, removal, outcome)
            self.search.redact_errors(self._subject.redact, found)
            outcome.refused = self._delete_records(outcome.ranges)
            self._erase_rows(found, outcome, by, why)
            if (archives := self.search.archives(found.sources)) is not None:
                outcome.archived = archives.erase()
            outcome.database_remains = self._database.rewrite(erasure_rows.CHANGED_TABLES)
            outcome.redis_remains = removal.rewrite_files()
        return self._write(found, outcome, by, why, is_plan=False)

    def _check_ends(self, found: PersonData, discard_open: bool) -> None:
        if found.halts:
            raise ErasureRefused(
                f"A key of the person is halted ({'; '.join(found.halts)}), and the decision has the key: resume it "
                "first (bridge resume TOPIC --handler … --key …). Nothing was erased."
            )
        flying = [letter for letter in found.letters if letter.in_flight or letter.status is LetterStatus.REPLAYING]
        if flying:
            names = ", ".join(str(letter.id) for letter in flying[:_NAMED])
            raise ErasureRefused(
                f"{format_count(len(flying), 'dead letter')} of the person {'is' if len(flying) == 1 else 'are'} being "
                f"replayed ({names}): wait for the end. Nothing was erased."
            )
        if found.unended and not discard_open:
            names = ", ".join(found.unended[:_NAMED]) + (" …" if len(found.unended) > _NAMED else "")
            raise ErasureRefused(
                f"{format_count(len(found.unended), 'delivery', 'have')} not ended: {names}. Wait for their end, "
                "or add --open discard: then no handler runs for the person any more. Nothing was erased."
            )
        for topic in sorted({origin.topic for origin, fate in found.fates.items() if fate is Fate.HANDED}):
            if risk := find_order_risk(self.search.settings, topic):
                raise ErasureRefused(f"{risk} Halt it first (bridge halt {topic} --why …). Nothing was erased.")

    def _discard(self, found: PersonData, by: str) -> None:
        """Discard what has not ended: dead letters by a plan, which a second person may have to approve, all else in
        the ledger.
        """
        ids = tuple(letter.id for letter in found.letters if letter.status is LetterStatus.OPEN)
        if ids:
            reason = f"the person {self._name_subject()} is erased"
            plan = self.plans.make(PlanKind.DISCARD, LetterFilter(ids=ids), PlanOptions(), by, reason)
            plan = self.plans.apply(plan.id, by)
            if plan.state is PlanState.AWAITING:
                raise ErasureRefused(
                    f"Plan {plan.id}, which discards the person's open letters, awaits a second person: approve it "
                    f"(bridge deadletters plans apply {plan.id}), and run this command again. Nothing was erased."
                )
            if plan.state is not PlanState.DONE:
                raise ErasureRefused(
                    f"Plan {plan.id}, which discards the person's open letters, is {plan.state}: see bridge "
                    f"deadletters plans show {plan.id}. Nothing was erased."
                )
        if found.fates:
            with LedgerFates.opened(self.search.settings) as fates:
                fates.discard([*found.fates])

    def _remove_messages(
        self, found: PersonData, broker: CeleryBroker, removal: DeliveryRemoval, outcome: ErasureOutcome
    ) -> None:
        """Remove the deliveries that have ended. Those that were queued after the search, or that are of other
        groups, stay: the person who confirmed has not seen them.
        """
        queues = self.search.routes.queues
        ended = self._find_ended(found, removal)
        # First, so that a crash between the two leaves no record that nobody settles.
        self._settle_retry_records(ended)
        names = {(read_origin(delivery), delivery.again) for delivery in ended}
        chosen = DeliveryRemoval(broker, lambda delivery: (read_origin(delivery), delivery.again) in names)
        outcome.messages = chosen.remove(queues)
        if (left := removal.find(queues)) is not None:
            outcome.taken, outcome.queued = left["taken"], left["queued"]

    def _find_ended(self, found: PersonData, removal: DeliveryRemoval) -> list[Delivery]:
        """Return the queued deliveries of this group that no worker would run: they are done or discarded."""
        listed = removal.find(self.search.routes.queues)
        group = self.search.settings.group
        queued = [each for each in (listed or {}).get("queued", ()) if read_origin(each).group == group]
        known = {(read_origin(each), each.again) for each in found.queued or ()}
        with LedgerFates.opened(self.search.settings) as fates:
            ends = fates.read_fates([read_origin(each) for each in queued])
        return [
            each
            for each, fate in zip(queued, ends, strict=True)
            # A person may have asked for another run of what is done.
            if fate in (Fate.DONE, Fate.DISCARDED) and (not each.again or (read_origin(each), each.again) in known)
        ]

    def _settle_retry_records(self, removed: Sequence[Delivery]) -> None:
        """Settle the retry and replay records whose message is removed: no worker does that any more."""
        spots = {delivery.via for delivery in removed if delivery.via is not None}
        owners = ((Account(RETRY_RECORD, via.topic, via.topic_id, via.partition), via.offset) for via in spots)
        marks = [Mark(account, [offset], Fate.DONE) for account, offset in owners]
        with LedgerFates.opened(self.search.settings) as fates:
            if marks and (ledger := fates.ledger(self.search.settings.group)) is not None:
                ledger.write(marks)

    def _find_ranges(self, found: PersonData) -> dict[Place, DeletableRange]:
        """Return what can be deleted of each partition of the bridge's own topics."""
        ranges = {}
        with LedgerFates.opened(self.search.settings) as fates:
            for searched in found.topics:
                for place, records in searched.found.items():
                    if records and searched.ours.kind is not TopicKind.SOURCE:
                        limits = [self._find_limit(found, searched, place), *find_first_foreign(searched, place)]
                        if searched.ours.kind is TopicKind.DEAD_LETTERS:
                            limits += find_first_dead(searched, place, fates)
                        ranges[place] = find_deletable_range(records, *min(limits))
        return ranges

    def _find_limit(self, found: PersonData, searched: SearchedTopic, place: Place) -> tuple[int, str]:
        if searched.ours.kind is not TopicKind.DEAD_LETTERS:
            return found.limits.get(place, (0, "there is no ledger (LEDGER_URL) that tells what is settled"))
        with self._database.reading() as connection:
            first = erasure_rows.find_first_needed(connection, *place, {letter.id for letter in found.letters})
        if first is None:
            return 0, f"no recorder has read {place[0]}-{place[1]}"
        return first, f"{place[0]}-{place[1]}-{first} is not recorded, or of a dead letter that has not ended"

    def _delete_records(self, ranges: Mapping[Place, DeletableRange]) -> dict[Place, str]:
        below = {place: each.below for place, each in ranges.items() if each.below is not None}
        return delete_first_records(admin_client(self.search.settings.kafka), below)

    def _erase_rows(self, found: PersonData, outcome: ErasureOutcome, by: str, why: str) -> None:
        ids = {letter.id for letter in found.letters}
        with self._database.writing() as connection:
            outcome.notes = erasure_rows.erase_notes(connection, ids)
            outcome.letters = erasure_rows.delete_letters(connection, ids)
            outcome.texts = erasure_rows.redact_texts(connection, self._subject)
            subject = self._read_subject(connection)
            said = (
                f"person {subject}: {format_count(outcome.letters, 'dead letter')}, "
                f"{format_count(outcome.notes, 'note')}, {format_count(outcome.texts, 'text')}, "
                f"{format_count(outcome.messages, 'queue message')}: {why}"
            )
            audit_rows.write_entry(connection, sql.read_clock(connection), by, "erase", said)

    def _name_subject(self) -> str:
        with self._database.writing() as connection:
            return self._read_subject(connection)

    def _read_subject(self, connection: Connection) -> str:
        return self._subject.digest(remember_fact(connection, _SALT, secrets.token_hex(16)))

    def _write(
        self, found: PersonData, outcome: ErasureOutcome, by: str, why: str, *, is_plan: bool
    ) -> ErasureCertificate:
        subject = self._name_subject()
        with self._database.reading() as connection:
            earlier = erasure_rows.read_erasures(connection, subject)
        said = [f"{format_moment(at)} by {who}: {words}" for at, who, words in earlier]
        findings = build_certificate(found, outcome, self._subject, self.search.settings, is_plan=is_plan)
        unended = found.unended if is_plan else ()
        return ErasureCertificate(subject, time.time(), by, why, is_plan, findings, unended, said)
