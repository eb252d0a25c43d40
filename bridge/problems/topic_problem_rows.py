"""The problems of topics, their records and their consumption: rows of the table of problems."""

from typing import Final

from bridge.formats import pause_reasons
from bridge.formats.pause_reasons import PauseReason
from bridge.problems.problem_row import (
    OTHERS,
    STOPS_ALL,
    UNLESS_DOWN,
    AlertRule,
    KnownCause,
    ProblemRow,
    ProblemWords,
    make_bridge_alert,
)

#: The reasons of a pause that wake nobody, as a pattern: their words have no special characters.
_EXPECTED_PAUSES: Final = "|".join(reason for reason in PauseReason if not reason.alerts)

RECORDS_UNACCOUNTED: Final = ProblemRow(
    "lost",
    "records_unaccounted",
    "Records are committed, and the ledger does not know their outcome.",
    "`bridge audit TOPIC` lists them; `bridge reset TOPIC --to OFFSET` runs them.",
    {
        "records": ProblemWords(
            sentence=(
                "{records} unaccounted for by {handler}: committed, and the ledger does not know their "
                "outcome. {counted} `bridge audit {topic}` names the first of them. `bridge reset {topic} "
                "--to OFFSET`, without bridges, runs them and skips settled ones. If Redis lost its data, "
                "those that were done before run again."
            ),
            what="Records of {partition} are unaccounted for",
            do="`bridge audit {topic}` lists them",
            of="records",
        ),
        "parked": ProblemWords(
            sentence=(
                "{records} unaccounted for: committed, and the ledger does not know their outcome. "
                "{counted} Their original records are in {topic!r}: `bridge audit {topic}` lists what is "
                "lost, `bridge reset {topic} --to OFFSET` runs it, and skips settled deliveries."
            ),
            what="Parked records of {topic!r} are unaccounted for",
            do="`bridge audit {topic}` lists them",
            of="records",
        ),
    },
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
)

LOG_CHANGED: Final = ProblemRow(
    "log",
    "log_changed",
    "Retention deleted unread records, or a log was truncated, recreated or deleted; shown for a day.",
    "Keep records for longer; check who deletes topics, and Kafka's disks and elections.",
    {
        "retention": ProblemWords(
            sentence=(
                "Kafka's retention deleted {records} of {partition} unread, {began}: offsets "
                "{offsets}{audit}. Keep records for longer (retention.ms), and the bridges running; shown "
                "for a day."
            ),
            what="Kafka's retention deleted records of {partition} unread",
            do="keep records for longer (retention.ms)",
            of="records",
        ),
        "other records": ProblemWords(
            sentence=(
                "{what}, {began}, from offset {first} on: other records are there now. If nobody intended "
                "this, check {check}; shown for a day."
            ),
            what="The log of {partition} {happened}",
            do="check {check}",
        ),
        "parked deliveries": ProblemWords(
            sentence=(
                "{what}, seen {began}: at least {parked} parked and in no retry topic (parked: {whose}). "
                "They do not run by themselves: `bridge audit {topic}` lists them, and says how to run "
                "them."
            ),
            what="{deleted!r} was deleted",
            do="`bridge audit {topic}` lists them",
            of="deliveries",
        ),
        "deleted topic": ProblemWords(
            sentence=(
                "{what}, {began}, with up to {records} that waited in it: they do not run by "
                "themselves{audit}. Check who deletes topics; shown for a day."
            ),
            what="{deleted!r} was deleted",
            do="check who deletes topics",
            of="records",
        ),
    },
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
)

DELIVERY_OLD: Final = ProblemRow(
    "old",
    "delivery_old",
    "A delivery has been handed off for over 15 minutes, or more with long limits, and has not ended.",
    "See what the workers run, and whether they are enough.",
    {
        "in flight": ProblemWords(
            sentence=(
                "The oldest delivery {which} has been in flight {began}, and {stands}. See what the workers "
                "run ({see}) and whether they are enough."
            ),
            what="A delivery {which} is old",
            do="see what the workers run: `{see}`",
        ),
        "handler removed": ProblemWords(
            sentence=(
                "Deliveries of {topic!r} to {handler} wait, the oldest {began}: the handler was renamed or "
                "removed, and no worker knows it. Deploy it to a worker again, or let them become dead "
                "letters (unknown_handler, after kafka_unknown_for)."
            ),
            what="Deliveries wait for {handler}, which no worker knows",
            do="deploy it to a worker again",
        ),
    },
    None,
    period=(
        "after 15 minutes in flight, or twice the handler's longest delay or time limit if that is longer; "
        "after 1 minute if no worker knows the handler"
    ),
    unalerted="its age is in `bridge_oldest_delivery_seconds`, and `DeliveriesTakeTooLong` fires",
    causes=(
        KnownCause("handlers_hang", "handler"),
        KnownCause("handler_unknown", "handler"),
    ),
)

