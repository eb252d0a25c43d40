"""`bridge check`: the faults of settings, handlers, topics and connections, all at once, with what to do about each."""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from celery import Celery
from kombu import Queue

from bridge import settings
from bridge.dispatch.celery_broker import find_broker_fault, make_broker_connection
from bridge.errors import (
    KafkaUnavailable,
    LedgerCannotFsync,
    LedgerUnavailable,
    RegistryUnavailable,
    TokenUnavailable,
    UnfitRedis,
)
from bridge.formats.group_decision import find_changed_policies
from bridge.formats.schema_registry import SchemaRegistry
from bridge.formats.text_forms import format_count, inflect_verb
from bridge.formats.user_database import missing_django_tables
from bridge.handler_routes import Routes, changed_handlers
from bridge.inspection.redis_problems import find_redis_problems
from bridge.inspection.status_sources import gather_facts
from bridge.inspection.topic_problems import find_unmade_topics, find_unreadable_partitions, find_unsynced_replicas
from bridge.jobs.deployment_problems import (
    describe_foreign_member,
    find_divided_topics,
    find_foreign_topics,
    find_other_applications,
    find_unconsumed_queues,
    find_unknown_handlers,
    is_stopped,
    unknown_members,
)
from bridge.jobs.open_transactions import find_held_back_topics
from bridge.kafka.clients import (
    OAUTH_CB,
    AdminClient,
    KafkaException,
    admin_client,
    client_fault,
    consumer_client,
    explain_error,
    group_protocol,
)
from bridge.kafka.consumer_groups import describe_protocol, find_first_reads, read_members
from bridge.kafka.control_topic import read_published_decisions
from bridge.kafka.login_errors import explain_login
from bridge.kafka.managed_topic import ManagedTopic, TopicKind
from bridge.kafka.partition_offsets import ExtentReader
from bridge.kafka.topic_names import TopicNames, find_ambiguous_names, name_faults
from bridge.kafka.topic_survey import SurveyedTopic, find_leaderless_partitions, survey_topics
from bridge.ledger import Ledger
from bridge.ledger.ledger_permissions import find_refused_fates
from bridge.ledger.redis_connection import explain_refused_login
from bridge.ledger.redis_health import check_redis_fit
from bridge.settings import OWN_APP, Settings, hide_password, hide_passwords_in, is_redis
from bridge.settings.address_values import holds_ledger
from bridge.settings.app_discovery import import_handlers
from bridge.settings.oauth_token import OAuthTokenSource
from bridge.settings.settings_loader import CREDENTIALS
from bridge.settings.settings_validation import find_redis_faults
from bridge.telemetry.otel_sdk import describe_export
from lossless.transport import eviction_risk, find_refused_queues, refuse_unfit, risks
from lossless.transport.redis_outage import advise_redis_error

