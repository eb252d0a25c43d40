"""The problems of workers and hosts: rows of the table of problems."""

from typing import Final

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

WORKERS_DOWN: Final = ProblemRow(
    "no worker",
    "workers_down",
    "No worker consumes a queue.",
    "Start workers for it.",
    ProblemWords(
        sentence="{what}, {began}: {waiting}{safe}. Start one: {start}, or with -Q {queue}.",
        what="No worker consumes queue {queue!r}",
        do="start `{start}`",
        of="messages",
    ),
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
)

HANDLER_UNKNOWN: Final = ProblemRow(
    "unknown handler",
    "handler_unknown",
    "Workers consume the handler's queue, and none of them knows the handler.",
    "Deploy it to the workers, or see their HANDLERS and `imports`.",
    ProblemWords(
        sentence=(
            "{what}, {began}: {workers} consume its queue {queue!r}; {waiting}. Deploy it to the workers, "
            "or see their HANDLERS and `imports`."
        ),
        what="No worker knows handler {handler}",
        do="deploy it to the workers",
        of="messages",
    ),
    STOPS_ALL,
    (make_bridge_alert("handler_unknown", "NoWorkerKnowsAHandler", "no worker knows a handler"),),
)

HANDLERS_DIFFER: Final = ProblemRow(
    "known to some",
    "handlers_differ",
    "Some workers of a queue do not know a handler.",
    "Deploy the same handlers to all workers of the queue.",
    ProblemWords(
        sentence=(
            "{counted} not know handler {handler}{began}: {workers}. Its deliveries wait for a worker that "
            "does. Deploy the same handlers to all of them."
        ),
        what="{share} not know {handler}",
        do="deploy the same handlers to all workers of the queue",
        of="workers",
    ),
    unalerted="no metric has it; if no worker knows the handler, `NoWorkerKnowsAHandler` fires",
)

HANDLERS_HANG: Final = ProblemRow(
    "hung",
    "handlers_hang",
    "Processes run a delivery far longer than the handler usually takes, and none of its deliveries finishes.",
    "See what the process waits for (py-spy dump), set a time_limit, restart the worker: its deliveries run again.",
    ProblemWords(
        sentence=(
            "{what}, {began}: {processes} a delivery of it for over {limit}, the oldest {oldest}; {ended}. "
            "See what it waits for (`py-spy dump --pid {pid}`), give it a time_limit, and restart the "
            "worker: its deliveries run again."
        ),
        what="Handler {handler} hangs",
        do="see what process {pid} waits for, give the handler a time_limit, restart the worker",
        of="processes",
    ),
    OTHERS,
    (
        make_bridge_alert("handlers_hang", "HandlersHang", "handlers hang"),
        AlertRule(
            "DeliveriesTakeTooLong",
            "label_replace(max by (topic, handler) (bridge_oldest_delivery_seconds),"
            ' "source", "$1", "topic", "(.+?)([.]retry[.].+|[.]replay)?") > 900'
            ' unless on (source) label_replace(max by (topic) (bridge_halted) > 0, "source", "$1", "topic", "(.+)")'
            " unless on (source, handler) label_replace(max by (topic, handler)"
            ' (bridge_handler_halted + bridge_keys_halted) > 0, "source", "$1", "topic", "(.+)")'
            f" {UNLESS_DOWN}",
            "{{ $labels.handler }}: a delivery has been in flight for {{ $value }} s",
            "2m",
        ),
    ),
)

WORKERS_TOO_SLOW: Final = ProblemRow(
    "slow workers",
    "workers_too_slow",
    "The backlog of a queue is over a minute of work for its workers, and grows.",
    "Start the number of processes that the sentence names.",
    ProblemWords(
        sentence=(
            "{what}, {began}: {deliveries} {work} of work for their {processes}, and that grows by {growth} "
            "a minute. Start {needed} to keep up, and more to catch up."
        ),
        what="The workers of queue {queue!r} are too slow",
        do="start {needed}",
        of="deliveries",
    ),
    OTHERS,
    (make_bridge_alert("workers_too_slow", "WorkersAreTooSlow", "the workers of a queue do not keep up"),),
    causes=(KnownCause("handlers_hang", "queue"),),
)

CLOCK_SKEW: Final = ProblemRow(
    "clock",
    "clock_skew",
    "The clock of a bridge's or worker's host differs from that of Redis by over 5 s.",
    "Synchronise the host's clock (NTP).",
    ProblemWords(
        sentence=(
            "The clock of host {host!r} is {skew} that of Redis, seen {began}, by {processes}. Time budgets "
            "(give_up_after) and the times of failures depend on it: synchronise it (NTP)."
        ),
        what="The clock of host {host!r} is wrong",
        do="synchronise it (NTP)",
        of="processes",
    ),
    OTHERS,
    (make_bridge_alert("clock_skew", "AClockIsWrong", "a host's clock is wrong"),),
)
