"""A slow handler's backlog does not starve a fast handler that uses the same queue, which is the default."""

import time
from statistics import median

import pytest

from tests.processes import Stack, eventually


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "waiting", "most", "batch"), [(2.0, 300, 14, ""), (0.2, 3_000, 50, ""), (0.5, 1_000, 32, "1")]
)
def test_a_fast_handler_goes_on_beside_the_backlog_of_a_slow_one(
    stack: Stack, seconds: float, waiting: int, most: int, batch: str
):
    """A record waits for what runs, and for a second of work or a message for each process."""
    stack.environ["HANDLERS"] = "tests.handlers.uneven"
    if batch:
        stack.environ["TEST_BATCH"] = batch
    stack.make_topics("quick", "slow")
    stack.worker("-c", "4")
    stack.bridge()
    stack.produce("slow", *({"seconds": seconds} for _ in range(waiting)))
    eventually(lambda: sum(run.handler == "slow" for run in stack.runs()) >= 4, 40)
    for number in range(60):
        stack.produce("quick", number)
        time.sleep(0.2)
    eventually(lambda: len(stack.done("quick")) >= 40, 60)
    # Counted in runs of the slow one, which no load of the machine makes more.
    slow = [run.time for run in stack.runs("slow")]
    before = [sum(run.time - run.value["took"] < ended < run.time for ended in slow) for run in stack.runs("quick")]
    print(f"{seconds:g} s beside: {len(before)} ran, behind {median(before):g} runs, and {max(before)} at most")
    assert median(before) <= most
