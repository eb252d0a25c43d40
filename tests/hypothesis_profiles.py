"""How many examples a property is tried with: few in `make test`, the whole number with the slow tests."""

from typing import Final

from hypothesis import HealthCheck, settings

#: The number of examples of a property that names none, in the quick profile and in the full one.
QUICK: Final = 15
FULL: Final = 100


def register_profiles() -> None:
    """Register both profiles, and load the quick one; `--hypothesis-profile=full` loads the other."""
    # No test is timed: other tests run beside it, on a machine that may be shared.
    shared = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("quick", shared, max_examples=QUICK)
    settings.register_profile("full", shared, max_examples=FULL)
    settings.load_profile("quick")


def examples(full: int) -> int:
    """Return the number of examples in this run for a property that has `full` of them in the full profile."""
    return full if settings().max_examples >= FULL else max(4, full * QUICK // FULL)