TOPIC_UNFIT: Final = ProblemRow(
    "topic",
    "topic_unfit",
    "One of the group's topics is missing, or its settings endanger what it holds.",
    "`bridge topics` says what to do.",
    {
        "refused": ProblemWords(
            sentence=(
                "{what}{began}: {refused}. The bridges' logs say why; they retry each minute. `bridge "
                "topics --create` creates them too."
            ),
            what="Kafka has refused to create {topics} of the group",
            do="see the bridges' logs, then `bridge topics --create`",
            of="topics",
        ),
        "unfit": ProblemWords(
            sentence="{fault}",
            what="Topic {unfit!r} is missing or misconfigured",
            do="`bridge topics` says what to do",
            of="records",
        ),
    },
    unalerted="no metric has it; `bridge check` says it before a deployment",
)

REPLICAS_OUT_OF_SYNC: Final = ProblemRow(
    "replicas",
    "replicas_out_of_sync",
    "Partitions of the group's topics or of its sources have replicas that are not in sync, or cannot be read.",
    "Check Kafka's brokers: one is down or too slow.",
    {
        "out of sync": ProblemWords(
            sentence=(
                "{what} ({topics}): a broker is down or too slow, and if another fails, records may be "
                "lost.{refused} Check Kafka's brokers, and `kafka-topics.sh --describe "
                "--under-replicated-partitions`."
            ),
            what="{partitions} replicas that are not in sync",
            do="check Kafka's brokers",
            of="partitions",
        ),
        "unreadable": ProblemWords(
            sentence=(
                "{what} ({places}): nothing of {them} runs, and no count here includes {them}; all else goes on. "
                "Start the broker that had {them}, or check its disk: `kafka-topics.sh --describe "
                "--unavailable-partitions`."
            ),
            what="{partitions} be read",
            do="start the broker that had them",
            of="partitions",
        ),
    },
    unalerted="Kafka's own metrics have it (`UnderReplicatedPartitions`)",
)

RETRIES_OVERDUE: Final = ProblemRow(
    "overdue",
    "retries_overdue",
    "Parked records were due a minute ago and are not handed off.",
    "See the queues' lengths and the bridges' logs.",
    ProblemWords(
        sentence=(
            "{what}, {began}: up to {records} of {partitions} are due and not handed off{cause}. See the "
            "queues' lengths and the bridges' logs; more bridges help only if workers are idle."
        ),
        what="Records in {tier!r} are overdue",
        do="see the queues' lengths and the bridges' logs",
        of="records",
    ),
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
    causes=(
        KnownCause("topic_dying", "topic"),
        KnownCause("partitions_paused", "topic"),
        KnownCause("topic_not_consumed", "topic"),
        KnownCause("partition_unassigned", "topic"),
        KnownCause("bridge_blocked"),
    ),
)

TIER_UNUSED: Final = ProblemRow(
    "drained",
    "tier_unused",
    "A retry topic that no handler uses any more still holds records.",
    "Delete it only when it is empty and no release and no application, a stopped one either, needs it.",
    {
        "unused": ProblemWords(
            sentence=(
                "No handler parks for {delay} any more, and {tier!r} holds {records}: they run when they "
                "are due. Delete the topic when it is empty."
            ),
            what="No handler parks in {tier!r} any more",
            do="delete the topic when it is empty",
            of="records",
        ),
        "abandoned": ProblemWords(
            sentence=(
                "{tier!r} holds {records} of {topic!r}, which no handler names any more: they stay there. "
                "Start the application that handles that topic, or deploy its handlers again. The records "
                "may be those of another application in this group that is stopped now: give it its own "
                "BRIDGE_GROUP, and delete nothing."
            ),
            what="{tier!r} belongs to a topic that no handler names",
            do="start the application that handles that topic, or give another one its own BRIDGE_GROUP",
            of="records",
        ),
    },
    unalerted="nothing fails: the records run when they are due",
)