#: librdkafka's reports of a connection that is open and of another kind than the listener.
_LOGIN: Final = re.compile(r"security\.protocol|SSL|SASL|[Aa]uthenticat|listener\?")
#: Seconds for each connection.
ANSWER_WITHIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A finding of the check, one sentence: a `fault` prevents the start, a `warning` does not."""

    level: Literal["ok", "warning", "fault"]
    text: str

    def to_data(self) -> dict[str, str]:
        """Return the finding as JSON-able data."""
        # A problem becomes its plain sentence: its values cannot be copied.
        return {"level": self.level, "text": str(self.text)}


def check_setup(app: Celery, environ: Mapping[str, str] = os.environ, name: str = OWN_APP) -> list[CheckFinding]:
    """Check settings, handlers and connections; a fault of one does not hide those of another.

    Parameters:
        name: the app as in `-A`, for advice.
    """
    chosen, routes, faults, _ = load_setup(app, environ)
    chosen = replace(chosen, app=name)
    findings = [CheckFinding("fault", fault) for fault in faults]
    findings.extend(_settings(app, chosen, routes))
    if exported := describe_export(environ):
        findings.append(CheckFinding("ok", f"OpenTelemetry: {exported} are sent by OTLP."))
    findings.extend(_django(app, routes))
    if not any(fault.startswith("SCHEMA_REGISTRY_") for fault in faults):
        findings.extend(_registry(chosen))
    if not any(fault.startswith("KAFKA_") for fault in faults):
        findings.extend(_kafka(app, chosen, routes))
    unread = any(fault.startswith(("CELERY_BROKER_URL", CREDENTIALS)) for fault in faults)
    ledgerless = any(fault.startswith(("LEDGER_URL", CREDENTIALS)) for fault in faults)
    broker = [] if unread else list(_broker(app, chosen, routes))
    findings.extend(broker)
    # A frozen Redis costs seconds for each request: the same one is not asked again.
    silent = chosen.one_redis and not any(finding.level == "ok" for finding in broker)
    if not silent and not ledgerless:
        findings.extend(_ledger(chosen))
        if not any(finding.level == "fault" for finding in findings):
            findings.extend(_workers(app, chosen, routes))
    return findings


def load_setup(app: Celery, environ: Mapping[str, str]) -> tuple[Settings, Routes, list[str], bool]:
    """Load settings and handlers without a connection.

    Returns:
        the settings, with defaults in place of wrong ones; the handlers; the faults, a sentence each; and whether
        every module of handlers could be imported.
    """
    broken = import_handlers(app)
    chosen, routes, faults = settings.read_with_handlers(app, environ, broken)
    if not any(fault.startswith("CELERY_BROKER_URL") for fault in faults) and (fault := find_broker_fault(app)):
        faults.append(fault)
    if not any(fault.startswith("KAFKA_") for fault in faults) and (words := client_fault(chosen.kafka)):
        faults.append(f"KAFKA_…: librdkafka refuses these settings: {words}.")
    if routes.topics:
        faults += [*name_faults(chosen, routes.topics), *settings.sequence_faults(chosen, routes)]
        faults += find_ambiguous_names(TopicNames.from_settings(chosen), routes.topics)
    return chosen, routes, faults, not broken


def _settings(app: Celery, chosen: Settings, routes: Routes) -> Iterator[CheckFinding]:
    for handler in routes:
        yield CheckFinding("ok", f"{', '.join(handler.topics)} → {handler.name}, queue {handler.queue!r}.")
    yield from find_unfit_quorum_queues([app.amqp.queues[name] for name in routes.queues if name in app.amqp.queues])
    if chosen.config_file:
        yield CheckFinding("ok", f"settings are read from {chosen.config_file}.")
    if chosen.unrelated:
        yield CheckFinding("ok", f"ignored, because librdkafka does not know them: {', '.join(chosen.unrelated)}.")
    yield from (CheckFinding("warning", text) for text in chosen.misspelt)
    yield from find_short_windows(routes)
    for topic in sorted(chosen.file.kafka_topics.keys() - set(routes.topics)):
        yield CheckFinding("warning", f"kafka_topics[{topic!r}] has no handler, so the topic is not consumed.")


def find_unfit_quorum_queues(queues: Iterable[Queue]) -> Iterator[CheckFinding]:
    """Yield a warning for each quorum queue that a user declares so that RabbitMQ drops or holds up deliveries."""
    for queue in queues:
        arguments = queue.queue_arguments or {}
        if arguments.get("x-queue-type") != "quorum":
            continue
        if "x-delivery-limit" not in arguments:
            yield CheckFinding(
                "warning",
                f"the quorum queue {queue.name!r} has no x-delivery-limit: RabbitMQ 4 drops a message that was "
                "returned 21 times, for example by 21 killed workers. Leave the queue out of task_queues, or give it "
                "queue_arguments={'x-queue-type': 'quorum', 'x-delivery-limit': 2147483647}.",
            )
        if "x-consumer-timeout" not in arguments:
            yield CheckFinding(
                "warning",
                f"the quorum queue {queue.name!r} has no x-consumer-timeout: RabbitMQ takes back a message "
                "that a worker holds for longer than 30 minutes, and a handler that takes so long never ends. "
                "Leave the queue out of task_queues, or add 'x-consumer-timeout': 2147483647 to its queue_arguments.",
            )
        if queue.exchange.type == "direct":
            yield CheckFinding(
                "warning",
                f"the quorum queue {queue.name!r} is bound to a direct exchange: retries wait in the workers, and hold "
                f"up all other deliveries there. Leave the queue out of task_queues, or give it "
                f"exchange=Exchange({queue.name!r}, 'topic').",
            )


def find_short_windows(routes: Routes) -> Iterator[CheckFinding]:
    """Yield a warning for each handler that may retry a message later than it knows the message's name."""
    for handler in routes:
        if handler.unique_for is not None and handler.longest_delay >= handler.unique_for:
            yield CheckFinding(
                "warning",
                f"{handler.name}: unique_for ({handler.unique_for:g} s) is not longer than its longest retry delay "
                f"({handler.longest_delay:g} s): a retry may run after its duplicate was done and forgotten. Raise "
                "unique_for.",
            )


