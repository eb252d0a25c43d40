"""The table of problems: everything that `status`, the console, `/metrics` and the alert rules say of one is from here.

A row has the identifier by which all of them name the problem, what it means, what to do, the alerts that tell of it,
and within how many seconds `bridge status` says it. The identifier is the anchor of its runbook in
`docs/runbooks/problems.md`.
`deploy/alerts.yml` is written from the rows: `python -m bridge.jobs.problem_table > deploy/alerts.yml`.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, get_args

from bridge.formats.pause_reasons import PARTITIONS_PAUSED, PauseReason

ProblemKind = Literal[
    "silent",
    "redis",
    "halted",
    "policy",
    "breaker",
    "unnamed",
    "no bridge",
    "bridge lost",
    "not consumed",
    "unassigned",
    "divided",
    "obstacle",
    "no worker",
    "unknown handler",
    "known to some",
    "hung",
    "slow workers",
    "clock",
    "lost",
    "log",
    "old",
    "topic",
    "replicas",
    "overdue",
    "drained",
    "dying",
    "paused",
    "transaction",
    "behind",
    "hot key",
    "quiet",
    "failing",
    "processes lost",
    "unpublished",
    "dead",
    "desk",
    "missed",
    "recorder",
    "unknown ends",
    "grows",
    "webhook",
]
PROBLEM_KINDS: Final[tuple[ProblemKind, ...]] = get_args(ProblemKind)

#: Seconds within which a problem is said that stops all work, and any other.
STOPS_ALL: Final = 30
OTHERS: Final = 60


class AlertRule(NamedTuple):
    """A rule for Prometheus.

    Attributes:
        lasts: for how long it must be so; empty: it fires at once.
    """

    name: str
    expression: str
    summary: str
    lasts: str = ""


class ProblemRow(NamedTuple):
    """One problem.

    Attributes:
        kind: the word of `problem_values`.
        identifier: its name in `status`, on `/metrics`, in the rules, and the anchor of its runbook.
        means: what is wrong.
        advice: what to do.
        within: seconds after which `bridge status` says it at the latest, while bridges and workers run; `None`: it
            depends on `period` alone.
        alerts: the rules that tell of it.
        period: what else must have lasted or happened before it is said.
    """

    kind: ProblemKind
    identifier: str
    means: str
    advice: str
    within: int | None = OTHERS
    alerts: tuple[AlertRule, ...] = ()
    period: str = ""

    @property
    def said(self) -> str:
        """Return when `bridge status` says it, for the runbook."""
        return " ".join(filter(None, ("" if self.within is None else f"within {self.within} s", self.period)))

    @property
    def runbook(self) -> str:
        """Return the path of its runbook in the repository, with its anchor."""
        return f"docs/runbooks/problems.md#{self.identifier}"


def _make_bridge_alert(identifier: str, name: str, summary: str, lasts: str = "1m") -> AlertRule:
    """The rule of a problem that bridges see by themselves, and show on `/metrics` as a number of sentences."""
    return AlertRule(
        name, f'max(bridge_problems{{problem="{identifier}"}}) > 0', f"{summary}; see bridge status", lasts
    )


#: The reasons of a pause that wake nobody, as a pattern: their words have no special characters.
_EXPECTED_PAUSES: Final = "|".join(reason for reason in PauseReason if not reason.alerts)
_NEEDS_DOWN: Final = "unless on () max(bridge_breaker_open) > 0"

PROBLEM_TABLE: Final[tuple[ProblemRow, ...]] = (
    ProblemRow(
        "silent",
        "server_unavailable",
        "Kafka, Redis or the Celery broker does not answer.",
        "Start it, or fix the network or the address.",
        STOPS_ALL,
    ),
    ProblemRow(
        "redis",
        "redis_memory_or_disk",
        "A Redis is full or nearly full, or does not write its data to disk.",
        "Raise its maxmemory, let workers empty the queues, or see its log and its disk.",
        STOPS_ALL,
    ),
    ProblemRow(
        "halted",
        "topic_halted",
        "A person or a handler has halted a topic.",
        "Fix the cause, then `bridge resume TOPIC`.",
        STOPS_ALL,
        (
            AlertRule(
                "ATopicIsHalted",
                "max by (topic) (bridge_halted) > 0",
                "{{ $labels.topic }} is halted; bridge status says why, bridge resume ends the halt",
            ),
        ),
    ),
    ProblemRow(
        "policy",
        "policy_not_in_force",
        "A changed policy does not fit the handler's code, so the code's policy is in force.",
        "Set it again, or unset it (`bridge policy`).",
    ),
    ProblemRow(
        "breaker",
        "dependency_down",
        "A circuit breaker is open: deliveries that need the dependency fail.",
        "Restore the dependency: the deliveries then run by themselves.",
        STOPS_ALL,
        (
            AlertRule(
                "WhatHandlersNeedIsDown",
                "max by (dependency) (bridge_breaker_open) > 0",
                "the circuit breaker of {{ $labels.dependency }} is open; deliveries that need it wait",
                "2m",
            ),
        ),
    ),
    ProblemRow(
        "unnamed",
        "dependency_unnamed",
        "Messages wait for a dependency that no handler names any more.",
        "Restart the bridges.",
    ),
    ProblemRow(
        "no bridge",
        "bridges_down",
        "No bridge of the group runs.",
        "Start `bridge run`.",
        STOPS_ALL,
        (
            AlertRule(
                "NoBridgeRuns",
                "absent(bridge_ready)",
                "no bridge runs, or Prometheus scrapes none; see bridge status",
                "1m",
            ),
        ),
    ),
    ProblemRow(
        "bridge lost",
        "bridge_lost",
        "A bridge ended without a shutdown, and no other took its place; or bridges die again and again.",
        "See its log and why it ended, and start it again.",
        OTHERS,
        (
            _make_bridge_alert(
                "bridge_lost", "ABridgeIsLost", "a bridge ended without a shutdown, or bridges die again and again"
            ),
        ),
    ),
    ProblemRow(
        "not consumed",
        "topic_not_consumed",
        "No bridge consumes a topic that has a handler here.",
        "Restart the bridges with the handlers that are here.",
    ),
    ProblemRow(
        "unassigned",
        "partition_unassigned",
        "No bridge has had a partition for 30 s.",
        "If it does not pass, restart the bridges and see their logs.",
    ),
    ProblemRow(
        "divided",
        "group_divided",
        "Bridges of one group have different handlers for a topic, or another application uses the group.",
        "Start all bridges of the group with the same handlers, or give the other application its own BRIDGE_GROUP.",
        OTHERS,
        # Both sides of a rolling deploy may run for some minutes.
        (
            _make_bridge_alert(
                "group_divided", "AGroupIsDivided", "the members of a group have different handlers", "10m"
            ),
        ),
    ),
    ProblemRow(
        "obstacle",
        "bridge_blocked",
        "Bridges consume nothing, for a reason that they name.",
        "Fix the cause that the sentence names: the bridges continue by themselves.",
        STOPS_ALL,
        (
            AlertRule(
                "NoBridgeConsumes",
                "sum(bridge_ready) < 1",
                "no bridge consumes and hands off; see /readyz and bridge status",
                "1m",
            ),
            AlertRule(
                "ABridgeIsNotReady",
                "bridge_ready == 0",
                "{{ $labels.instance }} consumes nothing; see its /readyz",
                "5m",
            ),
        ),
    ),
    ProblemRow(
        "no worker",
        "workers_down",
        "No worker consumes a queue.",
        "Start workers for it.",
        STOPS_ALL,
        (
            AlertRule(
                "NobodyConsumesAQueue",
                "max by (queue) (bridge_workers) == 0"
                " and max by (queue) (bridge_queue_messages + bridge_queue_retries) > 0",
                "{{ $labels.queue }}: no running worker consumes it",
                "1m",
            ),
        ),
    ),
    ProblemRow(
        "unknown handler",
        "handler_unknown",
        "Workers consume the handler's queue, and none of them knows the handler.",
        "Deploy it to the workers, or see their HANDLERS and `imports`.",
        STOPS_ALL,
        (_make_bridge_alert("handler_unknown", "NoWorkerKnowsAHandler", "no worker knows a handler"),),
    ),
    ProblemRow(
        "known to some",
        "handlers_differ",
        "Some workers of a queue do not know a handler.",
        "Deploy the same handlers to all workers of the queue.",
    ),
    ProblemRow(
        "hung",
        "handlers_hang",
        "Processes run a delivery far longer than the handler usually takes, and none of its deliveries finishes.",
        "See what the process waits for (py-spy dump), set a time_limit, restart the worker: its deliveries run again.",
        OTHERS,
        (
            _make_bridge_alert("handlers_hang", "HandlersHang", "handlers hang"),
            AlertRule(
                "DeliveriesTakeTooLong",
                "label_replace(max by (topic, handler) (bridge_oldest_delivery_seconds),"
                ' "source", "$1", "topic", "(.+?)([.]retry[.].+|[.]replay)?") > 900'
                ' unless on (source) label_replace(max by (topic) (bridge_halted) > 0, "source", "$1", "topic", "(.+)")'
                f" {_NEEDS_DOWN}",
                "{{ $labels.handler }}: a delivery has been in flight for {{ $value }} s",
                "2m",
            ),
        ),
    ),
    ProblemRow(
        "slow workers",
        "workers_too_slow",
        "The backlog of a queue is over a minute of work for its workers, and grows.",
        "Start the number of processes that the sentence names.",
        OTHERS,
        (_make_bridge_alert("workers_too_slow", "WorkersAreTooSlow", "the workers of a queue do not keep up"),),
    ),
    ProblemRow(
        "clock",
        "clock_skew",
        "The clock of a bridge's or worker's host differs from that of Redis by over 5 s.",
        "Synchronise the host's clock (NTP).",
        OTHERS,
        (_make_bridge_alert("clock_skew", "AClockIsWrong", "a host's clock is wrong"),),
    ),
    ProblemRow(
        "lost",
        "records_unaccounted",
        "Records are committed, and the ledger does not know their outcome.",
        "`bridge audit TOPIC` lists them; `bridge reset TOPIC --to OFFSET` runs them.",
        OTHERS,
        (
            AlertRule(
                "RecordsAreUnaccountedFor",
                "sum by (topic, handler) (bridge_unaccounted) > 0",
                "{{ $labels.topic }}: {{ $value }} records are unaccounted for; see bridge audit {{ $labels.topic }}",
                "2m",
            ),
            AlertRule(
                "TheLedgerLostFates",
                "increase(bridge_undone_deliveries_total[10m]) > 0",
                "Redis lost data: finished deliveries run again",
            ),
            AlertRule(
                "DeliveriesWereNowhere",
                "increase(bridge_stuck_deliveries_total[1h]) > 0",
                "messages vanished from the broker; their deliveries were handed off again, nothing to do:"
                " find out who purged the queue",
            ),
        ),
    ),
    ProblemRow(
        "log",
        "log_changed",
        "Retention deleted unread records, or a log was truncated, recreated or deleted; shown for a day.",
        "Keep records for longer; check who deletes topics, and Kafka's disks and elections.",
        OTHERS,
        (
            AlertRule(
                "RetentionTookWhatWasNotHandled",
                "increase(bridge_expired_records_total[1h]) > 0",
                "{{ $labels.topic }}: retention deleted {{ $value }} records before they were handled",
            ),
            AlertRule(
                "ALogIsAnother",
                "increase(bridge_log_changes_total[1h]) > 0",
                "{{ $labels.topic }}: the log changed ({{ $labels.what }}); see bridge audit",
            ),
        ),
    ),
    ProblemRow(
        "old",
        "delivery_old",
        "A delivery has been handed off for over 15 minutes, or more with long limits, and has not ended.",
        "See what the workers run, and whether they are enough.",
        None,
        period=(
            "after 15 minutes in flight, or twice the handler's longest delay or time limit if that is longer; "
            "after 1 minute if no worker knows the handler"
        ),
    ),
    ProblemRow(
        "topic",
        "topic_unfit",
        "One of the group's topics is missing, or its settings endanger what it holds.",
        "`bridge topics` says what to do.",
    ),
    ProblemRow(
        "replicas",
        "replicas_out_of_sync",
        "Partitions of the group's topics or of its sources have replicas that are not in sync.",
        "Check Kafka's brokers: one is down or too slow.",
    ),
    ProblemRow(
        "overdue",
        "retries_overdue",
        "Parked records were due a minute ago and are not handed off.",
        "See the queues' lengths and the bridges' logs.",
        None,
        (
            AlertRule(
                "WhatIsParkedIsOverdue",
                "max by (topic, tier) (bridge_parked_late_seconds) > 60"
                " unless on (topic) max by (topic) (bridge_halted) > 0",
                "{{ $labels.tier }}: due {{ $value }} s ago, and not handed off; see bridge status",
                "2m",
            ),
        ),
        period="1 minute after the first of them was due",
    ),
    ProblemRow(
        "drained",
        "tier_unused",
        "A retry topic that no handler uses any more still holds records.",
        "Delete it only when it is empty and no release and no application, a stopped one either, needs it.",
    ),
    ProblemRow(
        "dying",
        "topic_dying",
        "A topic is paused because too many of its deliveries died within a minute.",
        "Fix the cause; `bridge halt TOPIC` stops it until then.",
        STOPS_ALL,
        (
            AlertRule(
                "TooManyDie",
                f'max by (topic) (bridge_partition_paused{{reason=~"{PauseReason.DEAD_LETTERS} .*"}}) > 0',
                "{{ $labels.topic }} is paused: {{ $labels.reason }}",
            ),
        ),
    ),
    ProblemRow(
        "paused",
        PARTITIONS_PAUSED,
        "Partitions have been paused for over a minute.",
        "Act on the reason in the sentence: the table below has each.",
        None,
        (
            AlertRule(
                "PausedForLong",
                "time() - min by (topic, reason) (bridge_partition_paused_since_seconds"
                f'{{reason!~"{_EXPECTED_PAUSES}"}}) > 1800'
                f" {_NEEDS_DOWN}",
                "{{ $labels.topic }} is paused: {{ $labels.reason }}",
            ),
        ),
        period="after 1 minute",
    ),
    ProblemRow(
        "transaction",
        "transaction_open",
        "Kafka returns no records from the beginning of a transaction on that has been open for over 90 s.",
        "`kafka-transactions.sh find-hanging` names its producer, `kafka-transactions.sh abort` ends it.",
        None,
        (_make_bridge_alert("transaction_open", "ATransactionStaysOpen", "an open transaction holds back a topic"),),
        period="after 90 s without a record although Kafka has more",
    ),
    ProblemRow(
        "behind",
        "consumer_lag",
        "Consumer lag has grown for five minutes: bridges read less than is written.",
        "Add workers if a queue is long, else bridges.",
        None,
        (
            AlertRule(
                "ConsumptionFallsBehind",
                "sum by (topic) (bridge_lag_records) > 10000 and sum by (topic) (deriv(bridge_lag_records[15m])) > 0",
                "{{ $labels.topic }}: the consumer lag is {{ $value }} records, and grows",
                "15m",
            ),
        ),
        period="after 5 minutes of growth",
    ),
    ProblemRow(
        "hot key",
        "key_hot",
        "For a minute, most waiting deliveries of a partition of an ordered topic have had the same key.",
        "Make that key's deliveries faster, or spread it over several keys: a key runs one delivery at a time.",
        None,
        period="after 1 minute",
    ),
    ProblemRow(
        "quiet",
        "traffic_stopped",
        "No records arrive on a topic that had some in nearly every minute of the last hour.",
        "Check its producers.",
        None,
        (
            AlertRule(
                "TrafficStopped",
                "sum by (topic) (increase(bridge_records_consumed_total[2m])) == 0"
                " and sum by (topic) (bridge_lag_records) == 0"
                " and sum by (topic) (increase(bridge_records_consumed_total[1h] offset 2m)) > 600",
                "{{ $labels.topic }}: no records in two minutes, and over 600 in the hour before; check its producers",
                "1m",
            ),
        ),
        period="1 to 2 minutes after the last record",
    ),
    ProblemRow(
        "failing",
        "handler_failing",
        "Attempts of a handler fail: all of them, one in twenty or more, or deliveries wait long for a retry.",
        "Fix the cause: deliveries that wait for a retry run again. Replay those that are dead.",
        STOPS_ALL,
        (
            AlertRule(
                "AHandlerFails",
                'sum by (handler) (rate(worker_retried_total{reason="failed"}[5m]))'
                ' > sum by (handler) (rate(worker_handled_total{outcome="done"}[5m]))',
                "{{ $labels.handler }}: more runs fail than succeed; see bridge status",
                "1m",
            ),
            AlertRule(
                "SomeOfAHandlerFails",
                'sum by (handler) (rate(worker_handled_total{outcome="failed"}[5m]))'
                " > 0.05 * sum by (handler) (rate(worker_handled_total[5m]))",
                "{{ $labels.handler }}: over 5 % of its runs fail; see bridge status",
                "5m",
            ),
        ),
        period=(
            "if ten or more attempts fail and none succeeds; within 3 minutes if one in twenty fails, from 20 "
            "failures on; else when 100 deliveries wait for a retry, or one has waited for 5 minutes"
        ),
    ),
    ProblemRow(
        "processes lost",
        "processes_lost",
        "Worker processes die with a handler's deliveries (out of memory, a crash, a hard time limit).",
        "See the workers' log and the memory limit; a delivery that takes three processes is a dead letter (`poison`).",
        None,
        (
            AlertRule(
                "ProcessesAreLost",
                "sum by (handler) (increase(worker_lost_processes_total[10m])) > 0",
                "{{ $labels.handler }}: {{ $value }} worker processes died with its deliveries",
            ),
        ),
        period="at the third process within 10 minutes",
    ),
    ProblemRow(
        "unpublished",
        "dead_letters_refused",
        "Kafka does not take dead letters; they wait in the broker and are tried again.",
        "See the workers' log, and the dead-letter topic.",
        OTHERS,
        (
            AlertRule(
                "DeadLettersCannotBeWritten",
                'sum by (handler) (increase(worker_retried_total{reason="dead_letter_unpublished"}[10m])) > 0',
                "{{ $labels.handler }}: Kafka does not take dead letters",
                "2m",
            ),
        ),
    ),
    ProblemRow(
        "dead",
        "deliveries_dead",
        "Deliveries are dead, and nobody has replayed or discarded them.",
        "Fix the cause, then replay or discard them.",
        OTHERS,
        (
            AlertRule(
                "DeliveriesDie",
                "sum by (handler, reason) (increase(worker_dead_lettered_total[10m])) > 0",
                "{{ $labels.handler }}: {{ $value }} dead ({{ $labels.reason }})",
            ),
        ),
    ),
    ProblemRow(
        "desk",
        "dead_letter_store_unavailable",
        "The database of the dead letters does not answer, or has another version.",
        "Start it, or bring it to this version (`bridge deadletters migrate`).",
    ),
    ProblemRow(
        "missed",
        "dead_letters_missed",
        "Kafka dropped dead letters before they were recorded.",
        "Raise the retention of the dead-letter topic, and keep the recorder running.",
        OTHERS,
        (
            AlertRule(
                "DeadLettersWereMissed",
                "increase(bridge_deadletters_missed_total[1h]) > 0",
                "{{ $labels.topic }}: {{ $value }} dead letters were dropped by Kafka before they were recorded",
            ),
        ),
    ),
    ProblemRow(
        "recorder",
        "recorder_down",
        "The recorder of the dead letters has stopped, or it lags behind.",
        "Start `bridge deadletters record`.",
        OTHERS,
        (
            AlertRule(
                "NobodyRecordsDeadLetters",
                "max(bridge_deadletters_recorder_ready) < 1 or absent(bridge_deadletters_recorder_ready)",
                "dead letters are not recorded in the database; see the recorder's /readyz",
                "5m",
            ),
            AlertRule(
                "TheRecorderIsBehind",
                "sum by (topic) (bridge_deadletters_lag_records) > 1000",
                "{{ $labels.topic }}: {{ $value }} dead letters are not in the database yet",
                "10m",
            ),
        ),
    ),
    ProblemRow(
        "unknown ends",
        "replay_outcome_unknown",
        "It is unknown whether replayed letters ran: Redis or the replay topic lost their outcome.",
        "Find out where the handler writes, then resolve what ran and open what did not "
        "(`bridge deadletters resolve`, `reopen`).",
        OTHERS,
        (
            AlertRule(
                "ReplaysEndUnknown",
                'sum(increase(bridge_deadletters_replays_total{outcome="unknown"}[15m])) > 0',
                "the outcome of {{ $value }} replayed letters is unknown; see bridge status",
            ),
        ),
    ),
    ProblemRow(
        "grows",
        "failure_group_grows",
        "A group of dead letters grows.",
        "See the group, fix the cause, then replay it.",
        OTHERS,
        (
            AlertRule(
                "DeadLettersGrow",
                "max by (handler) (bridge_deadletters_growing_groups) > 0",
                "{{ $labels.handler }}: {{ $value }} groups of dead letters grow; bridge deadletters groups",
                "5m",
            ),
            AlertRule(
                "DeadLettersAreLeft",
                "max(bridge_deadletters_oldest_open_seconds) > 604800",
                "a dead letter has been open for {{ $value }} s; bridge deadletters groups",
            ),
            AlertRule(
                "ReplaysDieAgain",
                'sum(increase(bridge_deadletters_replays_total{outcome="dead"}[15m])) > 0',
                "{{ $value }} replayed letters died again; bridge deadletters plans",
            ),
        ),
    ),
    ProblemRow(
        "webhook",
        "webhook_failing",
        "A webhook's receiver refuses notifications, or does not answer.",
        "Check the receiver and its address (`bridge deadletters webhooks`).",
    ),
)
PROBLEM_ROWS: Final[dict[ProblemKind, ProblemRow]] = {row.kind: row for row in PROBLEM_TABLE}


def write_alert_rules() -> str:
    """Return the rules for Prometheus, as `deploy/alerts.yml` has them."""
    return "\n".join(_write_lines()) + "\n"


def runbook_entry(row: ProblemRow) -> str:
    """Return the beginning of the entry that `docs/runbooks/problems.md` has for a problem."""
    alerts = ", ".join(f"`{alert.name}`" for alert in row.alerts) or "none"
    return (
        f"## {row.identifier}\n\n- **Means:** {row.means}\n- **Do:** {row.advice}\n"
        f"- **Said:** {row.said}. **Alerts:** {alerts}.\n"
    )


def _write_lines() -> Iterator[str]:
    yield "# Written by `python -m bridge.jobs.problem_table`: change the table there, and write this file again."
    yield "groups:"
    yield "  - name: celery-kafka-bridge"
    yield "    rules:"
    for row in PROBLEM_TABLE:
        for alert in row.alerts:
            yield f"      - alert: {alert.name}"
            yield f"        expr: {_quoted(alert.expression)}"
            if alert.lasts:
                yield f"        for: {alert.lasts}"
            yield f"        labels: {{problem: {row.identifier}}}"
            yield f"        annotations: {{summary: {_quoted(alert.summary)}, runbook: {_quoted(row.runbook)}}}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    print(write_alert_rules(), end="")
