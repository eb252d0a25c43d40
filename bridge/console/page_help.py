"""The help of each page: the question that it answers, its words, and its section of the documentation."""

from collections.abc import Mapping
from typing import Final, NamedTuple

_CONSOLE: Final = "docs/how-to/console.md"
_DELIVERY: Final = "One record for one handler; it keeps its name through every retry, dead letter and replay."
_LETTER: Final = "A dead letter: a delivery that is not retried automatically any more."
_GROUP: Final = "A failure group: the letters of one handler that fail with the same exception at the same place."
_PLAN: Final = "An action on many letters that is previewed first and does nothing before it is applied."
_HALT: Final = "A topic, handler or key is not consumed until a person resumes it; its records wait, and none is lost."
_LAG: Final = "Records between the committed offset and the end of the topic."
_PARKED: Final = "A delivery that waits for its retry in a retry topic."
_FATE: Final = "The state of a delivery: open, handed, done, parked, dead or discarded."
_MASK: Final = "A field that is hidden from your role; it is sent on unchanged."


class PageHelp(NamedTuple):
    """The help of a page.

    Attributes:
        answers: one to three sentences: what the page answers, and what can be done on it.
        words: the words that it uses, with their meanings.
        docs: the file of the documentation, with the section.
    """

    answers: str
    words: Mapping[str, str]
    docs: str