TOPIC_DYING: Final = ProblemRow(
    "dying",
    "topic_dying",
    "A topic is paused because too many of its deliveries died within a minute.",
    "Fix the cause; `bridge halt TOPIC` stops it until then.",
    ProblemWords(
        sentence=(
            "Topic {topic!r} is paused, {began}: too many of its deliveries died within a minute "
            "(kafka_pause_dead_letters_a_minute). It resumes by itself, and pauses again if deliveries "
            "still die: see the dead letters below and fix the cause; `bridge halt {topic}` stops it until "
            "then."
        ),
        what="Topic {topic!r} is paused: too many of its deliveries die",
        do="fix the cause; `bridge halt {topic}` stops it until then",
    ),
    STOPS_ALL,
    (
        AlertRule(
            "TooManyDie",
            f'max by (topic) (bridge_partition_paused{{reason=~"{PauseReason.DEAD_LETTERS} .*"}}) > 0',
            "{{ $labels.topic }} is paused: {{ $labels.reason }}",
        ),
    ),
    causes=(
        KnownCause("handler_failing", "topic"),
        KnownCause("deliveries_dead", "topic"),
        KnownCause("failure_group_grows", "topic"),
    ),
)

PARTITIONS_PAUSED: Final = ProblemRow(
    "paused",
    pause_reasons.PARTITIONS_PAUSED,
    "Partitions have been paused for over a minute.",
    "Act on the reason in the sentence: the table below has each.",
    ProblemWords(
        sentence="{paused}, {began}: {why}{length}. {resumes} when the cause ends; {advice}. ({places})",
        what="{paused}: {why}",
        do="{advice}",
        of="partitions",
    ),
    None,
    (
        AlertRule(
            "PausedForLong",
            "time() - min by (topic, reason) (bridge_partition_paused_since_seconds"
            f'{{reason!~"{_EXPECTED_PAUSES}"}}) > 1800'
            f" {UNLESS_DOWN}",
            "{{ $labels.topic }} is paused: {{ $labels.reason }}",
        ),
    ),
    period="after 1 minute",
    causes=(
        KnownCause("workers_down", "queue"),
        KnownCause("workers_too_slow", "queue"),
        KnownCause("handlers_hang", "topic"),
    ),
)

TRANSACTION_OPEN: Final = ProblemRow(
    "transaction",
    "transaction_open",
    "Kafka returns no records from the beginning of a transaction on that has been open for over 90 s.",
    "`kafka-transactions.sh find-hanging` names its producer, `kafka-transactions.sh abort` ends it.",
    ProblemWords(
        sentence=(
            "An open transaction holds back topic {topic!r}, {began}: Kafka withholds {records}, the "
            "transaction's own among them ({places}). {advice}."
        ),
        what="An open transaction holds back {topic!r}",
        do="`kafka-transactions.sh find-hanging`, then `abort`",
        of="records",
    ),
    None,
    (make_bridge_alert("transaction_open", "ATransactionStaysOpen", "an open transaction holds back a topic"),),
    period="after 90 s without a record although Kafka has more",
)

CONSUMER_LAG: Final = ProblemRow(
    "behind",
    "consumer_lag",
    "Consumer lag has grown for five minutes: bridges read less than is written.",
    "Add workers if a queue is long, else bridges.",
    ProblemWords(
        sentence=(
            "{what}, {began}: {records} not read yet, more with every minute ({places}). Add workers if a "
            "queue is long, else bridges ({running} run; up to one for each partition helps)."
        ),
        what="Consumer lag grows on {topic!r}",
        do="add workers if a queue is long, else bridges",
        of="records",
    ),
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
    causes=(
        KnownCause("topic_dying", "topic"),
        KnownCause("partitions_paused", "topic"),
        KnownCause("handlers_hang", "topic"),
        KnownCause("bridge_lost"),
    ),
)

TRAFFIC_STOPPED: Final = ProblemRow(
    "quiet",
    "traffic_stopped",
    "No records arrive on a topic that had some in nearly every minute of the last hour.",
    "Check its producers.",
    ProblemWords(
        sentence=(
            "{what}, {began}: in the hour before, a typical minute had {usual}. Check its producers; shown "
            "for ten minutes."
        ),
        what="No records arrive on topic {topic!r}",
        do="check its producers",
        of="records",
    ),
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
)
