"""The policy that is in force in a worker: the code's, with what a person has changed of it for the group.

Asked for when a handler has failed, so that what waits is judged by what is in force then. Changes that this version of
the code cannot take are said, once, and the code's policy is in force.
"""

import os
from collections.abc import Mapping
from typing import Any, Final

from celery import Celery

from bridge.records.policies import summary, values, words
from tasks import observing
from tasks.control import Control
from tasks.errors import HandlerError
from tasks.policy import Policy
from tasks.running import MessageTask

logger = observing.log(__name__)

#: By process, group and task: what was decided, as it was read, and the policy that came of it.
_known: Final[dict[tuple[int, str, str], tuple[Mapping[str, Any] | None, Policy]]] = {}


def policy_in_force(task: MessageTask[..., Any], group: str) -> Policy:
    """The policy by which a handler's failures are judged now."""
    if not group:
        return task.policy
    decided = Control.of(task.app, group).policy(main_name(task.app, task))
    key = (os.getpid(), group, task.name)
    known, policy = _known.get(key, (None, task.policy))
    if decided is not known:
        policy = _policy(task, decided)
        _known[key] = (decided, policy)
    return policy


def _policy(task: MessageTask[..., Any], decided: Mapping[str, Any] | None) -> Policy:
    if decided is None:
        logger.info("%s: its policy is the code's again.", task.name)
        return task.policy
    try:
        policy = task.changing.policy(values(decided))
    except HandlerError as error:
        logger.error(
            "%s: what was changed of its policy is not in force, its code's policy is: %s "
            "Set it anew, or take it back: bridge policy unset %s --why …",
            task.name,
            str(error),
            task.name,
        )
        return task.policy
    logger.info("%s: its policy is not its code's: %s, %s.", task.name, words(values(decided)), summary(decided))
    return policy


def main_name(app: Celery, task: MessageTask[..., Any]) -> str:
    """The name that a handler has now, for one of its names."""
    for name in (task.name, *task.other_names):
        if getattr(app.tasks.get(name), "source_topics", ()):
            return str(name)
    return str(task.name)