#: The help by the path of the page's route. A form's route has the help of the page that it belongs to.
PAGE_HELP: Final[Mapping[str, PageHelp]] = {
    "/": PageHelp(
        "The problems that need a person, each cause once: since when, and what fixes it. Below is the state of "
        "each topic and handler.",
        {"Lag": _LAG, "Parked": _PARKED, "Dead": _LETTER, "In flight": "A delivery that a worker has."},
        f"{_CONSOLE}#overview",
    ),
    "/topics/{topic}": PageHelp(
        "The state of one topic: its partitions, what blocks them, its retry topics, its handlers, and who halted it.",
        {"Lag": _LAG, "Halted": _HALT, "Paused": "The bridge does not read a partition for a while, by itself."},
        f"{_CONSOLE}#one-topic-one-handler",
    ),
    "/topics/{topic}/halt": PageHelp(
        "Stop consuming this topic, or one handler or key of it. Running deliveries finish; the others wait and use no "
        "attempt.",
        {"Halt": _HALT, "Delivery": _DELIVERY},
        f"{_CONSOLE}#halt-resume-policy",
    ),
    "/topics/{topic}/resume": PageHelp(
        "Go on from exactly where it stopped. Fix the cause first: otherwise the next record fails like the last one.",
        {"Halt": _HALT},
        f"{_CONSOLE}#halt-resume-policy",
    ),
    "/topics/{topic}/records/{partition:int}/{offset:int}": PageHelp(
        "One record as Kafka has it, also if it never failed, and its fate for each handler.",
        {"Fate": _FATE, "Masked": _MASK},
        f"{_CONSOLE}#any-record",
    ),
    "/topics/{topic}/records/{partition:int}/{offset:int}/good": PageHelp(
        "The difference between this record and the last one before it that the handler has done.",
        {"Good": "The ledger has it as done for the handler; older fates than the ledger keeps are not known."},
        f"{_CONSOLE}#any-record",
    ),
    "/handlers/{name}": PageHelp(
        "The state of one handler: its queue, workers, versions, circuit breakers and limits, and its open groups.",
        {
            "Circuit breaker": "Open, it holds deliveries back while what the handler needs is down.",
            "Policy": "The number of retries, their waits, and what becomes a dead letter at once.",
            "Group": _GROUP,
        },
        f"{_CONSOLE}#one-topic-one-handler",
    ),
    "/handlers/{name}/policy": PageHelp(
        "The retry policy of this handler, the changes by people, and what a change would do to its letters. An "
        "option that is unset has the value in the code again.",
        {
            "Policy": "The number of retries, their waits, and what becomes a dead letter at once.",
            "Dead letter": _LETTER,
        },
        f"{_CONSOLE}#halt-resume-policy",
    ),
    "/find": PageHelp(
        "The place and fate of one record or key. The field takes coordinates, a key, a task id, a letter or a plan.",
        {"Fate": _FATE, "Coordinates": "Topic, partition and offset: orders-3-1234."},
        f"{_CONSOLE}#find",
    ),
    "/activity": PageHelp(
        "The acts of people from the audit log, by range of time, person and kind. It counts no deliveries: that "
        "is Audit.",
        {
            "Audit log": "Each act of a person, with its reason; nothing leaves it.",
            "Failed sign-in": "A wrong password, or a refusal by the issuer, with its address.",
        },
        f"{_CONSOLE}#activity",
    ),
    "/audit": PageHelp(
        "The proof that nothing is lost: a count of the fates of every offset, by the ledger. It says nothing "
        "about people: that is Activity.",
        {
            "Unaccounted": "A delivery below the committed offset without a fate: it must be 0.",
            "Ledger": "The store of fates, in Redis.",
            "Fate": _FATE,
        },
        f"{_CONSOLE}#audit",
    ),
    "/groups": PageHelp(
        "The failures, the urgent ones first, each with what to do next.",
        {
            "Group": _GROUP,
            "Cause": "Letters of a group with the same message or the same invalid fields.",
            "Fixed in": "A version from which on the group should not fail; its letters are replayed then.",
        },
        f"{_CONSOLE}#groups",
    ),
    "/groups/fixed": PageHelp(
        "Mark several groups as fixed in one version, all or none. Their letters are replayed once all workers "
        "have that version.",
        {"Group": _GROUP},
        "docs/how-to/fix-dead-letters.md#fixed-in-a-version",
    ),
    "/groups/{id:int}": PageHelp(
        "One failure: since when, in which versions, and what to do next. Distinctive traits compare the failures"
        " with records that were handled.",
        {"Group": _GROUP, "Letter": _LETTER, "Regression": "It failed again, though it was marked as fixed."},
        f"{_CONSOLE}#groups",
    ),
    "/groups/{id:int}/common": PageHelp(
        "The traits that set these letters apart from records that the handler has done: fields, headers, keys, "
        "partitions.",
        {"Share": "Of the failures, of the successes, and of the letters of other groups that have it."},
        f"{_CONSOLE}#groups",
    ),
    "/groups/{id:int}/fixed": PageHelp(
        "Say in which version this is fixed. Its letters are replayed once all workers have that version.",
        {"Group": _GROUP},
        "docs/how-to/fix-dead-letters.md#fixed-in-a-version",
    ),
    "/letters": PageHelp(
        "The dead letters of a filter; the address is the filter. Ticked ones, or all that match, go into a plan.",
        {
            "Letter": _LETTER,
            "Plan": _PLAN,
            "Attempts": "The runs of the handler for it, of all kinds.",
        },
        f"{_CONSOLE}#letters",
    ),
    "/letters/{id:int}": PageHelp(
        "One dead letter: why it failed, its content, its timeline, and what can be done: replay, edit, note.",
        {
            "Replay": "It goes back to the handler that failed, and to no other.",
            "Timeline": "Each attempt and each station, the oldest first.",
            "Masked": _MASK,
        },
        f"{_CONSOLE}#one-letter",
    ),
    "/letters/{id:int}/good": PageHelp(
        "The difference between this letter and the last record before it that the handler has done.",
        {"Good": "The ledger has it as done for the handler; older fates than the ledger keeps are not known."},
        f"{_CONSOLE}#any-record",
    ),
    "/letters/{id:int}/edit": PageHelp(
        "Change the value and send it to the handler that failed. The handler's codec and model say whether they "
        "accept it.",
        {"Masked": _MASK, "Plan": _PLAN},
        f"{_CONSOLE}#edit",
    ),
    "/plans": PageHelp(
        "The plans that run, those that wait for somebody, and the latest others.",
        {"Plan": _PLAN, "Canary": "A replay in growing waves that stops by itself if too many die again."},
        f"{_CONSOLE}#plans",
    ),
    "/plans/patch": PageHelp(
        "Change many values by one JSON Patch. Its result for the three newest is shown; nothing is sent before "
        "the plan is applied.",
        {"JSON Patch": "A list of operations (RFC 6902): add, remove, replace, move, copy, test.", "Plan": _PLAN},
        f"{_CONSOLE}#letters",
    ),
    "/plans/{id:int}": PageHelp(
        "The action of this plan, its letters, and its progress. Nothing is sent before it is applied; afterwards"
        " it can be stopped.",
        {
            "Plan": _PLAN,
            "Canary": "Growing waves; it stops by itself if too many die again.",
            "Dead again": "It failed after the replay, and is an open letter again.",
        },
        f"{_CONSOLE}#plans",
    ),
    "/plans/{id:int}/differences": PageHelp(
        "The changes that the plan makes to the value of each letter, 20 a page, and the letters that it leaves out.",
        {"Plan": _PLAN},
        f"{_CONSOLE}#letters",
    ),
    "/sign-in": PageHelp(
        "Sign in by name and password, or by your OpenID Connect issuer. After five wrong passwords a name waits.",
        {"Issuer": "The service that signs people in for several applications."},
        f"{_CONSOLE}#signing-in",
    ),
    "/sign-in/{token}": PageHelp(
        "The one-time link of a console without users: it signs in whoever presses the button first.",
        {"One-time link": "bridge deadletters serve prints it; it works once, and only while there are no users."},
        f"{_CONSOLE}#signing-in",
    ),
    "/account": PageHelp(
        "Your name and role, your password, and the end of all your sessions.",
        {"Session": "A signed-in browser, for 12 hours at most."},
        f"{_CONSOLE}#sessions",
    ),
    "/welcome/{id:int}/{token}": PageHelp(
        "Choose your password. The link works once, for three days.",
        {"Password": "12 characters or more, and none of those that are tried first."},
        f"{_CONSOLE}#signing-in",
    ),
    "/admin/users": PageHelp(
        "The people who may sign in, with their roles. Whoever is added chooses a password by a link that works once.",
        {
            "Viewer, operator, admin": "Sees; acts on letters, topics and policies; manages accounts and webhooks.",
            "Scope": "The topics and consumer groups that an account sees.",
        },
        f"{_CONSOLE}#roles",
    ),
    "/admin/users/{id:int}": PageHelp(
        "Change a user's role or scope, make a new password link, end the sessions, or remove the user.",
        {"Scope": "The topics and consumer groups that an account sees; empty: all."},
        f"{_CONSOLE}#roles",
    ),
    "/admin/tokens": PageHelp(
        "The API tokens of programs: who made them, when they end, when they were used last.",
        {"Token": "The secret that a program sends; it is shown once and kept as a hash."},
        f"{_CONSOLE}#the-api",
    ),
    "/admin/unmask": PageHelp(
        "See hidden values for 15 minutes in this browser. The audit log keeps who, when and why.",
        {"Masked": _MASK},
        f"{_CONSOLE}#masks",
    ),
    "/admin/webhooks": PageHelp(
        "The addresses that are told of new groups, halts, open circuit breakers and plans, and whether they answer.",
        {"Webhook": "An address that gets a signed message for each event that it asks for."},
        f"{_CONSOLE}#webhooks",
    ),
}


def find_help(path: str) -> PageHelp | None:
    """Return the help of a route, or of the page that its form belongs to; `None` if it has none (pure)."""
    while path not in PAGE_HELP and path.count("/") > 1:
        path = path.rpartition("/")[0]
    return PAGE_HELP.get(path)
