"""The handler and the caller of docs/how-to/reply-to-callers.md run on real servers, with the topics of the test."""

import sys
from pathlib import Path

import pytest

from tests.doc_blocks import ROOT, find_block, read_blocks
from tests.processes import Stack

PAGE = read_blocks(ROOT / "docs" / "how-to" / "reply-to-callers.md")


@pytest.fixture
def asking(stack: Stack, tmp_path: Path) -> Stack:
    """A stack whose handler is that of the page; `caller.py` is beside it."""
    for name, words in (("charging.py", "give_up_after"), ("caller.py", "def ask")):
        text = find_block([block for block in PAGE if block.language == "python"], words).text
        for topic in ("orders.dlq", "orders", "replies"):
            text = text.replace(f'"{topic}"', f'"{stack.topic(topic)}"')
        (tmp_path / name).write_text(text.replace("localhost:9092", stack.kafka))
    stack.environ |= {"HANDLERS": "charging", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    stack.make_topics("orders", "orders.dlq", "replies")
    return stack


@pytest.mark.slow
def test_a_caller_gets_its_reply_hears_of_a_dead_letter_and_of_no_reply(asking: Stack):
    asking.bridge()
    worker = asking.worker()

    def ask(order: str, timeout: int) -> str:
        caller = asking.start("caller", sys.executable, "-c", f"import caller; print(caller.ask({order}, {timeout}))")
        caller.ends(60)
        return str(caller.text)

    assert "{'order': 1, 'charged': True}" in ask('{"id": 1, "amount": 5}', 40)
    assert "caller.OrderDied: 'amount'" in ask('{"id": 2}', 40)
    worker.terminate(20)
    assert "caller.NoReply: " in ask('{"id": 3, "amount": 5}', 1)
