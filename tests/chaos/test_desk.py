"""The desk under a seeded random schedule of faults, with records and replays: docs/contributors/chaos.md.

CHAOS_SEED and CHAOS_DESK_MINUTES choose another schedule and a longer one; CHAOS_DESK_RATE how many records a second.
"""

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.audits import audits_of
from tests.chaos.desk import evidence
from tests.chaos.desk.faults import act
from tests.chaos.desk.schedule import LANES
from tests.chaos.desk.topics import DOINGS, MOST, TOPICS
from tests.chaos.desk.verdict import Left, Verdict, judge
from tests.chaos.desk.world import MEMBERS, DeskWorld, desk_world
from tests.chaos.fault_runner import Run
from tests.chaos.load import Load
from tests.chaos.schedule import schedule
from tests.delivery_checks import end, json_in
from tests.processes import Process, eventually
from tests.servers import kafka as kafka_server
from tests.servers import postgres as postgres_server
from tests.servers import redis as redis_server
from tests.servers.missing import need

SEED = int(os.environ.get("CHAOS_SEED") or 1)
SECONDS = 60 * float(os.environ.get("CHAOS_DESK_MINUTES") or 0.75)
RATE = float(os.environ.get("CHAOS_DESK_RATE") or 10)
#: Seconds after the last fault within which all must be settled, and known.
SETTLED_WITHIN = float(os.environ.get("CHAOS_SETTLED_WITHIN") or 120)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(SECONDS + 3 * SETTLED_WITHIN + 240)]


def unsettled(world: DeskWorld) -> dict[str, Any]:
    """What bridge, workers and desk have still to do by themselves."""
    behind = {name: f"committed {world.committed(name)} of {end(world, name)}" for name in TOPICS}
    behind = {name: words for name, words in behind.items() if len({*words.split()[1::2]}) > 1}
    if behind := behind | evidence.unrecorded(world):
        return behind
    return {name: each for name, each in audits_of(world, TOPICS).items() if each["handed"] or each["parked"]}


def wait_until_settled(world: DeskWorld) -> dict[str, Any]:
    """Wait; return what is left when the time is over."""
    deadline = time.monotonic() + SETTLED_WITHIN
    while (left := unsettled(world)) and time.monotonic() < deadline:
        time.sleep(1)
    return left


def send_back_what_is_open(world: DeskWorld) -> str:
    """As an operator does it, and waits for how it ends; return what was wrong with that."""
    words = ("deadletters", "replay", "--status", "open", "--yes", "--wait", "--json")
    process: Process = world.start("command", sys.executable, "-m", "bridge", *words)
    deadline = time.monotonic() + SETTLED_WITHIN
    while process.exit_code is None and time.monotonic() < deadline:
        time.sleep(0.1)
    # What nobody can cure dies again.
    good = process.exit_code in (0, 3)
    return "" if good else f"{' '.join(words)} ended with {process.exit_code}: {process.text}"


def open_what_has_an_unknown_end(world: DeskWorld) -> None:
    """As a person does it who knows from the book, which the ledger has forgotten, that a replay did not run."""
    replaying = ("deadletters", "list", "--status", "replaying", "--json")
    listed: Process = world.start("command", sys.executable, "-m", "bridge", *replaying)
    assert listed.ends(120) == 0, listed.text
    if ids := [str(each["id"]) for each in json_in(listed.text)]:
        words = ("deadletters", "reopen", *ids, "--why", "the book has no such run")
        # It leaves alone, with exit code 1, those whose end is still looked for.
        world.start("command", sys.executable, "-m", "bridge", *words).ends(120)


def wrong_of(world: DeskWorld, found: Verdict) -> list[str]:
    """What may not be."""
    wrong = [*found.wrong, *evidence.miscounted(world)]
    for name, counted in audits_of(world, TOPICS).items():
        lost = found.lost[name]
        # What a wipe of Redis made forgotten with commit="handoff", as docs/concepts/ledger.md says, is no loss.
        if TOPICS[name].completion or len(lost) > counted["forgotten"]:
            wrong += [f"neither done nor dead: {each}" for each in lost]
        if counted["unaccounted"]:
            wrong.append(f"unaccounted for in {name}: {counted['unaccounted']}")
    return wrong


def report(run: Run[DeskWorld], left: Left, found: Verdict, load: Load) -> None:
    """Print what was survived, and what is to be counted."""
    kinds = Counter(f"{fault.lane.rstrip(' 123')}: {fault.kind}" for fault in run.happened)
    print(f"\nseed {SEED}: {len(run.happened)} faults survived, {load.sent} records, {len(left.deaths)} dead letters")
    print(*(f"  {count:4}  {kind}" for kind, count in sorted(kinds.items())), sep="\n")
    print(f"sent back {len(left.sent)}, by {len({item.plan for item in left.items})} plans; their deliveries:")
    print(*(f"  {count:4}  {state}" for state, count in Counter(item.state for item in left.items).items()), sep="\n")
    print(f"forgotten {sum(map(len, found.lost.values()))}, done twice {found.twice.total()}:")
    print(*(f"  {count:4}  {why}" for why, count in found.twice.most_common()), sep="\n")
    print(f"faults that could not be done: {len(run.skipped)}", flush=True)


def test_whatever_befalls_the_desk_each_letter_is_known_and_comes_home(
    tmp_path: Path, topic_prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    need(kafka_server.missing())
    need(redis_server.missing())
    need(postgres_server.missing())
    # What it survived is shown of a run that went well, too.
    with capsys.disabled():
        carry_out(tmp_path, topic_prefix)


def carry_out(tmp_path: Path, topic_prefix: str) -> None:
    """The schedule, and what must hold after it."""
    faults = schedule(SEED, SECONDS, LANES)
    print(f"\nCHAOS_SEED={SEED} CHAOS_DESK_MINUTES={SECONDS / 60:g}: {len(faults)} faults")
    print(*faults, sep="\n", flush=True)
    with desk_world(topic_prefix, tmp_path) as made:
        for name in MEMBERS:
            made.start_member(name)
        load = Load(made.kafka, topic_prefix, RATE, SEED, TOPICS, DOINGS)
        load.start()
        eventually(lambda: made.book.stat().st_size > 2_000 and "plan" in made.members["operator"].text, 60, "all work")
        run = Run(made, faults, act, SECONDS)
        run.to_the_end()
        load.stop()
        over = time.monotonic()
        for name in MEMBERS:
            made.alive(name)
        assert run.failed == [], "faults that could not be done, or ended"
        made.members["operator"].kill()
        left = wait_until_settled(made)
        print(f"settled {time.monotonic() - over:.1f} s after the last fault", left, flush=True)
        # Once more than need be: what Redis forgot on its way is sent back anew.
        wrong = []
        for _ in range(MOST + 1):
            open_what_has_an_unknown_end(made)
            wrong += [words] if (words := send_back_what_is_open(made)) else []
        left |= wait_until_settled(made)
        behind = evidence.found(made, run.happened)
        found = judge(behind)
        wrong += wrong_of(made, found)
        report(run, behind, found, load)
        if made.exits or left or wrong:
            print("what was done:", *run.log, "what is wrong:", left, *wrong[:50], sep="\n", flush=True)
        assert len(run.happened) >= 0.8 * len(faults), run.skipped
        assert made.exits == [], "what ended of itself"
        assert left == {}, f"not settled {SETTLED_WITHIN} s after the last fault"
        assert wrong == []
