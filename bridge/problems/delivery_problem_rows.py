"""The problems of deliveries that wait for others of their key, fail or are dead: rows of the table of problems."""

from typing import Final

from bridge.problems.problem_row import OTHERS, STOPS_ALL, AlertRule, KnownCause, ProblemRow, ProblemWords

KEY_HOT: Final = ProblemRow(
    "hot key",
    "key_hot",
    "For a minute, most waiting deliveries of a partition of an ordered topic have had the same key.",
    "Make that key's deliveries faster, or spread it over several keys: a key runs one delivery at a time.",
    ProblemWords(
        sentence=(
            "{deliveries} for others of their key on {partition}, {began}: the key of record "
            "{partition}-{offset}. A key runs one delivery at a time, so more workers do not help: make its "
            "deliveries faster, or spread it over several keys."
        ),
        what="{handler!r} has a hot key on {partition}",
        do="make that key's deliveries faster, or spread it over several keys",
        of="deliveries",
    ),
    None,
    period="after 1 minute",
    unalerted="no metric has a key; if records pile up, `ConsumptionFallsBehind` fires",
)

KEYS_HELD: Final = ProblemRow(
    "dead holds",
    "keys_held",
    'Dead letters of a topic with `after_dead="hold"` hold the deliveries behind them in their order.',
    "Fix the cause, then replay or discard the dead letters.",
    ProblemWords(
        sentence=(
            "{dead} of {handler!r} on {topic!r} {hold} the order, {began}: {behind} behind. The first is {first}. Fix "
            "the cause, then replay or discard the dead letters: those behind then go out in their order."
        ),
        what="Dead deliveries of {handler!r} hold the order on {topic!r}",
        do="fix the cause, then replay or discard the dead letters",
        of="deliveries",
    ),
    alerts=(
        AlertRule(
            "DeadLettersHoldTheirKeys",
            "sum by (topic, handler) (bridge_dead_holds) > 0",
            "{{ $value }} dead deliveries of {{ $labels.handler }} hold the order on {{ $labels.topic }}; "
            "replay or discard them",
            "5m",
        ),
    ),
    causes=(
        KnownCause("handler_failing", "handler"),
        KnownCause("deliveries_dead", "handler"),
        KnownCause("failure_group_grows", "handler"),
    ),
)

HANDLER_FAILING: Final = ProblemRow(
    "failing",
    "handler_failing",
    "Attempts of a handler fail: all of them, one in twenty or more, or deliveries wait long for a retry or for the "
    "schema registry.",
    "Fix the cause: deliveries that wait for a retry run again. Replay those that are dead.",
    {
        "all": ProblemWords(
            sentence=(
                "{what}, {began}: {attempts} failed, and none has succeeded since then{waits}; the last "
                "error: {error}. {advice}"
            ),
            what="Every attempt of {handler} fails",
            do="{remedy}",
            of="attempts",
        ),
        "some": ProblemWords(
            sentence=(
                "{what}, {began}: {failed} of the last {attempts} ({share}){waits}; the last error: {error}. {advice}"
            ),
            what="Attempts of {handler} fail",
            do="{remedy}",
            of="attempts",
        ),
        "waiting": ProblemWords(
            sentence=(
                "{deliveries} of {handler} failed and wait for a retry, the first {began}; the last error: "
                "{error}. {advice}"
            ),
            what="Deliveries of {handler} fail and wait for a retry",
            do="fix the cause: the deliveries run again",
            of="deliveries",
        ),
        "registry": ProblemWords(
            sentence=(
                "Deliveries of {handler} cannot be decoded, {began}: {error}. {deliveries} for it. None is lost and no "
                "attempt is spent: they run again by themselves, until `give_up_after` if the handler has it. Restore "
                "the schema registry, or correct SCHEMA_REGISTRY_…"
            ),
            what="Deliveries of {handler} wait for the schema registry",
            do="restore the schema registry, or correct SCHEMA_REGISTRY_…: the deliveries run again",
            of="deliveries",
        ),
    },
    STOPS_ALL,
    (
        AlertRule(
            "AHandlerFails",
            'sum by (handler) (rate(worker_retried_total{reason=~"failed|registry"}[5m]))'
            ' > sum by (handler) (rate(worker_handled_total{outcome="done"}[5m]))',
            "{{ $labels.handler }}: more runs fail, or wait for the schema registry, than succeed; see bridge status",
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
        "failures on; else when 100 deliveries wait for a retry, or one has waited for 5 minutes, or for 15 s for the "
        "schema registry"
    ),
    causes=(KnownCause("dependency_down", "handler"),),
)

PROCESSES_LOST: Final = ProblemRow(
    "processes lost",
    "processes_lost",
    "Worker processes die with a handler's deliveries (out of memory, a crash, a hard time limit).",
    "See the workers' log and the memory limit; a delivery that takes three processes is a dead letter (`poison`).",
    ProblemWords(
        sentence=(
            "Worker processes die with deliveries of {topic!r} to {handler}, {began}: {lost_processes} of "
            "them, the last at {last}. See the workers' log (out of memory, a crash, a hard time limit); a "
            "delivery that takes three processes is a dead letter (poison)."
        ),
        what="Worker processes die with deliveries of {handler}",
        do="see the workers' log",
        of="processes",
    ),
    None,
    (
        AlertRule(
            "ProcessesAreLost",
            "sum by (handler) (increase(worker_lost_processes_total[10m])) > 0",
            "{{ $labels.handler }}: {{ $value }} worker processes died with its deliveries",
        ),
    ),
    period="at the third process within 10 minutes",
)

DEAD_LETTERS_REFUSED: Final = ProblemRow(
    "unpublished",
    "dead_letters_refused",
    "Kafka does not take dead letters; they wait in the broker and are tried again.",
    "See the workers' log, and the dead-letter topic.",
    ProblemWords(
        sentence=(
            "Kafka does not take the dead letters of {deliveries} of {handler}, {began}: {error}. They are "
            "tried again. See the workers' log, and the topic of the dead letters."
        ),
        what="Kafka does not take the dead letters of {handler}",
        do="see the workers' log, and the topic of the dead letters",
        of="deliveries",
    ),
    OTHERS,
    (
        AlertRule(
            "DeadLettersCannotBeWritten",
            'sum by (handler) (increase(worker_retried_total{reason="dead_letter_unpublished"}[10m])) > 0',
            "{{ $labels.handler }}: Kafka does not take dead letters",
            "2m",
        ),
    ),
)

DELIVERIES_DEAD: Final = ProblemRow(
    "dead",
    "deliveries_dead",
    "Deliveries are dead, and nobody has replayed or discarded them.",
    "Fix the cause, then replay or discard them.",
    ProblemWords(
        sentence=(
            "{deliveries} dead, {began}; the last: {reason}, {error}. They are in {dead_letter_topic!r}: "
            "fix the cause, then replay or discard them."
        ),
        what="Deliveries of {handler} are dead",
        do="fix the cause, then replay or discard them",
        of="deliveries",
    ),
    OTHERS,
    (
        AlertRule(
            "DeliveriesDie",
            "sum by (handler, reason) (increase(worker_dead_lettered_total[10m])) > 0",
            "{{ $labels.handler }}: {{ $value }} dead ({{ $labels.reason }})",
        ),
    ),
    causes=(
        KnownCause("handler_failing", "handler"),
        KnownCause("processes_lost", "handler"),
        KnownCause("deliveries_dead", "handler"),
    ),
)
