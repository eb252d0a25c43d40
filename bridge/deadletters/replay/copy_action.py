"""Copies of letters in another topic or another Kafka: the target, the plan, and the action that marks each record as
a copy. A copy changes no fate; a crash may copy a record twice.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from bridge.deadletters.db import audit_rows, letter_payload, plan_counts, plan_item_rows, plan_rows, sql
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.letter_payload import LetterContent, LetterStanding
from bridge.deadletters.db.plan_item_rows import PlanItem
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanCounts, PlanItemState, PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.replay.kafka_lookup import ValueAway, fetch_payloads
from bridge.deadletters.replay.plan_action import (
    ActionEnd,
    ActionResult,
    ClaimedDelivery,
    Live,
    TakenDeliveries,
    slice_by_size,
)
from bridge.deadletters.replay.plan_progress import require_plan
from bridge.errors import CopyRefused, NeverPublished, SettingsError
from bridge.formats.delivery import Header
from bridge.formats.record_headers import RecordHeaders
from bridge.handler_routes import Routes
from bridge.jobs.group_facts import format_letter_count as letters_said
from bridge.kafka.acknowledged_producer import AcknowledgedProducer, OutgoingRecord, RecordPosition
from bridge.kafka.clients import OAUTH_CB, admin_client, property_fault
from bridge.kafka.topic_admin import Cluster, read_cluster
from bridge.kafka.topic_names import DerivedTopics, TopicNames, is_internal, role_for_any_group
from bridge.settings import Settings
from bridge.settings.oauth_token import load_token_source
from bridge.settings.settings_validation import find_login_faults

#: `TARGET_KAFKA_SASL_PASSWORD` is librdkafka's `sasl.password`, for the other Kafka.
PREFIX: Final = "TARGET_KAFKA_"
_ADDRESS: Final = re.compile(r"(?:[A-Za-z_]+://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


def _refuse_password(addresses: str) -> None:
    if "@" in addresses:
        raise CopyRefused(
            "The addresses of the other Kafka take no user and password: write host:9092 with commas between several. "
            f"User and password go into {PREFIX}SASL_USERNAME and {PREFIX}SASL_PASSWORD, or into the properties file."
        )


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """The Kafka cluster of copies.

    Attributes:
        addresses: `bootstrap.servers`; empty: see the file.
        file: the path of a file of librdkafka's properties, a `name=value` a line; empty: none.
    """

    addresses: str = ""
    file: str = ""

    @classmethod
    def read(cls, said: str) -> Self:
        """Return the target of a text: addresses (`host:9092,host:9092`), or the path of a file of properties.

        Raises:
            CopyRefused: the text is neither.
        """
        if all(_ADDRESS.fullmatch(part.strip()) for part in said.split(",")):
            return cls(addresses=said)
        if Path(said).is_file():
            return cls(file=str(Path(said).resolve()))
        # The message does not repeat the text: it may have a password.
        raise CopyRefused(
            "--to-kafka is neither addresses (host:9092,host:9092) nor an existing file of Kafka properties. "
            f" User and password go into that file, or into {PREFIX}SASL_USERNAME and {PREFIX}SASL_PASSWORD."
        )

    @classmethod
    def configured(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the target from the environment of this process: a request over the network names none.

        Raises:
            CopyRefused: none is configured.
        """
        if addresses := environ.get(f"{PREFIX}BOOTSTRAP_SERVERS"):
            _refuse_password(addresses)
            return cls(addresses=addresses)
        raise CopyRefused(
            f"No other Kafka is configured here: whoever runs the console sets {PREFIX}BOOTSTRAP_SERVERS, and how to "
            "get in, for it and for bridge deadletters record. A request names no address."
        )

    @property
    def name(self) -> str:
        """Return the addresses or the file, for messages."""
        return self.addresses or self.file

    def properties(self, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
        """Return librdkafka's properties: the file's, overridden by the environment's, then by the addresses.

        Raises:
            CopyRefused: the file is missing, or a property is invalid; the message names it without its value.
        """
        given = _read_environment(environ)
        function = given.pop("oauth.cb", "")
        found = {**self._of_file(), **given}
        if self.addresses:
            found["bootstrap.servers"] = self.addresses
        if "bootstrap.servers" not in found:
            raise CopyRefused(f"{self.file} names no Kafka: it has no bootstrap.servers.")
        _refuse_password(found["bootstrap.servers"])
        for name, value in found.items():
            if property_fault(name, value) is not None:
                raise CopyRefused(f"Kafka's client does not take {name!r} as it is set for {self.name}.")
        return {**found, **_find_token_source(found, function)}

    def _of_file(self) -> dict[str, str]:
        if not self.file:
            return {}
        try:
            return dict(_read_lines(Path(self.file).read_text().splitlines(), self.file))
        except (OSError, UnicodeDecodeError) as error:
            raise CopyRefused(f"{self.file} cannot be read here: {type(error).__name__}.") from None


def _read_lines(lines: Iterable[str], file: str) -> Iterable[tuple[str, str]]:
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise CopyRefused(f"Line {number} of {file} is no name=value.")
        yield name.strip(), value.strip()


def _find_token_source(properties: Mapping[str, str], function: str) -> dict[str, Any]:
    """Return the source of tokens for the other Kafka, if a function gives them."""
    try:
        if faults := find_login_faults(properties, function):
            raise SettingsError([fault.replace("KAFKA_", PREFIX) for fault in faults])
        return {OAUTH_CB: load_token_source(f"{PREFIX}OAUTH_CB", function)} if function else {}
    except SettingsError as error:
        raise CopyRefused(" ".join(error.faults)) from None


def _read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and value
    }


