"""Every operation of the API, and the role that it takes: by this table it answers, and describes itself."""

from collections.abc import Callable
from typing import Final, NamedTuple

from bridge.deadletters.store.trail import Entry
from bridge.web.api import deciding, exporting, groups, letters, making, plans, standing
from bridge.web.api.asked import Answer, Asked
from bridge.web.api.shapes import common
from bridge.web.api.shapes import groups as of_groups
from bridge.web.api.shapes import letters as of_letters
from bridge.web.api.shapes import making as of_making
from bridge.web.api.shapes import plans as of_plans
from bridge.web.api.shapes import standing as of_standing
from bridge.web.roles import Role
from bridge.web.threads import Waits


class Act(NamedTuple):
    """What an operation is that acts: it wants an idempotency key.

    Attributes:
        again: what is answered where a process has done it, and died before it could answer; `None`: it may be done
            again, since it comes to the same.
        seen: whether `If-Match` says what is decided on: "", "may" or "must".
    """

    again: Callable[[Asked, Entry], Answer] | None = None
    seen: str = ""


class Operation(NamedTuple):
    """An operation.

    Attributes:
        path: behind `/api/v1`.
        name: by which programs that are made from the description call it.
        answer: is called in a thread: it may wait for the database, and for what `waits` says.
        gives: the shape of the answer; `None`: bytes, of the kind that `media` says.
        takes: the shape of the body; `None`: it has none.
    """

    method: str
    path: str
    role: Role
    name: str
    summary: str
    answer: Callable[[Asked], Answer]
    gives: type[common.Given] | None
    query: type[common.Wanted] = common.Nothing
    takes: type[common.Wanted] | None = None
    status: int = 200
    act: Act | None = None
    media: str = "application/octet-stream"
    waits: Waits = Waits.DATABASE


#: A line of JSON each.
LINES: Final = "application/x-ndjson"
_SEES, _ACTS = Role.VIEWER, Role.OPERATOR
_STANDING, _SERVERS = Waits.STANDING, Waits.SERVERS