def _registry(chosen: Settings) -> Iterator[CheckFinding]:
    """Ask the schema registry, if there is one."""
    if chosen.registry is None:
        return
    registry = SchemaRegistry(chosen.registry)
    try:
        kinds = registry.check()
        yield CheckFinding("ok", f"the schema registry at {chosen.registry.place} answers; it has schemas of {kinds}.")
    except RegistryUnavailable as error:
        yield CheckFinding("fault", f"{error}.")
    finally:
        registry.close()


def _django(app: Celery, routes: Routes) -> Iterator[CheckFinding]:
    """Yield a fault if Django's database lacks a table that handlers write: their deliveries would fail."""
    tasks: Mapping[str, Any] = app.tasks
    try:
        missing = missing_django_tables(tasks[handler.name].run for handler in routes)
    except Exception as error:
        # Whatever Django or its database raises: the report must go on, and name it.
        words = hide_passwords_in(str(error).strip())
        yield CheckFinding(
            "warning", f"Django's database: {type(error).__name__}: {words}. Check its settings, and whether it runs."
        )
        return
    if missing:
        yield CheckFinding(
            "fault",
            f"Django's database has no table {', '.join(missing)}, which a handler writes with message.settle_with: "
            "add the migration of docs/tutorials/existing-celery-app.md, and run `python manage.py migrate`.",
        )


def _kafka(app: Celery, chosen: Settings, routes: Routes) -> Iterator[CheckFinding]:
    place = hide_password(chosen.kafka["bootstrap.servers"])
    if isinstance(source := chosen.kafka.get(OAUTH_CB), OAuthTokenSource):
        try:
            left = source.fetch(chosen.kafka.get("sasl.oauthbearer.config", "")).expires - time.time()
        except TokenUnavailable as error:
            yield CheckFinding("fault", str(error))
            return
        yield CheckFinding("ok", f"{source.words} gives a token, which expires in {left:,.0f} s.")
    log_lines: list[str] = []
    admin: AdminClient | None = None
    try:
        # Some properties are only read when a client is made: a certificate's file, for instance.
        consumer_client(chosen.kafka, chosen.group).close()
        admin = admin_client(chosen.kafka, error_cb=lambda error: log_lines.append(explain_error(error)))
        admin.list_topics(timeout=ANSWER_WITHIN)
    except (KafkaException, KafkaUnavailable) as error:
        if admin is not None:
            # Receive the errors that librdkafka has reported.
            admin.poll(0)
        yield CheckFinding("fault", explain_unreachable_kafka(place, _words(error), log_lines))
        return
    yield CheckFinding("ok", f"Kafka at {place} answers.")
    yield from _topics(app, admin, chosen, routes)
    yield from _protocol(chosen)
    yield from _other_redis(chosen, routes)
    yield from _first_reads(chosen, routes)


def _protocol(chosen: Settings) -> Iterator[CheckFinding]:
    try:
        members = read_members(chosen, chosen.group, ANSWER_WITHIN)
    except KafkaUnavailable as error:
        yield CheckFinding("warning", f"the protocol of the group {chosen.group!r} is not known: {error}")
        return
    moves = bool(members.size) and members.protocol != group_protocol(chosen.kafka)
    yield CheckFinding("warning" if moves else "ok", describe_protocol(chosen, members))


def _other_redis(chosen: Settings, routes: Routes) -> Iterator[CheckFinding]:
    """Yield a fault if an application with another Redis uses the group."""
    if not holds_ledger(chosen.ledger_url or "") or find_redis_faults(chosen):
        return  # a fault of its own
    if (ledger := Ledger.from_settings(chosen)) is None:
        return
    try:
        with closing(ledger):
            foreign = find_foreign_topics(chosen, ledger, routes.topics)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        yield CheckFinding("warning", unknown_members(chosen.group, str(error)))
        return
    if foreign is None:
        yield CheckFinding("warning", unknown_members(chosen.group))
    elif foreign:
        yield CheckFinding("fault", describe_foreign_member(chosen.group, foreign))


def _first_reads(chosen: Settings, routes: Routes) -> Iterator[CheckFinding]:
    reader = ExtentReader()
    try:
        for first_read in find_first_reads(chosen, routes.topics, reader):
            yield CheckFinding("warning" if first_read.is_surprising else "ok", first_read.words)
    except KafkaUnavailable as error:
        # An unavailable Kafka is reported above; a missing permission is no fault.
        yield CheckFinding("warning", f"the first offsets to read are not known: {error}")
    yield from (CheckFinding("fault", problem) for problem in find_unreadable_partitions(reader.unreadable))


