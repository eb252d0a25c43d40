"""The problems of the dead-letter store, its recorders, plans and webhooks: rows of the table of problems."""

from typing import Final

from bridge.problems.problem_row import OTHERS, AlertRule, KnownCause, ProblemRow, ProblemWords

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

PLAN_AWAITS_APPROVAL: Final = ProblemRow(
    "approval",
    "plan_awaits_approval",
    "A bulk action on dead letters awaits a second person (DEADLETTERS_APPROVAL_ABOVE).",
    "Somebody other than its planner approves or rejects it (`bridge deadletters plans`).",
    {
        "plan": ProblemWords(
            sentence=(
                "{what}, {began}: {action} of {deliveries}, of which nothing is done before. Somebody else approves it "
                "(`bridge deadletters plans apply {plan}`) or rejects it (`bridge deadletters plans stop {plan}`)."
            ),
            what="Plan {plan} of {planner} awaits a second person",
            do="approve or reject it: `bridge deadletters plans show {plan}`",
            of="deliveries",
        ),
        "more plans": ProblemWords(
            sentence="{plans} a second person, the first {began}: `bridge deadletters plans` lists them.",
            what="More plans await a second person",
            do="approve or reject them: `bridge deadletters plans`",
            of="plans",
        ),
    },
    OTHERS,
    (
        AlertRule(
            "APlanAwaitsApproval",
            "max(bridge_deadletters_plans_awaiting) > 0",
            "{{ $value }} plans await a second person; bridge deadletters plans",
            "10m",
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
    causes=(
        KnownCause("handler_failing", "handler"),
        KnownCause("deliveries_dead", "handler"),
        KnownCause("failure_group_grows", "handler"),
    ),
    several="{number} groups of dead letters of {handler} grow",
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
