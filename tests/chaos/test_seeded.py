"""A seeded random schedule of faults under steady load, every kind of record and topic: docs/contributors/chaos.md.

CHAOS_SEED and CHAOS_MINUTES choose another schedule and a longer one; CHAOS_RATE how many records a second.
"""

import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chaos.audits import audits_of
from tests.chaos.evidence import book, unsent, verdicts
from tests.chaos.fault_runner import Run
from tests.chaos.faults import act
from tests.chaos.limit_verdict import judge_limit
from tests.chaos.load import Load
from tests.chaos.schedule import schedule
from tests.chaos.topics import LIMIT, TOPICS
from tests.chaos.verdict import Verdict
from tests.chaos.world import MEMBERS, World, old_version, world
from tests.delivery_checks import command, end, json_of
from tests.processes import eventually
from tests.servers import kafka as kafka_server
from tests.servers import redis as redis_server
from tests.servers.missing import need

SEED = int(os.environ.get("CHAOS_SEED") or 1)
SECONDS = 60 * float(os.environ.get("CHAOS_MINUTES") or 2.25)
RATE = float(os.environ.get("CHAOS_RATE") or 50)
#: Seconds after the last fault within which all must be settled. A quiet machine took 17, a busy one 136.
SETTLED_WITHIN = float(os.environ.get("CHAOS_SETTLED_WITHIN") or 240)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(SECONDS + SETTLED_WITHIN + 240)]


def unsettled(world: World, names: Iterable[str]) -> dict[str, str]:
    """Which of these topics are not committed as far as they go, or have something under way, and what."""
    behind = {name: f"committed {world.committed(name)} of {end(world, name)}" for name in names}
    behind = {name: words for name, words in behind.items() if len({*words.split()[1::2]}) > 1}
    if behind:
        return behind
    audits = audits_of(world, names).items()
    return {name: str(each) for name, each in audits if each["handed"] or each["parked"]}


def wait_until_settled(world: World) -> dict[str, str]:
    """Wait; return what is left when the time is over."""
    deadline = time.monotonic() + SETTLED_WITHIN
    left = dict.fromkeys(TOPICS, "")
    while (left := unsettled(world, left)) and time.monotonic() < deadline:
        time.sleep(1)
    return left


def still_decided(world: World) -> list[str]:
    """What stands although somebody has taken it back, and Kafka has said so."""
    status = json_of(world, "status")
    return [
        *(f"{topic} is halted, and was resumed: {how}" for topic, how in status["halted"].items()),
        *(f"still halted, and was resumed: {how}" for how in status["halted_handlers"]),
        *(f"the policy of {name} is {how}, and was unset" for name, how in status["policies"].items()),
    ]


#: Seconds after which the lease of a killed process has ended, on a machine at its limit.
LEASES_END: Final = 60.0
#: Of the workers in the lanes, each with two.
PROCESSES: Final = 2 * sum(name.startswith("worker") for name in MEMBERS)


def beyond_limit(world: World, run: Run[World]) -> list[str]:
    """What started, or ran at once, beyond the limit that handlers share, and the leases that it still has."""
    wrong = [*judge_limit(book(world.book), run.happened, LIMIT, PROCESSES)]
    deadline = time.monotonic() + LEASES_END
    while (left := json_of(world, "status")["limits"]["till"]["running"]) and time.monotonic() < deadline:
        time.sleep(1)
    return [*wrong, f"{left} leases are left"] if left else wrong


def report(run: Run[World], total: Verdict, load: Load) -> None:
    """Print what was survived, and what is to be counted."""
    kinds = Counter(f"{fault.lane.rstrip(' 123')}: {fault.kind}" for fault in run.happened)
    print(f"\nseed {SEED}: {len(run.happened)} faults survived, {load.sent} records, {total.deliveries} deliveries")
    print(*(f"  {count:4}  {kind}" for kind, count in sorted(kinds.items())), sep="\n")
    print(
        f"lost {len(total.lost)}, forgotten {total.forgotten}, buried by kills {len(total.buried)}: {total.buried[:9]}"
    )
    print(f"done twice {total.twice.total()}:")
    print(*(f"  {count:4}  {why}" for why, count in total.twice.most_common()), sep="\n")
    print(f"faults that could not be done: {len(run.skipped)}", flush=True)


def wrong_of(name: str, found: Verdict, counted: dict[str, Any]) -> list[str]:
    """What may not be, of one topic, by the count made apart and by the audit."""
    # What a wipe of Redis made forgotten with commit="handoff", as docs/concepts/ledger.md says, is no loss of ours.
    if not TOPICS[name].completion and len(found.lost) <= counted["forgotten"]:
        found.forgotten, found.lost = len(found.lost), []
    elif counted["forgotten"] or not counted["clean"]:
        found.wrong.append(f"the audit of {name} is not clean: {counted}")
    if counted["unaccounted"]:
        found.wrong.append(f"unaccounted for in {name}: {counted['unaccounted']}")
    buried = [f"buried by kills: {each}" for each in found.buried]
    return [*found.lost, *buried, *found.wrong, *found.disorder, *found.unexplained]


def test_whatever_befalls_it_each_delivery_has_its_one_end(
    tmp_path: Path, topic_prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    need(kafka_server.missing())
    need(redis_server.missing())
    # What it survived is shown of a run that went well, too.
    with capsys.disabled():
        carry_out(tmp_path, topic_prefix)


def carry_out(tmp_path: Path, topic_prefix: str) -> None:
    """The schedule, and what must hold after it."""
    faults = schedule(SEED, SECONDS)
    print(f"\nCHAOS_SEED={SEED} CHAOS_MINUTES={SECONDS / 60:g}: {len(faults)} faults")
    print(*faults, sep="\n", flush=True)
    with world(topic_prefix, tmp_path) as made:
        # Bridges join by the new protocol (KIP-848) with every second seed.
        if SEED % 2 == 0:
            made.environ["KAFKA_GROUP_PROTOCOL"] = "consumer"
        made.old = old_version(tmp_path)
        print("members begin as an old version" if made.old else "NO OLD VERSION: its files are not here", flush=True)
        for name in MEMBERS:
            made.start_member(name)
        load = Load(made.kafka, topic_prefix, RATE, SEED)
        load.start()
        eventually(lambda: made.book.stat().st_size > 10_000, 40, "handlers run")
        run = Run(made, faults, act, SECONDS)
        run.to_the_end()
        load.stop()
        over = time.monotonic()
        for name in MEMBERS:
            made.alive(name)
        assert run.failed == [], "faults that could not be done, or ended"
        wrong = still_decided(made)
        left = wait_until_settled(made)
        print(f"settled {time.monotonic() - over:.1f} s after the last fault", flush=True)
        audits = audits_of(made, TOPICS)
        total = Verdict()
        for name, found in verdicts(made, run.happened).items():
            wrong += wrong_of(name, found, audits[name])
            total.add(found)
        unsent_ones, repeats = unsent(made)
        wrong += [*unsent_ones, *beyond_limit(made, run)]
        report(run, total, load)
        print(f"sent by handlers more than once, with the same id: {repeats}", flush=True)
        if made.exits or left or wrong:
            print(command(made, "status", code=None))
            print("what was done:", *run.log, "what is wrong:", left, *wrong[:50], sep="\n", flush=True)
        assert len(run.happened) >= 0.8 * len(faults), run.skipped
        assert made.exits == [], "what ended of itself"
        assert left == {}, f"not settled {SETTLED_WITHIN} s after the last fault"
        assert wrong == []
