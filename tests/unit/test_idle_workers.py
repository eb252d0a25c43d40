"""How soon the place of a notifier that is gone is taken."""

from time import monotonic
from typing import Any

import pytest

from lossless.transport.idle_workers import APPLY_WITHIN, IdleWorkerNotifier
from lossless.transport.storage_layout import TransportKeys


@pytest.mark.parametrize("rivals", [0, 1, 3, 50])
def test_a_free_place_is_applied_for_soon_however_many_died_with_the_one_who_had_it(rivals: int):
    notifier = IdleWorkerNotifier(None, TransportKeys(), lambda: True)

    def taken(*_: Any) -> list[int]:
        return [0]

    notifier.apply(taken, rivals)
    assert 0.1 < notifier._apply_at - monotonic() < 1.3 * APPLY_WITHIN