def explain_unreachable_kafka(place: str, words: str, log_lines: Iterable[str]) -> str:
    """Return a sentence on why Kafka does not answer, with the variables that are probably wrong (pure).

    Parameters:
        words: the error of the call.
        log_lines: the errors that librdkafka has reported meanwhile: for a failed login they say more.
    """
    login = next((text for text in log_lines if _LOGIN.search(text)), "")
    if explain_login(login):
        return f"Kafka at {place}: {login}."
    if not login:
        return f"Kafka at {place}: {words}. Check KAFKA_BOOTSTRAP_SERVERS, and whether Kafka runs."
    return (
        f"Kafka at {place} ends the connection: {login.rstrip('. ')}. Check KAFKA_SECURITY_PROTOCOL, KAFKA_SASL_… and "
        "KAFKA_SSL_… against the listener."
    )


def _topics(app: Celery, admin: AdminClient, chosen: Settings, routes: Routes) -> Iterator[CheckFinding]:
    """Yield the faults of topics and the retention of dead letters; topics of changed policies included."""
    try:
        decided = {key: decision.decision for key, decision in read_published_decisions(chosen).standing.items()}
        surveyed = survey_topics(admin, chosen, routes, changed_handlers(app, routes, find_changed_policies(decided)))
    except KafkaUnavailable as error:
        yield CheckFinding("fault", str(error))
        return
    if missing := find_missing_topics(surveyed):
        yield CheckFinding(
            "warning",
            f"{format_count(len(missing), 'topic')} of the group "
            f"{inflect_verb(len(missing), 'are')} missing although a bridge has run: "
            f"{', '.join(ours.name for ours in missing[:10])}"
            f"{f' and {len(missing) - 10:,} more, which `bridge topics` lists' if len(missing) > 10 else ''}. "
            "Until they exist, "
            f"{'; '.join(dict.fromkeys(ours.without for ours in missing))}. A bridge creates them when it starts, or "
            "its log says why Kafka refuses; `bridge topics --create` creates them too.",
        )
    # Those of the sources are found with the first reads, whatever keeps them from being read.
    beside = [seen for seen in surveyed if seen.ours.kind is not TopicKind.SOURCE]
    leaderless = find_leaderless_partitions(beside)
    yield from (CheckFinding("fault", problem) for problem in find_unreadable_partitions(leaderless))
    replicas = {seen.ours.name: seen.replicas for seen in surveyed}
    yield from (CheckFinding("warning", problem) for problem in find_unsynced_replicas(replicas))
    for seen in surveyed:
        made_at_start = seen.partitions is None and seen.ours.kind is not TopicKind.SOURCE
        if not (made_at_start and chosen.file.kafka_create_topics):
            yield from (CheckFinding("fault" if seen.refused else "warning", words) for words in _find_problems(seen))
        if seen.ours.kind is TopicKind.DEAD_LETTERS and seen.retention_ms is not None:
            kept = seen.retention_ms
            shown = "without end" if kept < 0 else f"for {kept / 86_400_000:.3g} days, and then deleted"
            yield CheckFinding("ok", f"dead letters in {seen.ours.name!r} are kept {shown} (retention.ms).")


def find_missing_topics(surveyed: Sequence[SurveyedTopic]) -> list[ManagedTopic]:
    """Return the missing topics of the group whose sources exist, if a bridge has started before (pure).

    The first bridge of a group creates the control topic and all others before it consumes.
    """
    there = {seen.ours.name for seen in surveyed if seen.partitions is not None}
    if not any(seen.ours.kind is TopicKind.CONTROL and seen.partitions is not None for seen in surveyed):
        return []
    beside = (seen.ours for seen in surveyed if seen.use == "needed" and seen.ours.name not in there)
    return [ours for ours in beside if ours.kind not in (TopicKind.SOURCE, TopicKind.CONTROL) and ours.source in there]


def _find_problems(seen: SurveyedTopic) -> tuple[str, ...]:
    """Return the problems of a topic; for a missing one that the bridge may not create, its backlog."""
    if seen.partitions is None and seen.ours.kind is not TopicKind.SOURCE:
        source = f" of {seen.ours.source!r}" if seen.ours.source else ""
        return (
            f"topic {seen.ours.name!r} does not exist and kafka_create_topics is False: {seen.ours.what}{source} wait "
            "until you create it (`bridge topics --create`).",
        )
    return seen.problems


def _words(error: Exception) -> str:
    return explain_error(error).rstrip(". ")


