"""The problems of the servers, of halts, policies and breakers, and of bridges: rows of the table of problems."""

from typing import Final

from bridge.problems.problem_row import (
    OTHERS,
    STOPS_ALL,
    AlertRule,
    KnownCause,
    ProblemRow,
    ProblemWords,
    make_bridge_alert,
)

SERVER_UNAVAILABLE: Final = ProblemRow(
    "silent",
    "server_unavailable",
    "Kafka, Redis or the Celery broker does not answer.",
    "Start it, or fix the network or the address.",
    ProblemWords(
        sentence="{fault}",
        what="{short}",
        do="start it, or fix the network",
    ),
    STOPS_ALL,
    unalerted="bridges without a server are not ready, and `NoBridgeConsumes` fires",
)

REDIS_MEMORY_OR_DISK: Final = ProblemRow(
    "redis",
    "redis_memory_or_disk",
    "A Redis is full or nearly full, or does not write its data to disk.",
    "Raise its maxmemory, let workers empty the queues, or see its log and its disk.",
    {
        "full": ProblemWords(
            sentence=(
                "{what}{began}: {used}. {blocked}Nothing more is handed off, nothing is lost. "
                "{unlisted}Raise its maxmemory, or let workers empty the queues."
            ),
            what="Redis at {where} is full",
            do="raise its maxmemory",
            of="bytes",
        ),
        "nearly full": ProblemWords(
            sentence=(
                "{what}: {used} of {allowed} bytes (maxmemory). Raise its maxmemory, or let workers empty the queues."
            ),
            what="Redis at {where} is nearly full",
            do="raise its maxmemory",
            of="bytes",
        ),
        "evicts": ProblemWords(
            sentence=(
                "{what} (maxmemory-policy {policy}), fates among them: {evicted} gone since its start. "
                "Finished deliveries may run again, queued ones may be lost. Set maxmemory-policy "
                "noeviction, then `bridge audit TOPIC` counts what was evicted."
            ),
            what="Redis at {where} evicts keys when it is full",
            do="set maxmemory-policy noeviction",
            of="keys",
        ),
        "disk": ProblemWords(
            sentence="{what}{began}: {fault}{unsaved}. See its log and its disk.",
            what="Redis at {where} does not write its data to disk",
            do="see its log and its disk",
            of="changes",
        ),
    },
    STOPS_ALL,
    unalerted="Redis's own metrics have it; when Redis is full, bridges are not ready, and `NoBridgeConsumes` fires",
)

TOPIC_HALTED: Final = ProblemRow(
    "halted",
    "topic_halted",
    "A person or a handler has halted a topic.",
    "Fix the cause, then `bridge resume TOPIC`.",
    ProblemWords(
        sentence=(
            "{what}, {began}, by {by}: {why}.{waiting} Fix the cause, then `bridge resume {topic}`: it "
            "continues exactly where it stopped.{record}"
        ),
        what="Topic {topic!r} is halted",
        do="fix the cause, then `bridge resume {topic}`",
        of="records",
    ),
    STOPS_ALL,
    (
        AlertRule(
            "ATopicIsHalted",
            "max by (topic) (bridge_halted) > 0",
            "{{ $labels.topic }} is halted; bridge status says why, bridge resume ends the halt",
        ),
    ),
)

HANDLER_HALTED: Final = ProblemRow(
    "held",
    "handler_halted",
    "A person has halted a handler of a topic, or one key of it.",
    "Fix the cause, then `bridge resume TOPIC --handler HANDLER [--key KEY]`.",
    ProblemWords(
        sentence=(
            "{subject}{comma} is halted, {began}, by {by}: {why}.{waiting}{others} Fix the cause, "
            "then `bridge resume {arguments}`: it continues exactly where it stopped."
        ),
        what="{subject} is halted",
        do="fix the cause, then `bridge resume {arguments}`",
        of="deliveries",
    ),
    STOPS_ALL,
    (
        AlertRule(
            "AHandlerIsHalted",
            "max by (topic, handler) (bridge_handler_halted + bridge_keys_halted) > 0",
            "{{ $labels.handler }}, or a key of it, is halted on {{ $labels.topic }}; bridge status says why, "
            "bridge resume ends the halt",
        ),
    ),
)

POLICY_NOT_IN_FORCE: Final = ProblemRow(
    "policy",
    "policy_not_in_force",
    "A changed policy does not fit the handler's code, so the code's policy is in force.",
    "Set it again, or unset it (`bridge policy`).",
    ProblemWords(
        sentence="The policy of {handler} was {changes}, but its code's is in force: {fault}",
        what="The changed policy of {handler} is not in force",
        do="set it again, or `bridge policy unset {handler}`",
    ),
    unalerted="no metric has it; a deployment causes it, and `bridge status` says it after one",
)

DEPENDENCY_DOWN: Final = ProblemRow(
    "breaker",
    "dependency_down",
    "A circuit breaker is open: deliveries that need the dependency fail.",
    "Restore the dependency: the deliveries then run by themselves.",
    ProblemWords(
        sentence=(
            "{what}, {began}: {why}.{waiting} Deliveries that need it ({needing}) wait, spend no attempt, "
            "and run by themselves once it works again: restore it. {trials}If it works, and the waiting "
            "deliveries are broken: `bridge policy set {example} dead_letter_for=ITS_ERROR --why …` makes "
            "them dead letters."
        ),
        what="The circuit breaker of {dependency!r} is open",
        do="restore the dependency",
        of="deliveries",
    ),
    STOPS_ALL,
    (
        AlertRule(
            "WhatHandlersNeedIsDown",
            "max by (dependency) (bridge_breaker_open) > 0",
            "the circuit breaker of {{ $labels.dependency }} is open; deliveries that need it wait",
            "2m",
        ),
    ),
)

