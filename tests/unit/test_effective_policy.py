"""The policy by which a worker judges: the code's, with what a person has changed of it."""

from collections.abc import Mapping
from typing import Any

import pytest

from bridge.formats.delivery import Delivery, Message
from bridge.formats.group_decision import set_policy_options
from tasks import app, handler
from tasks.declaration.message_task import HandlerRun
from tasks.errors import RetryAsked
from tasks.policy import effective_decisions
from tasks.policy.effective_decisions import DecisionCache
from tasks.policy.retry_policy import RetryPolicy


@handler("orders", name="unit.judged", aliases=("unit.old_name",), bind=True, max_retries=3, retry_jitter=False)
def judged(self: Any, order: Any) -> None:
    raise self.retry()


@handler("orders", name="unit.listed", retry_delays=(5, 10))
def listed(order: Any) -> None: ...


class Decided:
    """What was decided for the group, as far as it is asked for."""

    def __init__(self) -> None:
        self.data: dict[str, Mapping[str, Any] | None] = {}

    def policy(self, handler: str) -> Mapping[str, Any] | None:
        return self.data.get(handler)

    def set(self, handler: str, **changes: Any) -> None:
        self.data[handler] = set_policy_options(self.data.get(handler), changes, "ann", 1.0, "the bank is slow")


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Decided:
    made = Decided()
    monkeypatch.setattr(DecisionCache, "get_cache", lambda app, group: made)
    monkeypatch.setattr(effective_decisions, "_known_policies", {})
    return made


def now(task: Any = judged) -> RetryPolicy:
    return effective_decisions.find_effective_policy(task, "shop")


def test_what_was_changed_is_in_force_until_it_is_taken_back(decided, caplog):
    caplog.set_level("INFO")
    assert now() is judged.policy
    decided.set("unit.judged", max_retries=20)
    assert now().retries == 20
    assert now() is now()
    decided.set("unit.judged", retry_backoff_max=3600)
    assert (now().retries, now().longest_delay) == (20, 3600)
    decided.data["unit.judged"] = None
    assert now() is judged.policy
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "its policy is not its code's: max_retries=20, changed by ann at 1970-01-01T00:00:01+00:00.",
        "its policy is not its code's: max_retries=20 retry_backoff_max=3600, "
        "changed by ann at 1970-01-01T00:00:01+00:00.",
        "its policy is the code's again.",
    ]


def test_what_the_code_cannot_take_is_said_once_and_the_codes_policy_is_in_force(decided, caplog):
    decided.set("unit.listed", max_retries=20, give_up_after=60)
    for _ in range(3):
        assert now(listed) is listed.policy
    (line,) = caplog.messages
    assert "unit.listed: max_retries has no effect beside retry_delays" in line
    assert "bridge policy unset unit.listed" in line


@pytest.mark.parametrize("data", [{"gone": {"is": 1}}, {"max_retries": {"is": []}}, {"retry_delays": {"is": 5}}])
def test_whatever_was_decided_a_worker_judges(decided, data):
    decided.data["unit.judged"] = data
    assert now() is judged.policy


def test_a_delivery_under_an_old_name_is_judged_by_the_policy_of_the_handler(decided):
    decided.set("unit.judged", max_retries=20)
    assert now(app.tasks["unit.old_name"]).retries == 20


def test_a_message_of_no_group_is_judged_by_the_code(decided):
    decided.set("unit.judged", max_retries=20)
    assert effective_decisions.find_effective_policy(judged, "") is judged.policy


def test_self_retry_goes_by_what_is_in_force(decided):
    decided.set("unit.judged", max_retries=20, retry_backoff=7)
    task: Any = judged
    task.push_request(headers={"kafka": {}}, called_directly=False, id="x")
    try:
        with HandlerRun(task, failures=2, group="shop"), pytest.raises(RetryAsked) as asked:
            task.call(Delivery(Message("orders", 0, 1, value=b"1"), "unit.judged").message)
        assert (asked.value.delay, asked.value.limit) == (28, 20)
    finally:
        task.pop_request()