def _broker(app: Celery, chosen: Settings, routes: Routes) -> Iterator[CheckFinding]:
    url = str(app.conf.broker_url)
    shown = hide_password(url)
    connection = make_broker_connection(app)
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=int(ANSWER_WITHIN))
        if is_redis(url):
            refuse_unfit(connection)
        yield CheckFinding("ok", f"the Celery broker at {shown} answers.")
        if is_redis(url):
            if refused := find_refused_queues(connection, routes.queues):
                yield CheckFinding("fault", f"the Celery broker at {shown}: {refused}.")
            eviction = eviction_risk(connection)
            for risk in risks(connection):
                yield CheckFinding("fault" if risk == eviction else "warning", f"Redis: {risk}.")
        else:
            yield from _visibility(app, routes, connection.default_channel)
    except Exception as error:
        # Whatever the transport raises: the report must go on, and name it.
        words = hide_passwords_in(str(error))
        raw, advice = f"{type(error).__name__}: {words.rstrip('. ')}", advise_redis_error(error)
        given = chosen.redis.credentials
        by_function = given is not None and is_redis(url) and not (connection.userid or connection.password)
        login = given.setting if given is not None and by_function else "CELERY_BROKER_URL"
        why = explain_refused_login(words, login) or (
            f"{advice} ({raw})." if advice else f"{raw}. Check {login}, and whether the broker runs."
        )
        yield CheckFinding("fault", f"the Celery broker at {shown}: {why}")
    finally:
        connection.release()


def _ledger(chosen: Settings) -> Iterator[CheckFinding]:
    ledger = Ledger.once(chosen, ANSWER_WITHIN)
    if ledger is None:
        yield CheckFinding(
            "warning",
            "there is no ledger (the broker is not one Redis, and LEDGER_URL is not set): commit='handoff' only, no "
            "deduplication, no audit and no changed policies, and a second recorder of dead letters with another "
            "database is not noticed. Set LEDGER_URL to a Redis.",
        )
        return
    shown = hide_password(str(chosen.ledger_url))
    try:
        # One Redis for both was checked as the broker.
        if not chosen.one_redis and (warning := check_redis_fit(ledger)):
            yield CheckFinding("warning", warning)
        ledger.state()
        yield CheckFinding("ok", f"the ledger at {shown} answers.")
        if refused := find_refused_fates(ledger):
            yield CheckFinding("fault", f"the ledger at {shown}: {refused}.")
        if any(topic.handoff_durability for topic in chosen.file.kafka_topics.values()):
            ledger.fsync(ANSWER_WITHIN - 1)
    except (UnfitRedis, LedgerCannotFsync, LedgerUnavailable) as error:
        yield CheckFinding("fault", str(error))
    finally:
        ledger.close()


def _workers(app: Celery, chosen: Settings, routes: Routes) -> Iterator[CheckFinding]:
    """Yield findings on queues, workers, unknown handlers, refused topics, and other applications in the group."""
    facts = gather_facts(app, chosen, routes).facts
    for redis in facts.memory:
        yield from (
            CheckFinding("fault" if redis.full else "warning", sentence)
            for sentence in find_redis_problems(redis, facts)
        )
    yield from (CheckFinding("warning", sentence) for sentence in facts.stale)
    # A missing topic is no fault before a bridge has tried to create it: a bridge starts without it.
    yield from (CheckFinding("fault", sentence) for sentence in find_unmade_topics(facts))
    yield from (CheckFinding("fault", sentence) for sentence in find_other_applications(facts).values())
    yield from (CheckFinding("warning", sentence) for sentence in find_divided_topics(facts).values())
    yield from (CheckFinding("warning", sentence) for sentence in find_held_back_topics(facts))
    if facts.workers is None:
        return
    for queue in routes.queues:
        count = sum(queue in state["queues"] for state in facts.workers.values())
        if count:
            yield CheckFinding("ok", f"queue {queue!r} is consumed by {format_count(count, 'worker')}.")
    stopped = is_stopped(facts)
    for sentence in find_unconsumed_queues(facts).values():
        # No fault before the first worker has ever run, nor after a planned stop.
        yield CheckFinding("fault" if (sentence.many or sentence.since) and not stopped else "warning", sentence)
    for sentence in find_unknown_handlers(facts).values():
        yield CheckFinding("warning", sentence)


def _visibility(app: Celery, routes: Routes, channel: object) -> Iterator[CheckFinding]:
    """Yield a fault for each handler that holds messages longer than the transport's visibility timeout (SQS)."""
    # SQS has a default of its own (kombu/transport/SQS.py Channel.visibility_timeout).
    timeout = app.conf.broker_transport_options.get("visibility_timeout", getattr(channel, "visibility_timeout", None))
    for handler in routes:
        if timeout is not None and handler.longest_wait >= timeout:
            yield CheckFinding(
                "fault",
                f"{handler.name} may hold a message for {handler.longest_wait:g} s (a time limit or a delay), but "
                f"the broker redelivers it after {timeout:g} s: raise broker_transport_options['visibility_timeout'].",
            )
