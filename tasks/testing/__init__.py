"""Tests of handlers without Kafka, Redis and workers.

`outcome` runs a handler on a record, and says what becomes of the delivery. `crash_everywhere` kills it at every point,
runs it again as the system would, and says which effects doubled or were lost.
"""

from tasks.testing.crash_experiment import crash_everywhere
from tasks.testing.crash_points import CrashPoint
from tasks.testing.crash_report import CrashExperiment, CrashReport
from tasks.testing.effect_comparison import EffectFault
from tasks.testing.fake_service import FakeService
from tasks.testing.handler_outcome import Outcome, limit_key, outcome, outcome_of, outcomes, unique_name

__all__ = [
    "CrashExperiment",
    "CrashPoint",
    "CrashReport",
    "EffectFault",
    "FakeService",
    "Outcome",
    "crash_everywhere",
    "limit_key",
    "outcome",
    "outcome_of",
    "outcomes",
    "unique_name",
]
