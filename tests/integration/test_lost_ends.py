"""A ledger that has lost how dead letters ended gets it again from their database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.replay import fate_reconciliation
from bridge.deadletters.replay.fate_reconciliation import FateReconciler
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.redrive_plan import RedriveRequest
from bridge.ledger import Fate, Mark
from tests.delivery_checks import ledger
from tests.desk_of_stack import desk, record, recorder
from tests.integration.test_replay import COMPLETION, start, statuses
from tests.processes import Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer

HOLD = {"commit": "completion", "order": "key", "after_dead": "hold"}


def end(here: DeadLetterService, what: PlanKind, *ids: int) -> None:
    """Discard or archive letters."""
    draft = here.plans.make(what, LetterFilter(ids=ids), PlanOptions(), "ann", "a look")
    assert here.plans.wait(here.plans.apply(draft.id, "ann").id).counts.letters == len(ids)


@pytest.mark.timeout(240)
def test_a_key_goes_on_whose_discard_was_lost_by_a_redis_that_was_set_back(
    kafka: KafkaServer, own_redis: RedisServer, topic_prefix: str, tmp_path: Path
):
    with Stack(kafka.bootstrap_servers, own_redis.url, topic_prefix, tmp_path, "") as stack:
        bridge = start(stack, "keyed", keyed=HOLD)
        dead, held = stack.produce("keyed", {"dead": True}, {"id": 1}, key=b"a")
        told = recorder(stack)
        with desk(stack, "keyed", keyed=HOLD) as here:
            eventually(lambda: statuses(here) == {"open": 1}, 40, "it is recorded")
            bridge.kill()
            (file,) = (own_redis.folder / "appendonlydir").glob("*.incr.aof")
            before = file.stat().st_size
            end(here, PlanKind.DISCARD, 1)
            own_redis.kill()
            with file.open("r+b") as aof:
                aof.truncate(before)
            own_redis.start()
            stack.bridge()
            assert statuses(here) == {"discarded": 1}
            eventually(lambda: held in stack.done(), 60, "what was held runs")
            told.says(f"Their end is in the ledger again (discarded 1), which had them as dead: {dead}:keyed. ")
        eventually(lambda: stack.committed("keyed") == 2, 20)


@contextmanager
def reconciled(here: DeadLetterService) -> Iterator[FateReconciler]:
    with LedgerFates.opened(here.settings) as fates:
        yield FateReconciler(here.settings, here.database, fates)


def late(stack: Stack, count: int) -> None:
    """What a worker does that was frozen between Kafka's acknowledgement and its mark."""
    with ledger(stack, "odd") as (fates, account):
        fates.write([Mark(account, range(count), Fate.DEAD)])


def fates_of(stack: Stack, count: int) -> list[Fate]:
    with ledger(stack, "odd") as (fates, account):
        return [Fate(each) for each in fates.fates(account, 0, count - 1)]


@pytest.mark.parametrize("ends", [[PlanKind.DISCARD], [PlanKind.ARCHIVE, PlanKind.DISCARD]])
def test_all_that_ended_is_compared_after_a_set_back_and_else_the_last(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, ends: list[PlanKind]
):
    monkeypatch.setattr(fate_reconciliation, "AT_ONCE", 2)
    start(stack, "odd")
    stack.produce("odd", *[{"odd": {"dead": True}}] * 5)
    with desk(stack, "odd", odd=COMPLETION) as here, reconciled(here) as reconciler:
        records = recorder(stack)
        eventually(lambda: statuses(here) == {"open": 5}, 40, "they are recorded")
        records.kill()
        for what in (None, *ends):
            if what is not None:
                end(here, what, 1, 2, 3, 4, 5)
            if what is not PlanKind.DISCARD:
                late(stack, 5)
                assert reconciler.reconcile() == 0, "they have not ended"
        late(stack, 5)
        assert fates_of(stack, 5) == [Fate.DEAD] * 5
        assert reconciler.reconcile() == 2
        with reconciled(here) as anew:
            assert anew.reconcile() == 3
        assert fates_of(stack, 5) == [Fate.DISCARDED] * 5


def test_what_was_sent_again_and_died_since_stays_dead(stack: Stack):
    start(stack, "odd")
    stack.produce("odd", {"odd": {"dead": True}})
    with desk(stack, "odd", odd=COMPLETION) as here, reconciled(here) as reconciler:
        record(stack, here, "odd", 1)
        end(here, PlanKind.DISCARD, 1)
        assert fates_of(stack, 1) == [Fate.DISCARDED]
        asked = RedriveRequest(stack.topic("odd"), "earliest", handlers=("odd",))
        plan = here.redrive.plan(asked, PlanOptions(again=True), "ann")
        here.plans.apply(plan.id, "ann")
        eventually(lambda: fates_of(stack, 1) == [Fate.DEAD], 30, "it died again")
        assert statuses(here) == {"discarded": 1}, "which nobody has recorded yet"
        assert reconciler.reconcile() == 0
        recorder(stack)
        eventually(lambda: statuses(here) == {"open": 1}, 40, "it is open again")
        assert reconciler.reconcile() == 0
        assert fates_of(stack, 1) == [Fate.DEAD]


@pytest.mark.usefixtures("desk_url")
def test_what_was_done_by_a_replay_is_done_again(stack: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    start(stack, "odd")
    letter: dict[str, Any] = {"odd": {"mend": str(mended)}}
    stack.produce("odd", letter)
    recorder(stack)
    with desk(stack, "odd", odd=COMPLETION) as here, reconciled(here) as reconciler:
        eventually(lambda: statuses(here) == {"open": 1}, 40, "it is recorded")
        mended.touch()
        draft = here.plans.make(PlanKind.REPLAY, LetterFilter(), PlanOptions(), "ann", "")
        assert here.plans.wait(here.plans.apply(draft.id, "ann").id).outcomes == {"done": 1}
        with ledger(stack, "odd") as (fates, account):
            # As a ledger that was set back to before the replay.
            fates.forget(account, 0, 0)
            fates.write([Mark(account, [0], Fate.DEAD)])
        # Its recorder does it, too.
        eventually(lambda: reconciler.reconcile() or fates_of(stack, 1) == [Fate.DONE], 30)
        assert fates_of(stack, 1) == [Fate.DONE]