class CopyAction:
    """The action of a copy."""

    def __init__(self, settings: Settings, database: Database, plan: BulkPlan) -> None:
        self._settings, self._database, self._plan = settings, database, plan
        self._topic = plan.options.target["topic"]
        # Checked again, whoever made the plan, with any version.
        check_copy_topic(settings, self._topic)
        self._producer = AcknowledgedProducer(build_target_settings(settings, find_copy_target(plan)))

    def take(self, connection: Connection, waiting: Sequence[PlanItem], at: int) -> TakenDeliveries:
        """Claim all letters that exist; a copy does not change their status."""
        found = letter_payload.read_letter_standings(connection, [item.letter_id or 0 for item in waiting])
        claimed = [ClaimedDelivery(item, None) for item in waiting if item.letter_id in found]
        gone = {item.position: "the letter is gone" for item in waiting if item.letter_id not in found}
        return TakenDeliveries(claimed, gone)

    def look(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        """Return nothing done: topics of others are not searched."""
        return ActionResult()

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Publish all letters, and wait for all acknowledgements."""
        ids = [each.item.letter_id or 0 for each in claimed]
        with self._database.reading() as connection:
            at = sql.read_clock(connection)
            letters = letter_payload.read_letter_standings(connection, ids)
        ends: dict[int, ActionEnd] = {}
        whys: list[str] = []
        sizes = {id_: letter.value_size for id_, letter in letters.items()}
        for some in slice_by_size([each.item for each in claimed], lambda item: sizes.get(item.letter_id or 0, 0)):
            ends |= self._copied(some, letters, at, live, whys)
        return ActionResult(ends=ends, why=whys[0] if whys else "")

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """Do nothing: a copy changes no letter."""

    def _copied(
        self, some: Sequence[PlanItem], letters: dict[int, LetterStanding], at: int, live: Live, whys: list[str]
    ) -> dict[int, ActionEnd]:
        ids = [item.letter_id or 0 for item in some]
        with self._database.reading() as connection:
            found = {each.id: each for each in letter_payload.read_letter_contents(connection, self._plan.id, ids)}
        away = [ValueAway(letters[each.id], each) for each in found.values() if each.away]
        values = fetch_payloads(self._settings, away, live)
        ends: dict[int, ActionEnd] = {}
        made: dict[int, OutgoingRecord] = {}
        for item in some:
            content = found.get(item.letter_id or 0)
            if content is None:
                ends[item.position] = ActionEnd(PlanItemState.SKIPPED, "the letter is gone")
            elif content.away and content.id not in values:
                ends[item.position] = ActionEnd(PlanItemState.REFUSED, "its value is no longer in Kafka")
            else:
                value = values[content.id] if content.away else content.value
                made[item.position] = self._letter(letters[content.id], content, value, at)
        live()
        for position, answer in zip(made, self._producer.place_all([*made.values()]), strict=True):
            if isinstance(answer, RecordPosition):
                ends[position] = ActionEnd(
                    PlanItemState.DONE, f"it lies at {answer.topic}-{answer.partition}-{answer.offset}"
                )
            elif isinstance(answer, NeverPublished):
                ends[position] = ActionEnd(PlanItemState.REFUSED, str(answer))
            else:
                whys.append(str(answer))
        return ends

    def _letter(self, letter: LetterStanding, content: LetterContent, value: bytes | None, at: int) -> OutgoingRecord:
        whose = letter.delivery.identity
        headers = mark_copy(content.headers, whose, at, self._plan.by)
        return OutgoingRecord(self._topic, -1, content.key, value, headers, whose, "a copy of its dead letter")


def mark_copy(theirs: Sequence[Header], whose: str, at: int, by: str) -> RecordHeaders:
    """Return the producer's headers, followed by those that mark the copy: of what, when (ms) and by whom (pure)."""
    ours = {"copy_of": whose, "copy_at": str(at), "copy_by": by}
    return [*theirs, *((name, said.encode("ascii", "backslashreplace")) for name, said in ours.items())]


def find_copy_target(plan: BulkPlan) -> CopyTarget | None:
    """Return the target cluster of a plan's copies; `None` for the letters' own."""
    said = plan.options.target
    return CopyTarget(said.get("addresses", ""), said.get("file", "")) if len(said) > 1 else None


def check_copy_topic(settings: Settings, topic: str) -> None:
    """Refuse a topic whose records have an effect: on Kafka itself, or on a group of this project.

    Raises:
        CopyRefused: it is such a topic by its name, on any cluster.
    """
    if is_internal(topic):
        raise CopyRefused(f"{topic!r} is an internal topic of Kafka: nothing is copied there. Name another topic.")
    if role := role_for_any_group(topic, TopicNames.from_settings(settings)):
        raise CopyRefused(
            f"{topic!r} has the name of a {role} topic: what is written there acts on the group that reads it, so "
            "nothing is copied there. Name another topic."
        )


def build_target_settings(settings: Settings, target: CopyTarget | None) -> Settings:
    """Return the settings for writing copies.

    Raises:
        CopyRefused: this process has no credentials for the cluster.
    """
    return settings if target is None else replace(settings, kafka=target.properties())


def read_target_topics(settings: Settings, target: CopyTarget | None, topic: str) -> Cluster:
    """Return the topics of the target cluster, this one among them.

    Raises:
        CopyRefused: the topic does not exist, or this process has no credentials for the cluster.
    """
    found = read_cluster(admin_client(build_target_settings(settings, target).kafka))
    if topic not in found.topics:
        raise CopyRefused(
            f"There is no topic {topic!r} in {'this Kafka' if target is None else target.name}: make it first."
        )
    return found


@dataclass(frozen=True)
class LetterCopies:
    """The copies of letters. Every method raises DeskUnavailable if the database does not answer."""

    settings: Settings
    routes: Routes
    database: Database

    def plan(
        self,
        filter_: LetterFilter,
        topic: str,
        to: CopyTarget | None,
        options: PlanOptions,
        by: str,
        why: str = "",
        *,
        force: bool = False,
    ) -> BulkPlan:
        """Return a plan that copies the letters of a filter to a topic, whatever their status; nothing is sent yet.

        Parameters:
            to: another Kafka; `None`: the letters' own.
            force: whether the topic may be one that this group's bridges or workers read or write.

        Raises:
            CopyRefused: the topic does not exist or is this project's, or credentials are missing.
        """
        check_copy_topic(self.settings, topic)
        self._check(topic, to, force=force)
        where = {} if to is None else {"addresses": to.addresses, "file": to.file}
        whole = replace(options, canary=False, target={"topic": topic, **where})
        among = find_among(self.database, filter_)
        with self.database.writing() as connection:
            plan_id, at = plan_rows.add_plan(connection, PlanKind.COPY, by, why, filter_.to_data(), whole)
            count = plan_item_rows.freeze_letters(
                connection, plan_id, select_matching_letters(filter_, among), canary=False
            )
            there = topic if to is None else f"{topic} of {to.name}"
            words = f"plan {plan_id}: to copy {letters_said(count)} to {there}" + (f": {why}" if why else "")
            audit_rows.write_entry(connection, at, by, "copy", words, plan_id=plan_id)
            handlers = plan_counts.count_letters_by_handler(connection, plan_id)
            counts = PlanCounts(letters=sum(sum(reasons.values()) for reasons in handlers.values()), handlers=handlers)
            plan_rows.note_plan_counts(connection, plan_id, counts)
            return require_plan(connection, plan_id)

    def _check(self, topic: str, to: CopyTarget | None, *, force: bool) -> None:
        found = read_target_topics(self.settings, to, topic)
        here = to is None or found.id == read_cluster(admin_client(self.settings.kafka)).id
        if here and not force and (what := explain_own_topic(self.settings, self.routes, topic)):
            raise CopyRefused(
                f"{topic!r} is {what}: what is copied there is handled, or counted, like any other record of it. "
                "To copy into it all the same: --force."
            )


def explain_own_topic(settings: Settings, routes: Routes, topic: str) -> str:
    """Return the role of a topic in this group; empty if it has none (pure)."""
    names = TopicNames.from_settings(settings)
    if topic in routes.topics:
        return "a topic that handlers read"
    if topic == names.control:
        return "the control topic of the group"
    if (found := DerivedTopics(names, routes.topics).find_derived([topic]).get(topic)) is not None:
        return f"the {found.kind} topic of {found.source!r}"
    source = next((source for source in routes.topics if names.dead_letters(source) == topic), None)
    return "" if source is None else f"the dead-letter topic of {source!r}"
