"""What is no announcement of a worker is taken for none."""

from typing import Any

import pytest

from bridge.ledger.group_members import read_announcement


@pytest.mark.parametrize(
    "answer",
    [b"", b"no JSON", b"[]", b"7", b"{}", b'{"queues": null}', b'{"queues": "bridge"}', b'{"queues": [1]}'],
)
def test_what_others_wrote_is_no_worker(answer: bytes) -> None:
    assert read_announcement(answer, "workers") is None


@pytest.mark.parametrize(
    ("answer", "kind", "state"),
    [
        (b'{"queues": ["bridge"], "pid": 7}', "workers", {"queues": ["bridge"], "pid": 7}),
        (b'{"ready": true}', "bridges", {"ready": True}),
    ],
)
def test_a_member_is_as_it_said(answer: bytes, kind: Any, state: dict[str, Any]) -> None:
    found = read_announcement(answer, kind)
    assert found is not None
    assert {name: found[name] for name in state} == state
