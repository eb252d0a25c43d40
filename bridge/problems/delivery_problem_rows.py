"""The problems of deliveries that wait for others of their key, fail or are dead, and of the dead-letter store: rows of
the table of problems.
"""

from typing import Final

from bridge.problems.problem_row import OTHERS, STOPS_ALL, AlertRule, ProblemRow, ProblemWords

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
)

HANDLER_FAILING: Final = ProblemRow(
    "failing",
    "handler_failing",
    "Attempts of a handler fail: all of them, one in twenty or more, or deliveries wait long for a retry.",
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
    },
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
)

DEAD_LETTER_STORE_UNAVAILABLE: Final = ProblemRow(
    "desk",
    "dead_letter_store_unavailable",
    "The database of the dead letters does not answer, or has another version.",
    "Start it, or bring it to this version (`bridge deadletters migrate`).",
    ProblemWords(
        sentence="{fault}",
        what="The dead letters' database cannot be asked",
        do="as it says",
    ),
    unalerted="the recorder is not ready, and `NobodyRecordsDeadLetters` fires",
)

DEAD_LETTERS_MISSED: Final = ProblemRow(
    "missed",
    "dead_letters_missed",
    "Kafka dropped dead letters before they were recorded.",
    "Raise the retention of the dead-letter topic, and keep the recorder running.",
    ProblemWords(
        sentence=(
            "{records} dropped by Kafka before they were recorded, found {found}. Raise the topic's "
            "retention (retention.ms), and keep `bridge deadletters record` running; `bridge audit` counts "
            "what is dead by the ledger."
        ),
        what="Dead letters of {dead_letter_topic} were dropped before they were recorded",
        do="raise the topic's retention (retention.ms)",
        of="records",
    ),
    OTHERS,
    (
        AlertRule(
            "DeadLettersWereMissed",
            "increase(bridge_deadletters_missed_total[1h]) > 0",
            "{{ $labels.topic }}: {{ $value }} dead letters were dropped by Kafka before they were recorded",
        ),
    ),
)

RECORDER_DOWN: Final = ProblemRow(
    "recorder",
    "recorder_down",
    "The recorder of the dead letters has stopped, or it lags behind.",
    "Start `bridge deadletters record`.",
    {
        "gone": ProblemWords(
            sentence=(
                "{what}, {began}: {unrecorded}, webhooks send nothing, and no plan is resumed. Start "
                "`bridge deadletters record`, or see its log; if none is to run any more, say so: `bridge "
                "deadletters record --no-more`."
            ),
            what="No recorder of dead letters runs",
            do="start `bridge deadletters record`",
            of="records",
        ),
        "lag": ProblemWords(
            sentence=(
                "{unrecorded} not in the dead letters' database yet, {began}: start `bridge deadletters "
                "record`, or see its log and its /readyz."
            ),
            what="Dead letters of {dead_letter_topic} are not in the dead-letter store yet",
            do="start `bridge deadletters record`",
            of="records",
        ),
    },
    OTHERS,
    (
        AlertRule(
            "NobodyRecordsDeadLetters",
            "max by (namespace, job) (bridge_deadletters_recorder_ready) < 1 "
            "or absent(bridge_deadletters_recorder_ready)",
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
)

REPLAY_OUTCOME_UNKNOWN: Final = ProblemRow(
    "unknown ends",
    "replay_outcome_unknown",
    "It is unknown whether replayed letters ran: Redis or the replay topic lost their outcome.",
    "Find out where the handler writes, then resolve what ran and open what did not "
    "(`bridge deadletters resolve`, `reopen`).",
    ProblemWords(
        sentence=(
            "{letters} sent back, and whether the handler ran is not known, {began}. Find out where it "
            "writes; `bridge deadletters list --status replaying` lists {them}, `bridge deadletters resolve "
            "ID --why …` resolves what ran, `reopen` opens what did not run."
        ),
        what="Nobody can tell whether replayed letters ran",
        do="find out whether they ran, then resolve those that did and open those that did not",
        of="letters",
    ),
    OTHERS,
    (
        AlertRule(
            "ReplaysEndUnknown",
            'sum(increase(bridge_deadletters_replays_total{outcome="unknown"}[15m])) > 0',
            "the outcome of {{ $value }} replayed letters is unknown; see bridge status",
        ),
    ),
)

FAILURE_GROUP_GROWS: Final = ProblemRow(
    "grows",
    "failure_group_grows",
    "A group of dead letters grows.",
    "See the group, fix the cause, then replay it.",
    {
        "group": ProblemWords(
            sentence=(
                "{failures} of {name}, {began}; {usual} an hour were usual, {still_open} are open. `bridge "
                "deadletters list --group {group}` shows them; fix the cause, then `bridge deadletters "
                "replay --group {group}`."
            ),
            what="Group {group} grows: {name}",
            do="fix the cause, then replay them",
            of="open letters",
        ),
        "more groups": ProblemWords(
            sentence="{groups}, the first {began}: `bridge deadletters groups` lists them.",
            what="More groups of dead letters grow",
            do="look at the groups",
            of="groups",
        ),
    },
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
)

WEBHOOK_FAILING: Final = ProblemRow(
    "webhook",
    "webhook_failing",
    "A webhook's receiver refuses notifications, or does not answer.",
    "Check the receiver and its address (`bridge deadletters webhooks`).",
    {
        "switched off": ProblemWords(
            sentence="{what}, {began}: {why}. Fix its receiver and switch it on, or remove it.",
            what="The webhook {webhook} was switched off",
            do="fix its receiver and switch it on, or remove it",
            of="messages",
        ),
        "refuses": ProblemWords(
            sentence=(
                "{what}, {began}: {waiting}. `bridge deadletters webhooks` shows what was said; fix its "
                "receiver, or switch it off."
            ),
            what="The webhook {webhook} refuses events or does not answer",
            do="fix its receiver, or switch it off",
            of="messages",
        ),
        "not sent": ProblemWords(
            sentence="{what}, {began}: {waiting}. Start `bridge deadletters record`, which sends them.",
            what="Nothing is sent to the webhook {webhook}",
            do="start `bridge deadletters record`",
            of="messages",
        ),
        "given up": ProblemWords(
            sentence=(
                "The webhook {webhook} did not accept {events}; {last} was given up {given_up}. `bridge "
                "deadletters webhooks` shows what was said."
            ),
            what="The webhook {webhook} did not accept all events",
            do="see what was said: `bridge deadletters webhooks`",
            of="messages",
        ),
    },
    alerts=(
        AlertRule(
            "AWebhookIsBehind",
            "max by (webhook) (bridge_deadletters_webhook_oldest_waiting_seconds) > 600",
            "{{ $labels.webhook }}: a message has waited to be sent for {{ $value }} s; bridge deadletters webhooks",
            "5m",
        ),
        AlertRule(
            "AWebhookGaveUp",
            'max by (webhook) (delta(bridge_deadletters_webhook_deliveries{state="given up"}[1h])) > 0',
            "{{ $labels.webhook }}: messages were given up; bridge deadletters webhooks",
        ),
    ),
)