DEPENDENCY_UNNAMED: Final = ProblemRow(
    "unnamed",
    "dependency_unnamed",
    "Messages wait for a dependency that no handler names any more.",
    "Restart the bridges.",
    ProblemWords(
        sentence=(
            "{what}; waiting for it: {waiting}. Bridges with these handlers release that within seconds: "
            "restart the bridges if this does not pass."
        ),
        what="No handler here names the dependency {dependency!r}",
        do="restart the bridges",
        of="deliveries",
    ),
    unalerted="no metric has it; bridges release the messages within seconds",
)

BRIDGES_DOWN: Final = ProblemRow(
    "no bridge",
    "bridges_down",
    "No bridge of the group runs.",
    "Start `bridge run`.",
    ProblemWords(
        sentence="{what}, {began}: {waiting}{late}. Start `bridge run`.",
        what="No bridge of group {bridge_group!r} runs",
        do="start `bridge run`",
        of="records",
    ),
    STOPS_ALL,
    (
        AlertRule(
            "NoBridgeRuns",
            "absent(bridge_ready)",
            "no bridge runs, or Prometheus scrapes none; see bridge status",
            "1m",
        ),
    ),
)

BRIDGE_LOST: Final = ProblemRow(
    "bridge lost",
    "bridge_lost",
    "A bridge ended without a shutdown, and no other took its place; or bridges die again and again.",
    "See its log and why it ended, and start it again.",
    ProblemWords(
        sentence=(
            "{what}, {began}: the last was {last}; {running} run. The others have its partitions. See its "
            "log and why it ended (killed, frozen, out of memory), and start it again; shown for an hour."
        ),
        what="{losses}",
        do="see its log, and start it again",
        of="bridges",
    ),
    OTHERS,
    (
        make_bridge_alert(
            "bridge_lost", "ABridgeIsLost", "a bridge ended without a shutdown, or bridges die again and again"
        ),
    ),
)

TOPIC_NOT_CONSUMED: Final = ProblemRow(
    "not consumed",
    "topic_not_consumed",
    "No bridge consumes a topic that has a handler here.",
    "Restart the bridges with the handlers that are here.",
    ProblemWords(
        sentence=(
            "No bridge of group {bridge_group!r} consumes topic {topic!r}{began}, though it has a handler "
            "here: {waiting}. Restart the bridges with the handlers that are here."
        ),
        what="No bridge consumes topic {topic!r}",
        do="restart the bridges with the handlers that are here",
        of="records",
    ),
    unalerted="no metric has it: a topic that no bridge consumes has no series",
)

PARTITION_UNASSIGNED: Final = ProblemRow(
    "unassigned",
    "partition_unassigned",
    "No bridge has had a partition for 30 s.",
    "If it does not pass, restart the bridges and see their logs.",
    ProblemWords(
        sentence=(
            "{what}{began}: {waiting} of the topic wait. If it does not pass in a minute, restart the "
            "bridges and see their logs."
        ),
        what="No bridge has partition {partitions} of {topic!r}",
        do="restart the bridges if it does not pass",
        of="records",
    ),
    unalerted="no metric has it: a partition that no bridge has has no series",
    causes=(
        KnownCause("topic_not_consumed", "topic"),
        KnownCause("bridge_blocked"),
    ),
)

GROUP_DIVIDED: Final = ProblemRow(
    "divided",
    "group_divided",
    "Bridges of one group have different handlers for a topic, or another application uses the group.",
    "Start all bridges of the group with the same handlers, or give the other application its own BRIDGE_GROUP.",
    {
        "application": ProblemWords(
            sentence=(
                "{what}{began}: {processes} with {names}, and no handler of this one. Each treats the "
                "other's tasks as those of unknown handlers, and the other's retry topics as abandoned. "
                "Give each application its own BRIDGE_GROUP, and delete no topic. If the other is an older "
                "version of this one, stop it."
            ),
            what="Another application uses the group {bridge_group!r}",
            do="give each application its own BRIDGE_GROUP",
            of="processes",
        ),
        "member": ProblemWords(
            sentence=(
                "{what}: a member that is no bridge of this Redis consumes {topics}. Give each application "
                "its own BRIDGE_GROUP, and delete no topic."
            ),
            what="Another application uses the group {bridge_group!r}",
            do="give each application its own BRIDGE_GROUP",
            of="topics",
        ),
        "handlers": ProblemWords(
            sentence=(
                "{what}, {bridge_group!r}{began}: {names}. Each gets only the partitions of its own "
                "bridges. Is one another application? Give it its own BRIDGE_GROUP; else start all bridges "
                "of the group with the same handlers."
            ),
            what="Topic {topic!r} has different handlers in one group",
            do="start all bridges with the same handlers",
            of="bridges",
        ),
    },
    OTHERS,
    # Both sides of a rolling deploy may run for some minutes.
    (make_bridge_alert("group_divided", "AGroupIsDivided", "the members of a group have different handlers", "10m"),),
)

BRIDGE_BLOCKED: Final = ProblemRow(
    "obstacle",
    "bridge_blocked",
    "Bridges consume nothing, for a reason that they name.",
    "Fix the cause that the sentence names: the bridges continue by themselves.",
    ProblemWords(
        sentence="{what}, {began}: {obstacle}. They continue by themselves when that is fixed.",
        what="{bridges} nothing",
        do="fix that; the bridges continue by themselves",
        of="bridges",
    ),
    STOPS_ALL,
    (
        AlertRule(
            "NoBridgeConsumes",
            "sum by (namespace, job) (bridge_ready) < 1",
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
    causes=(KnownCause("server_unavailable"),),
)
