"""The findings of a certificate, place by place: what was found and erased, what remains, for how long and why
(pure).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.deadletters.erasure.person_data import PersonData
from bridge.deadletters.erasure.person_records import DeletableRange, SearchedTopic
from bridge.deadletters.model.erasure_certificate import MOST_NAMED, ErasureFinding
from bridge.deadletters.model.erasure_subject import SHORTEST_QUOTE, ErasureSubject
from bridge.formats.delivery import Delivery
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count, format_time
from bridge.kafka.managed_topic import TopicKind
from bridge.kafka.record_deletion import RecordRetention
from bridge.settings import Settings

#: The places that no command can search, and what remains there.
ELSEWHERE: Final[Mapping[str, str]] = {
    "logs, traces and metrics": "log lines, spans and error reports (Sentry) may quote error texts: as long as the "
    "systems that collect them keep them",
    "your own systems": "what handlers wrote, what message.publish sent, and what the producer keeps: erase it there",
    "backups": "copies of the database, of Redis's files and of Kafka's: as long as you keep them; erase again after a "
    "restore",
}


@dataclass(slots=True)
class ErasureOutcome:
    """The results of an erasure.

    Attributes:
        ranges: by partition, what can be deleted of it.
        refused: by partition, why Kafka did not delete it.
        messages: messages of the queue that were changed.
        taken: deliveries that a worker has afterwards.
        queued: deliveries that are in the queue afterwards: of other groups, or queued after the search.
        archived: letters that are gone from archive files.
        database_remains: what remains in the database's files.
        redis_remains: why Redis did not rewrite its files.
    """

    ranges: Mapping[Place, DeletableRange] = field(default_factory=dict)
    refused: Mapping[Place, str] = field(default_factory=dict)
    messages: int = 0
    letters: int = 0
    notes: int = 0
    texts: int = 0
    archived: int = 0
    taken: Sequence[Delivery] = ()
    queued: Sequence[Delivery] = ()
    database_remains: Sequence[str] = ()
    redis_remains: str = ""


def build_certificate(
    found: PersonData, outcome: ErasureOutcome, subject: ErasureSubject, settings: Settings, *, is_plan: bool
) -> list[ErasureFinding]:
    """Return the findings of all places, in their order.

    Parameters:
        is_plan: whether nothing was erased: what remains is what an erasure would leave.
    """
    return [
        *_report_database(found, outcome, subject),
        *_report_archives(found, outcome, settings),
        *_report_queue(found, outcome, is_plan=is_plan),
        *_report_ledger(found, settings, is_plan=is_plan),
        *_report_groups(found, settings),
        *(_report_topic(searched, outcome, is_plan=is_plan) for searched in found.topics if _is_searched(searched)),
        *(ErasureFinding("elsewhere", name, None, remains=remains) for name, remains in ELSEWHERE.items()),
    ]


def _is_searched(searched: SearchedTopic) -> bool:
    return searched.ours.kind is not TopicKind.CONTROL


def _report_database(found: PersonData, outcome: ErasureOutcome, subject: ErasureSubject) -> Iterator[ErasureFinding]:
    records = [letter.delivery.identity for letter in found.letters]
    files = "; ".join(outcome.database_remains)
    yield ErasureFinding(
        "database", "dead letters in the database", len(found.letters), outcome.letters, "letter", files, False, records
    )
    yield ErasureFinding("notes", "notes on these letters", found.notes, outcome.notes, "note")
    short = subject.short_texts
    unsearched = (
        f"keys and fields of less than {SHORTEST_QUOTE} characters ({short}) are not searched in texts, where too many "
        "others are the same"
        if short
        else ""
    )
    texts = "error texts, reasons, notes and events that quote the person"
    yield ErasureFinding("texts", texts, found.texts, outcome.texts, "text", unsearched)
    others = ", ".join(map(str, found.quoting[:MOST_NAMED]))
    yield ErasureFinding(
        "other_letters",
        "dead letters of others whose record quotes the person",
        len(found.quoting),
        0,
        "letter",
        f"records of others, which stay: letters {others}" if found.quoting else "",
    )
    if found.exports:
        remains = "files of bridge deadletters export: whoever exported has them (see the audit log, entries export)"
        yield ErasureFinding("exports", f"{format_count(found.exports, 'export')} of letters", None, remains=remains)


def _report_archives(found: PersonData, outcome: ErasureOutcome, settings: Settings) -> Iterator[ErasureFinding]:
    if (archives := found.archives) is None:
        return
    folder = settings.file.kafka_deadletters_archive
    remains = []
    if archives.unread:
        remains.append(f"unreadable files: {', '.join(archives.unread)}")
    if archives.quoting:
        remains.append(f"{format_count(archives.quoting, 'letter')} of others quote the person")
    if not archives.files:
        remains.append("the folder has no archive file on this machine: run the command where the recorder archives")
    name = f"archive files in {folder}"
    yield ErasureFinding("archive", name, archives.letters, outcome.archived, "letter", "; ".join(remains))


def _report_queue(found: PersonData, outcome: ErasureOutcome, *, is_plan: bool) -> Iterator[ErasureFinding]:
    if found.queued is None:
        remains = (
            "this broker cannot list its messages: those of discarded deliveries are dropped when a worker takes them"
        )
        yield ErasureFinding("queue", "the Celery queue", None, remains=remains)
        return
    before = {delivery.identity for delivery in (*found.queued, *found.taken)}
    taken, queued = (sorted({each.identity for each in some}) for some in (outcome.taken, outcome.queued))
    left = [*taken, *queued]
    remains = "; ".join(
        f"{words[0]} {', '.join(some[:MOST_NAMED])}{words[1]}"
        for some, words in (
            (taken, ("a worker has", ": until it has ended")),
            (queued, ("the queue has", ", queued after the search or of another group: its handler runs")),
        )
        if some
    )
    erased = 0 if is_plan else len(before - set(left))
    yield ErasureFinding(
        "queue", "the Celery queue (Redis)", len(before), erased, "delivery", remains, bool(left), sorted(before)
    )
    files = outcome.redis_remains
    yield ErasureFinding(
        "redis_files",
        "Redis's append-only file and snapshot",
        None,
        remains=f"{files}: until its next rewrite (BGREWRITEAOF, BGSAVE)"
        if files
        else f"they {'are' if is_plan else 'were'} written anew; replicas keep their own files until they do that too",
        is_due=bool(files),
    )


def _report_groups(found: PersonData, settings: Settings) -> Iterator[ErasureFinding]:
    for group in sorted(found.groups - {settings.group}):
        remains = f"its queue and retry topics were not searched: run the command with BRIDGE_GROUP={group}, too"
        yield ErasureFinding("group", f"consumer group {group}", None, remains=remains)


def _report_ledger(found: PersonData, settings: Settings, *, is_plan: bool) -> Iterator[ErasureFinding]:
    erased = 0 if is_plan else found.errors
    apart = "the append-only file of this Redis, which is not the broker's, until its next rewrite (BGREWRITEAOF)"
    remains = apart if found.errors and not settings.one_redis else ""
    name = "last errors of handlers in the ledger (Redis)"
    yield ErasureFinding("errors", name, found.errors, erased, "text", remains)
    remains = (
        "change them (bridge resume, bridge policy); the control topic keeps earlier ones until it is compacted"
        if found.reasons
        else ""
    )
    yield ErasureFinding("reasons", "reasons of halts and changed policies", found.reasons, 0, "reason", remains)


def _report_topic(searched: SearchedTopic, outcome: ErasureOutcome, *, is_plan: bool) -> ErasureFinding:
    name, kind = searched.ours.name, searched.ours.kind
    records = [f"{topic}-{number}-{each.offset}" for (topic, number), some in searched.found.items() for each in some]
    remains: list[str] = []
    erased = 0
    if kind is TopicKind.SOURCE:
        if searched.count:
            remains.append(
                f"it is not the bridge's topic: Kafka keeps its records {_describe_end(searched)}. Delete them "
                "yourself (a tombstone on a compacted topic, kafka-delete-records)"
            )
    else:
        for place in searched.found:
            erased += _count_erased(searched, place, outcome)
            remains += _describe_left(searched, place, outcome)
        if erased:
            remains.append("what is deleted cannot be read, and its bytes stay in the broker's files")
        if searched.count:
            remains.append(f"Kafka keeps all this {_describe_end(searched)}")
    if searched.quoting:
        remains.append(f"{format_count(searched.quoting, 'record')} of others quote the person, and stay")
    left = searched.count - erased
    is_due = kind is not TopicKind.SOURCE and left > 0
    title = f"topic {name}" if kind is TopicKind.SOURCE else f"topic {name} ({kind})"
    return ErasureFinding(
        "topic", title, searched.count, 0 if is_plan else erased, "record", "; ".join(remains), is_due, records
    )


def _count_erased(searched: SearchedTopic, place: Place, outcome: ErasureOutcome) -> int:
    deletable = outcome.ranges.get(place)
    if deletable is None or place in outcome.refused:
        return 0
    return len(searched.found[place]) - deletable.left


def _describe_left(searched: SearchedTopic, place: Place, outcome: ErasureOutcome) -> Iterator[str]:
    number = f"{place[0]}-{place[1]}"
    if place in outcome.refused:
        yield f"Kafka refused to delete records of {number}: {outcome.refused[place]}"
    elif (deletable := outcome.ranges.get(place)) is not None and deletable.left:
        count = format_count(deletable.left, "record")
        yield f"{count} of {number} cannot be deleted yet, as {deletable.why}: run the command again later"


def _describe_end(searched: SearchedTopic) -> str:
    """Return until when Kafka keeps the bytes of the person's records."""
    retention = searched.retention
    if retention is None:
        return "for a time that it does not tell (bridge topics)"
    newest = max((each.timestamp for some in searched.found.values() for each in some), default=0)
    if (end := retention.find_end(newest)) is not None:
        days = retention.retention_ms / 86_400_000
        return (
            f"until {format_time(end)} at the latest (retention.ms {days:.3g} days, segment.ms "
            f"{retention.segment_ms / 86_400_000:.3g} days)"
        )
    return _describe_unbounded(retention)


def _describe_unbounded(retention: RecordRetention) -> str:
    if "compact" in retention.policy:
        return "until the cleaner has met a later record of the key, or a tombstone: the topic is compacted"
    closed = f"{retention.segment_ms / 86_400_000:.3g} days"
    return (
        "without an end (retention.ms is -1), but for deleted records: the broker deletes a file once it is closed "
        f"(segment.ms {closed}) and all its records are deleted"
    )
