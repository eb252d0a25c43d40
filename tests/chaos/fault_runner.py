"""A schedule of faults is carried out."""

import threading
import time
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

import pytest

from tests.chaos.faults import Done
from tests.chaos.schedule import Fault
from tests.chaos.verdict import Happened
from tests.chaos.world import World

W = TypeVar("W", bound=World)


class Run(Generic[W]):
    """A schedule as it is carried out: a thread a lane.

    Parameters:
        act: does a fault, to its end.
        seconds: of the schedule.

    Attributes:
        happened: what was done.
        failed: what could not be begun or ended; what it broke stays broken.
        skipped: what there was nothing to do for, or no time.
        log: what was done when, in words.
    """

    def __init__(self, world: W, faults: list[Fault], act: Callable[[W, Fault], Done | None], seconds: float) -> None:
        self._world, self._faults, self._act, self._seconds = world, faults, act, seconds
        self.happened: list[Happened] = []
        self.failed: list[str] = []
        self.skipped: list[str] = []
        self.log: list[str] = []
        self._begun = 0.0

    def to_the_end(self) -> None:
        """Do all that is scheduled."""
        self._begun = time.monotonic()
        lanes = sorted({fault.lane for fault in self._faults})
        threads = [threading.Thread(target=self._lane, args=(lane,), daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _lane(self, lane: str) -> None:
        for fault in self._faults:
            if fault.lane != lane:
                continue
            if time.monotonic() - self._begun > 1.3 * self._seconds:
                self.skipped.append(f"too late: {fault}")
                continue
            time.sleep(max(0.0, self._begun + fault.at - time.monotonic()))
            begun = time.time()
            try:
                done = self._act(self._world, fault)
            except (Exception, pytest.fail.Exception) as error:
                # What is broken stays so, and is told at the end.
                self.failed.append(f"{fault}: {traceback.format_exc()}{error}")
                return
            if done is None:
                self.skipped.append(str(fault))
                continue
            self.happened.append(Happened(fault.lane, fault.kind, begun, time.time(), done.pids))
            self.log.append(f"{begun:.2f} {fault}  {time.time() - begun:5.2f} s  {done.words}")
