"""What the console promises of plans: looked at before they are done, done once, stopped, and never by two at once."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import update

from bridge.console.console import Console
from bridge.console.pages import plans_page
from bridge.console.pages.plan_view import VERBS, describe_wave, explain_pace
from bridge.console.pages.plan_view import describe_state as words_of
from bridge.console.status_cache import make_status_cache
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db import letter_rows, plan_item_rows, plan_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.plan_item_rows import LogPosition
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanState
from bridge.deadletters.model.letter_view import LetterAct
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.plan_progress import PlanProgress, PlanProgressReader, WaveProgress
from tests.processes import eventually
from tests.web.signed_in_console import Person, desk_of, open_letters


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """What the database makes no difference to; tests/desk/test_plan_approval.py has both."""
    found = Database(f"sqlite:///{tmp_path}/desk.db")
    found.migrate()
    yield found
    found.close()


@pytest.fixture
def console(database: Database, monkeypatch: pytest.MonkeyPatch) -> Console:
    made = Console(desk_of(database, monkeypatch), "bridge @ kafka")
    made.status_cache = make_status_cache(lambda: {"problems": [], "queues": {"q": {"messages": 1_204, "workers": 1}}})
    return made


@pytest.fixture
def ann(console: Console) -> Person:
    return Person(console, "ann", Role.OPERATOR)


@pytest.fixture
def bob(console: Console) -> Person:
    return Person(console, "bob", Role.OPERATOR)


def made(person: Person, what: str = "replay", **fields: Any) -> str:
    """The address of a plan that was just made."""
    answer = person.post("/plans/new", what=what, **({"scope": "filter"} | fields))
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def stands(console: Console, address: str) -> PlanState:
    return console.desk.plans.one(int(address.rpartition("/")[2])).state


def applied(person: Person, address: str, **fields: Any) -> Any:
    action = f"{address}/apply"
    return person.post(action, **person.form(address, action) | fields)


def test_ticked_letters_become_a_plan_that_sends_nothing_yet(console, ann, database):
    ids = open_letters(database, 3)
    address = made(ann, scope="ids", ids=f"{ids[0]}, {ids[2]}")
    page = ann.get(address).text
    assert "Replay 2 letters?" in page
    assert "Nothing has been sent" in page
    plan = console.desk.plans.one(int(address.rpartition("/")[2]))
    assert (plan.state, plan.by, plan.outcomes) == (PlanState.PLANNED, "ann", {"waiting": 2})


def test_a_filter_becomes_a_plan_of_its_open_letters_and_says_that_their_number_has_changed(ann, database):
    open_letters(database, 2)
    open_letters(database, 3, "orders.handlers.gone", reason="poison")
    address = made(ann, handler="orders.handlers.gone", seen="4")
    assert address.endswith("?seen=4")
    page = ann.get(address).text
    assert "Nothing to replay: of 3 letters that matched, none can be replayed" in page
    assert "3 letters of <bdi>orders.handlers.gone</bdi>, an unknown handler" in page
    assert "The list had 4 when you looked" in page
    assert 'href="/letters?handler=orders.handlers.gone"' in page
    assert "Replay 3 letters" not in page
    assert "Throw the plan away" in page


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scope": "ids", "ids": ""}, "No letter is ticked"),
        ({"scope": "ids", "ids": "1,x"}, "is no number"),
        ({"what": "delete"}, "is nothing that is done with letters"),
        ({"handler": "orders.handlers.chrge"}, "is &#39;orders.handlers.charge&#39; meant?"),
        ({"status": "resolved"}, "Only open letters are replayed"),
        ({"status": "resolved", "what": "discard"}, "Only open letters and archived ones are discarded"),
    ],
)
def test_what_can_mean_nothing_makes_no_plan_and_says_why(console, ann, database, fields, words):
    open_letters(database, 1)
    answer = ann.post("/plans/new", **{"what": "replay", "scope": "filter"} | fields)
    assert (answer.status_code, words in answer.text) == (400, True)
    assert console.desk.plans.latest() == []


def test_a_preview_shows_handlers_reasons_warnings_and_what_died_again_before(ann, database):
    ids = open_letters(database, 3, error_class="<b>E")
    with database.writing() as connection:
        connection.execute(update(tables.letters).where(tables.letters.c.id == ids[0]).values(failures=3))
    page = ann.get(made(ann)).text
    for words in ("exhausted", "2 replays", "Kafka does not answer", "orders.handlers.charge", "At most"):
        assert words in page, words
    assert "1 of them has died again after a replay already" in page


def test_above_20_letters_a_canary_is_chosen_already(ann, database):
    open_letters(database, 20)
    assert 'value="all" checked' in ann.get(made(ann)).text
    open_letters(database, 1)
    assert 'value="canary" checked' in ann.get(made(ann)).text


def test_a_plan_is_applied_as_it_was_decided_on_in_the_background(console, ann, database):
    open_letters(database, 8)
    address = made(ann)
    answer = applied(ann, address, pace="canary", rate="200", why="1.4.2 reads decimals")
    assert (answer.status_code, answer.headers["location"]) == (303, address)
    plan = console.desk.plans.one(1)
    assert (plan.state, plan.options.canary, plan.options.rate) == (PlanState.APPLYING, True, 200.0)
    assert plan.why == "1.4.2 reads decimals"
    with database.reading() as connection:
        assert [len(plan_item_rows.read_waiting_items(connection, 1, wave, 100)) for wave in range(3)] == [1, 6, 8]
    page = ann.get(address).text
    assert "Stop plan 1" in page
    assert "leaves 8 letters as they are" in page
    assert "1.4.2 reads decimals" in page


def test_a_plan_that_ended_with_letters_in_flight_does_not_look_finished(console, ann, database):
    open_letters(database, 4)
    made(ann)
    planned = console.desk.plans.one(1)
    found = {}
    for state, outcome in [
        (s, o) for s in (PlanState.DONE, PlanState.STOPPED, PlanState.FAILED) for o in ("sent", "done")
    ]:
        outcomes = {PlanItemState(outcome): 3, PlanItemState.DONE: 1} if outcome == "sent" else {PlanItemState.DONE: 4}
        found[state, outcome] = words_of(replace(planned, state=state, outcomes=outcomes, began_at=1)).words
    assert found == {
        (PlanState.DONE, "sent"): "all sent, 3 in flight",
        (PlanState.DONE, "done"): "applied",
        (PlanState.STOPPED, "sent"): "stopped, 3 in flight",
        (PlanState.STOPPED, "done"): "stopped",
        (PlanState.FAILED, "sent"): "failed, 3 in flight",
        (PlanState.FAILED, "done"): "failed",
    }


def test_the_same_form_sent_again_changes_nothing(console, ann, database):
    open_letters(database, 2)
    address = made(ann)
    form = ann.form(address, f"{address}/apply")
    assert ann.post(f"{address}/apply", **form).status_code == 303
    assert ann.post(f"{address}/apply", **form).status_code == 303
    stop = ann.form(address, f"{address}/stop")
    assert ann.post(f"{address}/stop", **stop).status_code == 303
    assert ann.post(f"{address}/apply", **form).status_code == 409
    assert stands(console, address) is PlanState.STOPPED
    assert [act.what for act in PlanProgressReader(database).read_progress(1).trail] == ["replay", "apply", "stop"]


def test_a_form_of_before_a_stop_does_not_stop_what_was_gone_on_with(console, ann, database):
    open_letters(database, 2)
    address = made(ann)
    applied(ann, address)
    stop = ann.form(address, f"{address}/stop")
    ann.post(f"{address}/stop", **stop)
    assert applied(ann, address).status_code == 303
    assert stands(console, address) is PlanState.APPLYING
    assert ann.post(f"{address}/stop", **stop).status_code == 409
    assert stands(console, address) is PlanState.APPLYING


def test_of_two_who_decide_at_once_the_second_is_told_who_did_what_and_keeps_its_words(console, ann, bob, database):
    open_letters(database, 2)
    address = made(ann)
    form = bob.form(address, f"{address}/apply")
    ann.post(f"{address}/stop", **ann.form(address, f"{address}/apply"), why="wait for the bank")
    answer = bob.post(f"{address}/apply", **form, why="smtp is back")
    assert answer.status_code == 409
    assert "Somebody was quicker" in answer.text
    assert "stopped by ann: wait for the bank, by ann at" in answer.text
    assert stands(console, address) is PlanState.STOPPED


def test_letters_that_another_plan_has_taken_meanwhile_are_named_and_the_rest_may_go(console, ann, bob, database):
    ids = open_letters(database, 5)
    address = made(ann)
    form = ann.form(address, f"{address}/apply")
    other = made(bob, scope="ids", ids=",".join(map(str, ids[:3])))
    applied(bob, other)
    with database.writing() as connection:
        found = plan_item_rows.read_waiting_items(connection, 2, 0, 10)
        at = 2**42
        plan_item_rows.claim_items(connection, 2, {item.position: None for item in found}, at)
        letter_rows.change_letter_status(connection, ids[:3], LetterStatus.OPEN, LetterStatus.REPLAYING, at, 2)
    answer = ann.post(f"{address}/apply", **form, why="mine")
    assert answer.status_code == 409
    assert "Plan 2 of bob has taken 3 of these 5 letters. 2 are left." in answer.text
    assert 'value="mine"' in answer.text
    assert "Replay 2 of the 5 letters that matched?" in answer.text
    assert stands(console, address) is PlanState.PLANNED
    assert applied(ann, address).status_code == 303
    assert stands(console, address) is PlanState.APPLYING


def test_a_discard_wants_a_reason_and_its_number_typed(console, ann, database):
    open_letters(database, 4)
    address = made(ann, "discard")
    for fields, words in (
        ({"count": "4"}, "a reason is needed"),
        ({"why": "told them", "count": "3"}, "Type 4 to discard"),
    ):
        answer = applied(ann, address, **fields)
        assert (answer.status_code, words in answer.text) == (400, True)
    assert stands(console, address) is PlanState.PLANNED
    assert applied(ann, address, why="told them", count="4").status_code == 303
    assert console.desk.plans.one(1).why == "told them"


def test_for_10_s_nobody_takes_a_discard_up_and_it_can_be_stopped(console, ann, database):
    open_letters(database, 1)
    address = made(ann, "discard")
    applied(ann, address, why="told them", count="1")
    with database.writing() as connection:
        assert plan_rows.find_abandoned_plans(connection) == []
        assert not plan_rows.lease_plan(connection, 1, "recorder")
    assert "It begins 10 s after it was applied" in ann.get(address).text
    ann.post(f"{address}/stop", **ann.form(address, f"{address}/stop"))
    assert stands(console, address) is PlanState.STOPPED
    with database.writing() as connection:
        connection.execute(update(tables.plans).values(leased_until=0, state=PlanState.APPLYING))
        assert plan_rows.find_abandoned_plans(connection) == [1]


def test_more_than_1000_letters_are_discarded_by_an_admin_alone(console, ann, database):
    open_letters(database, 1)
    address = made(ann, "discard")
    with database.writing() as connection:
        counts = console.desk.plans.one(1).counts.to_data() | {"letters": 1_001}
        connection.execute(update(tables.plans).values(counts=json.dumps(counts)))
    page = ann.get(address).text
    assert "that needs admin; you are operator" in page
    assert "/apply" not in page
    admin = Person(console, "root", Role.ADMIN)
    form = admin.form(address, f"{address}/apply")
    assert ann.post(f"{address}/apply", **form | {"token": ann.token}, why="x", count="1001").status_code == 400
    assert admin.post(f"{address}/apply", **form, why="x", count="1,001").status_code == 303


@pytest.mark.parametrize("was", [PlanState.MAKING, PlanState.APPLYING])
def test_nothing_is_decided_on_a_plan_that_has_become_another_since_its_checks(
    console, ann, database, monkeypatch, was
):
    open_letters(database, 1)
    address = made(ann, "discard")
    form = ann.form(address, f"{address}/apply")
    looked = plans_page._read_progress

    def before(request):
        monkeypatch.setattr(plans_page, "_read_progress", looked)
        found = looked(request)
        return replace(found, plan=replace(found.plan, state=was), key=f"{was}-1")

    monkeypatch.setattr(plans_page, "_read_progress", before)
    # Neither the number of letters nor, of many, the role was asked for.
    assert ann.post(f"{address}/apply", **form, why="x", count="").status_code == 409
    assert stands(console, address) is PlanState.PLANNED


@pytest.mark.parametrize("action", ["apply", "stop"])
def test_a_reason_is_no_longer_than_the_trail_can_show(console, ann, database, action):
    open_letters(database, 1)
    address = made(ann)
    form = ann.form(address, f"{address}/apply")
    answer = ann.post(f"{address}/{action}", **form, why="x" * 501)
    assert (answer.status_code, "Say it in 500 characters" in answer.text) == (400, True)
    assert stands(console, address) is PlanState.PLANNED


def test_a_number_that_no_database_has_is_none(console, ann, database):
    open_letters(database, 1)
    address, many = made(ann, seen="9" * 5_000), "9" * 5_000
    assert address == "/plans/1"
    assert ann.get(f"{address}?seen={many}").status_code == 200
    assert ann.post(f"{address}/apply", **ann.form(address, f"{address}/apply") | {"left": many}).status_code == 409


def test_a_viewer_sees_plans_and_may_do_nothing(console, ann, database):
    open_letters(database, 2)
    address = made(ann)
    viewer = Person(console, "eve", Role.VIEWER)
    page = viewer.get(address).text
    assert "You can read here" in page
    assert "/apply" not in page
    for path in ("/plans/new", f"{address}/apply", f"{address}/stop"):
        assert viewer.post(path, what="replay", scope="filter").status_code == 403
    applied(ann, address)
    assert "/stop" not in viewer.get(address).text


def test_that_no_recorder_takes_a_plan_up_is_said_once_it_should_have(console, ann, database):
    open_letters(database, 2)
    address = made(ann)
    applied(ann, address)
    assert "No recorder has taken it up" not in ann.get(address).text
    with database.writing() as connection:
        connection.execute(update(tables.trail).values(at=tables.trail.c.at - 60_000))
    assert "No recorder has taken it up" in ann.get(address).text
    with database.writing() as connection:
        assert plan_rows.lease_plan(connection, 1, "recorder")
    assert "No recorder has taken it up" not in ann.get(address).text


def test_a_plan_under_way_shows_its_waves_what_died_again_and_what_was_left_out_as_text(console, ann, database):
    ids = open_letters(database, 30)
    with database.writing() as connection:
        connection.execute(
            update(tables.letters).where(tables.letters.c.id == ids[6]).values(error_message="<script>alert(1)")
        )
    address = made(ann)
    applied(ann, address, pace="canary")
    with database.writing() as connection:
        plan_rows.note_canary_wave(connection, 1, 2)
        spots = {position: LogPosition("orders.replay", 0, position) for position in range(1, 21)}
        plan_item_rows.claim_items(connection, 1, spots, 1_000)
        plan_item_rows.end_items(connection, 1, dict.fromkeys(range(1, 7), ""), PlanItemState.DONE, 4_000)
        plan_item_rows.end_items(connection, 1, {7: ""}, PlanItemState.DEAD, 4_028)
        plan_item_rows.end_items(connection, 1, {21: "it is discarded <i>"}, PlanItemState.SKIPPED, 4_000)
    page = ann.get(address).text
    assert "<script>alert" not in page
    assert "<i>" not in page
    for words in ("Wave 3", "stops the plan at 2 dead", "3 s", "it is discarded &lt;i&gt;", "wave 3", "85.7 %"):
        assert words in page, words
    assert f"/letters/{ids[6]}" in page


def progress(console: Console, **outcomes: int) -> PlanProgress:
    """A plan that began 100 s ago and has these outcomes."""
    planned = replace(
        console.desk.plans.one(1),
        state=PlanState.APPLYING,
        began_at=1_000,
        outcomes={PlanItemState(name): count for name, count in outcomes.items()},
    )
    return PlanProgress(planned, "k", 0, True, (), (), (), (), 101_000)


def test_a_plan_says_its_pace_its_expected_end_and_the_queue_before_it(console, ann, database):
    open_letters(database, 2)
    made(ann)
    assert explain_pace(progress(console, done=150, dead=50, sent=10, waiting=790), {"shop": 1_204, "mail": 0}) == [
        "Workers take what is queued in its turn: 1,204 messages in shop.",
        "So far 2 a second have ended. At that pace it ends in 6.67 min.",
    ]
    assert explain_pace(progress(console, done=2, waiting=790), {}) == []
    assert explain_pace(progress(console, waiting=790), {"shop": 5}) == []
    acts = (LetterAct(1, "ann", "apply", ""), LetterAct(2, "ann", "stop", ""), LetterAct(3, "ann", "apply", ""))
    assert explain_pace(replace(progress(console, done=150, waiting=790), trail=acts), {}) == []


def test_the_queue_of_its_handlers_is_on_the_page_of_a_plan_with_letters_in_flight(console, ann, database):
    open_letters(database, 3)
    address = made(ann)
    applied(ann, address)
    with database.writing() as connection:
        assert plan_rows.lease_plan(connection, 1, "recorder")
        connection.execute(update(tables.plans).values(began_at=1_000))
        plan_item_rows.claim_items(connection, 1, {1: LogPosition("orders.replay", 0, 1)}, 1_000)
    eventually(lambda: "1,204 messages in q" in ann.get(address).text, 10, "the status is known")


def test_the_last_letter_in_flight_is_shown_as_such(console, ann, database):
    open_letters(database, 2)
    made(ann)
    last = progress(console, done=199, sent=1)
    assert explain_pace(last, {}) == [
        "All are sent, and the last letter is in flight.",
        "So far 1.99 a second have ended.",
    ]
    some = progress(console, done=1, sent=2)
    assert explain_pace(some, {}) == ["All are sent, and the last 2 letters are in flight."]
    assert words_of(last.plan).words == "all sent, 1 in flight"


def test_the_end_of_a_canary_is_not_foretold_before_its_last_wave(console, ann, database):
    open_letters(database, 2)
    made(ann)
    found = progress(console, done=26, sent=1, waiting=173)
    canary = replace(found, plan=replace(found.plan, options=replace(found.plan.options, canary=True)))
    (said,) = explain_pace(canary, {})
    assert said.startswith("So far 15.6 a minute have ended. Each wave is larger than the one before")


def test_earlier_runs_of_the_same_selection_are_on_a_plan_s_page(console, ann, database):
    open_letters(database, 2)
    first = made(ann)
    applied(ann, first)
    with database.writing() as connection:
        assert plan_rows.lease_plan(connection, 1, "recorder")
    ann.post(f"{first}/stop", **ann.form(first, f"{first}/stop"))
    again = made(ann)
    applied(ann, again)
    page = ann.get(again).text
    runs = page[page.index('id="h-runs"') : page.index('id="h-who"')]
    assert '<a href="/plans/1">Plan 1</a>' in runs
    assert "stopped" in runs
    assert 'id="h-runs"' not in ann.get(first).text


def test_plans_are_listed_those_under_way_on_top(ann, database):
    open_letters(database, 2)
    first = made(ann, "archive")
    made(ann, "discard")
    applied(ann, first, why="<b>old</b>")
    page = ann.get("/plans").text
    assert "1 plan is applying, 1 waits for somebody" in page
    assert page.index('href="/plans/1"') < page.index('href="/plans/2"')
    assert "&lt;b&gt;old" in page
    assert "Archive 2 letters" in page


def test_a_plan_that_is_not_there_is_404(ann):
    assert ann.get("/plans/77").status_code == 404
    assert ann.post("/plans/77/stop").status_code == 404
    assert "No plan" in ann.get("/plans").text


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        ({"waiting": 5}, "not begun"),
        ({"sent": 5}, "sent, 5 in flight"),
        ({"claimed": 1, "waiting": 4}, "sent, 1 in flight"),
        ({"done": 3, "waiting": 2}, "2 not sent"),
        ({"done": 5}, "passed"),
    ],
)
def test_a_wave_of_a_stopped_plan_says_whether_it_was_sent(outcomes, says):
    wave = WaveProgress(2, outcomes, 1, None, None, is_now=False, is_last=True)
    assert describe_wave(wave).words == says


def test_every_what_has_words():
    assert set(VERBS) == set(PlanKind)


def test_what_is_applied_here_a_recorder_does(console, ann, database):
    open_letters(database, 3)
    address = made(ann, "archive")
    applied(ann, address)
    stopping = Event()
    thread = Thread(target=console.desk.plans.go_on, args=(stopping,), daemon=True)
    thread.start()
    eventually(lambda: stands(console, address) is PlanState.DONE, 20)
    stopping.set()
    thread.join(20)
    page = ann.get(address).text
    assert re.search(r"Archived</span></dt><dd>3 ", page)
    assert "data-live" not in page


def test_a_second_tab_of_the_same_person_shows_what_was_done_also_when_it_is_over(console, ann, database):
    open_letters(database, 1)
    address = made(ann)
    form = ann.form(address, f"{address}/apply")
    ann.post(f"{address}/apply", **form)
    with database.writing() as connection:
        connection.execute(update(tables.plans).values(state=PlanState.DONE))
    assert ann.post(f"{address}/apply", **form).headers["location"] == address
    assert len([act for act in PlanProgressReader(database).read_progress(1).trail if act.what == "apply"]) == 1


@pytest.mark.parametrize("what", ["discard", "replay"])
def test_what_was_thrown_away_before_it_was_decided_on_is_not_gone_on_with(console, ann, database, what):
    open_letters(database, 2)
    address = made(ann, what)
    form = ann.form(address, f"{address}/apply")
    ann.post(f"{address}/stop", **form)
    page = ann.get(address).text
    assert "thrown away" in page
    assert "Resume with" not in page
    key = console.desk.progress.read_progress(1).key
    answer = ann.post(f"{address}/apply", **form | {"act": key})
    assert (answer.status_code, "was thrown away before it was approved: make a new plan" in answer.text) == (400, True)
    assert stands(console, address) is PlanState.STOPPED


def test_a_discard_that_was_stopped_in_its_10_s_waits_for_them_again_and_for_an_admin_if_it_is_large(
    console, ann, database
):
    open_letters(database, 1)
    address = made(ann, "discard")
    applied(ann, address, why="told them", count="1")
    ann.post(f"{address}/stop", **ann.form(address, f"{address}/stop"))
    assert applied(ann, address).status_code == 303
    with database.writing() as connection:
        assert not plan_rows.lease_plan(connection, 1, "recorder")
    ann.post(f"{address}/stop", **ann.form(address, f"{address}/stop"))
    form = ann.form(address, f"{address}/apply")
    with database.writing() as connection:
        counts = console.desk.plans.one(1).counts.to_data() | {"letters": 1_001}
        connection.execute(update(tables.plans).values(counts=json.dumps(counts)))
    assert "takes an admin" in ann.post(f"{address}/apply", **form).text
    assert stands(console, address) is PlanState.STOPPED


def test_a_large_plan_awaits_a_second_person_on_its_page_and_its_planner_sees_no_button_to_approve_it(
    console, ann, bob, database
):
    said = console.desk.settings.environment.model_copy(update={"DEADLETTERS_APPROVAL_ABOVE": 1})
    object.__setattr__(console.desk, "settings", replace(console.desk.settings, environment=said))
    viewer = Person(console, "vic", Role.VIEWER)
    open_letters(database, 2)
    address = made(ann)
    assert applied(ann, address, pace="canary", why="smtp is back").status_code == 303
    assert stands(console, address) is PlanState.AWAITING
    assert "awaits a second person" in ann.get("/plans").text
    assert "1 waits for somebody" in ann.get("/plans").text
    own = ann.get(address).text
    assert "You planned it, so somebody else approves or rejects it" in own
    assert "Approve: " not in own
    # A double click, and an attempt without the button.
    refused = ann.post(f"{address}/apply", **ann.form(address, f"{address}/apply"))
    assert (refused.status_code, "awaits a second person: you planned it" in refused.text) == (400, True)
    assert "Approve: " not in viewer.get(address).text
    seen = bob.get(address).text
    assert "It is sent in waves (a canary)." in seen
    assert "Approve: " in seen
    assert applied(bob, address).status_code == 303
    assert stands(console, address) is PlanState.APPLYING
    shown = re.sub("<[^>]+>", "", bob.get(address).text)
    assert "approved by bob" in shown
    assert "approve by bob" in shown
    other = made(ann)
    applied(ann, other, pace="all")
    assert bob.post(f"{other}/stop", **bob.form(other, f"{other}/apply"), why="no").status_code == 303
    assert "rejected by bob: no" in re.sub("<[^>]+>", "", ann.get(other).text)
    assert "rejected" in ann.get("/plans").text


def test_a_wave_that_stopped_its_plan_says_how_many_may_be_dead():
    wave = WaveProgress(4, {"done": 59, "dead": 22, "unknown": 19}, 6, None, None, is_now=False, is_last=False)
    assert describe_wave(wave).words == "stopped the plan: 22 dead again, 19 unknown; 5 may be"
