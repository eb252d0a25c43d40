"""Three bridges and three workers on twelve partitions, while members are killed, told to stop, frozen and started."""

import json
import random
import signal
import time

import pytest

from tests.delivery_checks import all_settled, choose, in_order, twice
from tests.processes import Stack, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

MESSAGES, KEYS = 6_000, 200


# The other pairs of them are in the seeded run (docs/contributors/chaos.md).
@pytest.mark.parametrize(
    ("order", "batch", "protocol"),
    [("key", "auto", "classic"), ("key", 50, "consumer"), ("partition", 1, "consumer")],
)
def test_each_delivery_settles_once_and_order_holds_while_members_come_and_go(
    stack: Stack, order: str, batch: int | str, protocol: str
):
    draw = random.Random(f"{order} {batch}")
    stack.environ["KAFKA_GROUP_PROTOCOL"] = protocol
    choose(stack, {"orders": {"commit": "completion", "order": order}})
    stack.environ["TEST_BATCH"] = json.dumps(batch)
    stack.make_topics("orders", partitions=12)
    total, dead = MESSAGES // (1 if batch == 50 else 5), 0
    for n in range(total):
        value = {"fail": 1} if n % 211 == 7 else {"dead": True} if n % 503 == 9 else {"sleep": 0.002}
        dead += "dead" in value
        stack.producer.produce(stack.topic("orders"), json.dumps(value).encode(), key=b"%d" % (n % KEYS))
    assert stack.producer.flush(30) == 0
    bridges = [stack.bridge(wait=False) for _ in range(3)]
    workers = [stack.worker(wait=False) for _ in range(3)]
    kills = 0
    eventually(lambda: len(stack.done()) > total // 20, 60)
    for _ in range(6):
        members, start = draw.choice([(bridges, stack.bridge), (workers, stack.worker)])
        chosen = members.pop(draw.randrange(len(members)))
        match draw.choice(["kill", "stop", "freeze"]):
            case "kill":
                kills += members is workers
                chosen.kill()
            case "stop":
                chosen.signal(signal.SIGTERM)
            case "freeze" if members is bridges:
                chosen.signal(signal.SIGSTOP)
                time.sleep(5)
                chosen.signal(signal.SIGCONT)
            case "freeze":
                chosen.kill()
                kills += 1
        members.append(start(wait=False))
        time.sleep(draw.uniform(0.5, 3))
    all_settled(stack, "orders", done=total - dead, dead=dead, within=200)
    in_order(stack, by=order)
    # A killed worker's two processes: what each had done in the last hundredth of a second.
    assert len(twice(stack)) <= kills * 2 * 10
