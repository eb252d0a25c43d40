"""What becomes of a delivery whose handler has failed: its policy says so, and the breaker of what it needs."""

from typing import Any

from bridge.records.message import Batch, Delivery
from tasks import telling
from tasks.attempt import Attempts
from tasks.breaking import Breaking
from tasks.errors import RetryAsked
from tasks.parking import Parking
from tasks.policy import Decision, Policy, is_listed
from tasks.policy_in_force import policy_in_force
from tasks.running import MessageTask


def cause_of(error: BaseException) -> BaseException:
    """What made a handler ask for a retry; else what it raised."""
    return error.error if isinstance(error, RetryAsked) and error.error else error


class Judging:
    """For the deliveries of one batch.

    Parameters:
        attempts: within whose time limits a function of the user's is asked.
        parking: which knows how long a wait really is.
    """

    def __init__(
        self, task: MessageTask[..., Any], batch: Batch, attempts: Attempts, parking: Parking, breaking: Breaking
    ) -> None:
        self._task, self._group = task, batch.group
        self._attempts, self._parking, self._breaking = attempts, parking, breaking

    def decision(self, delivery: Delivery, error: BaseException, now: float) -> Decision:
        """What is to be done with it.

        Parameters:
            now: seconds since the epoch.
        """
        policy, cause = policy_in_force(self._task, self._group), cause_of(error)
        decision = self._by_policy(policy, delivery, error, now)
        return self._breaking.judged(delivery, cause, decision, self._is_its_own(policy, cause))

    def _is_its_own(self, policy: Policy, cause: BaseException) -> bool:
        """Whether a person has named the error, while workers run, as one to die of: it tells nothing more."""
        named = policy.dead_letter_for
        return named != self._task.policy.dead_letter_for and is_listed(cause, named)

    def _by_policy(self, policy: Policy, delivery: Delivery, error: BaseException, now: float) -> Decision:
        failed, real = delivery.attempts.failed, self._parking.real
        age = 0.0 if delivery.first_failed_at is None else now - delivery.first_failed_at / 1000
        if policy.retry_when is None:
            return policy.decide(error, failed, age, real=real, once=delivery.once)
        return self._attempts.judged(
            lambda: policy.decide(
                error,
                failed,
                age,
                real=real,
                once=delivery.once,
                message=delivery.message,
                report=lambda fault: telling.not_taken(delivery, fault),
            )
        )