OPERATIONS: Final = (
    Operation(
        "GET", "/letters", _SEES, "listLetters", "Letters of a filter, newest first.",
        letters.listed, of_letters.Page, of_letters.Listing,
    ),
    Operation(
        "GET", "/letters/count", _SEES, "countLetters", "How many letters a filter means.",
        letters.counted, of_letters.Counted, of_letters.Filter,
    ),
    Operation(
        "GET", "/letters/export", _SEES, "exportLetters",
        "Letters as lines of JSON, oldest first, as `bridge deadletters import` reads them; not those that are masked.",
        exporting.letters, None, of_letters.Filter, media=LINES,
    ),
    Operation(
        "POST", "/letters/check", _ACTS, "checkLetters",
        "Which of at most 10,000 letters their handlers would take now, as they are or after their `upgrade`.",
        letters.check_all, of_making.Checked, takes=of_making.Checking,
    ),
    Operation(
        "GET", "/letters/{id:int}", _SEES, "getLetter", "A letter, with all that is known of it.",
        letters.one, of_letters.Letter,
    ),
    Operation(
        "GET", "/letters/{id:int}/value", _SEES, "getValue", "A letter's value, byte for byte.",
        letters.value, None, of_letters.ValueQuery, waits=_SERVERS,
    ),
    Operation(
        "GET", "/letters/{id:int}/elsewhere", _SEES, "getElsewhere",
        "What became of the same message for each handler; Kafka and the ledger are asked.",
        letters.elsewhere, of_letters.Elsewhere, waits=_SERVERS,
    ),
    Operation(
        "POST", "/letters/{id:int}/check", _ACTS, "checkValue", "What a letter's handler says of another value.",
        letters.check, of_letters.Verdict, takes=of_letters.Check,
    ),
    Operation(
        "POST", "/letters/{id:int}/edit", _ACTS, "editLetter",
        "Make a plan that sends a letter back with another value; nothing is sent before the plan is applied.",
        letters.edit, of_plans.OnePlan, takes=of_letters.Editing, status=201,
        act=Act(letters.edited),
    ),
    Operation(
        "POST", "/letters/{id:int}/notes", _ACTS, "noteOnLetter", "Note something on a letter.",
        letters.note, of_letters.Notes, takes=of_letters.Noting,
        act=Act(letters.noted),
    ),
    Operation(
        "POST", "/letters/{id:int}/reopen", _ACTS, "reopenLetter",
        "Open a letter whose replay has an unknown end, since it did not run.",
        letters.reopen, of_letters.Letter, takes=of_standing.Deciding, act=Act(letters.ended),
    ),
    Operation(
        "POST", "/letters/{id:int}/resolve", _ACTS, "resolveLetter",
        "Resolve a letter whose replay has an unknown end, since it ran.",
        letters.resolve, of_letters.Letter, takes=of_standing.Deciding, act=Act(letters.ended),
    ),
    Operation(
        "GET", "/groups", _SEES, "listGroups", "Groups that have letters of a filter.",
        groups.listed, of_groups.Groups, of_groups.GroupsQuery, waits=_STANDING,
    ),
    Operation(
        "GET", "/groups/{id:int}", _SEES, "getGroup", "A group, and what to do with it next.",
        groups.one, of_groups.OneGroup, waits=_STANDING,
    ),
    Operation(
        "POST", "/groups/{id:int}/fixed", _ACTS, "markFixed",
        "Mark a group, or a cause of it, as fixed in a version: its letters go back once all workers have that.",
        groups.fix, of_groups.OneGroup, takes=of_groups.Fixing,
        act=Act(groups.done, "must"), waits=_STANDING,
    ),
    Operation(
        "POST", "/groups/{id:int}/not-fixed", _ACTS, "unmarkFixed", "Take that back.",
        groups.unfix, of_groups.OneGroup, of_groups.WhichCause,
        act=Act(groups.done, "must"), waits=_STANDING,
    ),
    Operation(
        "POST", "/groups/{id:int}/notes", _ACTS, "noteOnGroup", "Note something on a group.",
        groups.note, of_letters.Notes, takes=of_letters.Noting,
        act=Act(groups.noted),
    ),
    Operation(
        "GET", "/plans", _SEES, "listPlans", "Plans, the newest first.",
        plans.listed, of_plans.Plans, common.Paged,
    ),
    Operation(
        "POST", "/plans", _ACTS, "makePlan",
        "Freeze which letters are to be replayed, discarded or archived, and preview it; nothing is done yet.",
        plans.make, of_plans.OnePlan, takes=of_plans.Making, status=201,
        act=Act(plans.made_before), waits=_SERVERS,
    ),
    Operation(
        "POST", "/plans/patch", _ACTS, "planPatch",
        "Freeze what a JSON Patch makes of at most 20,000 open letters, which go back with that if their handlers "
        "take it; nothing is sent yet.",
        making.patch, of_plans.OnePlan, takes=of_making.Patching, status=201,
        act=Act(making.patched),
    ),
    Operation(
        "POST", "/plans/copy", _ACTS, "planCopy",
        "Freeze which letters are copied to another topic, which changes nothing for them here; nothing is sent yet.",
        making.copy, of_plans.OnePlan, takes=of_making.Copying, status=201,
        act=Act(making.copied), waits=_SERVERS,
    ),
    Operation(
        "POST", "/plans/redrive", _ACTS, "planRedrive",
        "Freeze what needs to be sent again of at most 300,000 deliveries of a source topic; nothing is sent yet.",
        making.redrive, of_plans.OnePlan, takes=of_making.Redriving, status=201,
        act=Act(making.redriven),
        waits=_SERVERS,
    ),
    Operation(
        "GET", "/plans/{id:int}/differences", _SEES, "listDifferences", "How a plan changes its letters' values.",
        making.differences, of_making.Differences, of_making.DifferencesQuery,
    ),
    Operation(
        "GET", "/plans/{id:int}", _SEES, "getPlan", "A plan: its preview, or how far it is.",
        plans.one, of_plans.OnePlan,
    ),
    Operation(
        "GET", "/plans/{id:int}/outcomes", _SEES, "listOutcomes", "How far a plan is with each of its deliveries.",
        plans.outcomes, of_plans.Outcomes, of_plans.Items,
    ),
    Operation(
        "POST", "/plans/{id:int}/apply", _ACTS, "applyPlan",
        "Have a plan done by `bridge deadletters record`, or gone on with. Above 1,000 letters, a discard takes an "
        "admin; it begins after 10 seconds.",
        plans.apply, of_plans.OnePlan, takes=of_plans.Applying,
        act=Act(plans.decided, "must"),
    ),
    Operation(
        "POST", "/plans/{id:int}/stop", _ACTS, "stopPlan", "Stop a plan: what it had not come to stays as it is.",
        plans.stop, of_plans.OnePlan, takes=of_plans.Stopping,
        act=Act(plans.decided, "may"),
    ),
    Operation(
        "GET", "/status", _SEES, "getStatus", "What the group consumes and how far, and what needs a person.",
        standing.status, of_standing.Status, waits=_STANDING,
    ),
    Operation(
        "GET", "/stats", _SEES, "getStats", "All letters in figures.", standing.stats, of_standing.Stats,
    ),
    Operation(
        "GET", "/find", _SEES, "find", "Where a record is now.",
        standing.found, of_standing.Found, of_standing.FindQuery, waits=_SERVERS,
    ),
    Operation(
        "GET", "/audit", _SEES, "listAudits", "The last count of each topic, since this console began.",
        standing.proofs, of_standing.Audits,
    ),
    Operation(
        "POST", "/audit/{topic}", _SEES, "audit", "Count the fates of every offset of a topic now; it takes seconds.",
        standing.prove, of_standing.Audit, waits=_SERVERS,
    ),
    Operation(
        "GET", "/trail", _SEES, "listTrail", "Who did what, newest first.",
        standing.trail, of_standing.Trail, of_standing.TrailQuery,
    ),
    Operation(
        "GET", "/trail/export", _SEES, "exportTrail", "Who did what, all of it, as lines of JSON, newest first.",
        exporting.trail, None, of_standing.TrailExport, media=LINES,
    ),
    Operation(
        "GET", "/halts", _SEES, "listHalts", "The topics that are halted, and why.",
        deciding.halted, of_standing.Halts, waits=_SERVERS,
    ),
    Operation(
        "POST", "/topics/{topic}/halt", _ACTS, "haltTopic",
        "Halt a topic: nothing of it is read or run until somebody resumes it.",
        deciding.halt, of_standing.Halted, takes=of_standing.Deciding,
        act=Act(), waits=_SERVERS,
    ),
    Operation(
        "POST", "/topics/{topic}/resume", _ACTS, "resumeTopic", "Let a topic go on, from exactly where it stood.",
        deciding.resume, of_standing.Halted, takes=of_standing.Deciding,
        act=Act(), waits=_SERVERS,
    ),
    Operation(
        "GET", "/policies", _SEES, "listPolicies", "Each handler's policy, and what was changed of it.",
        deciding.policies_of_all, of_standing.Policies, waits=_SERVERS,
    ),
    Operation(
        "GET", "/policies/{name}", _SEES, "getPolicy", "A handler's policy, and what was changed of it.",
        deciding.policy, of_standing.Policy, waits=_SERVERS,
    ),
    Operation(
        "POST", "/policies/{name}", _ACTS, "changePolicy", "Change options of a handler's policy, for all workers.",
        deciding.change, of_standing.Policy, takes=of_standing.Changing,
        act=Act(), waits=_SERVERS,
    ),
    Operation(
        "POST", "/policies/{name}/simulate", _ACTS, "simulatePolicy",
        "Try a policy on a handler's dead letters; nothing is changed.",
        deciding.simulate, of_standing.Simulation, takes=of_standing.Trying, waits=_SERVERS,
    ),
)  # fmt: skip
