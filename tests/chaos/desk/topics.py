"""The topics of the desk's chaos run, and what their records have their handlers do."""

from collections.abc import Mapping
from typing import Final

from tests.chaos.topics import COMPLETION, Topic

TOPICS: Final[Mapping[str, Topic]] = {
    "queued": Topic(("queued",)),
    "kept": Topic(("kept",), COMPLETION),
    "both": Topic(("both", "both_too"), COMPLETION),
    "keyed": Topic(("keyed",), {**COMPLETION, "order": "key"}),
    "steps": Topic(("first", "second"), {**COMPLETION, "order": "key", "sequence": ("first", "second")}),
    "parked": Topic(("parked",), COMPLETION),
}
#: What a record has its handler do (tests/handlers/curable.py) → how often. The number says how often it must be sent
#: back before it is done.
DOINGS: Final = {
    "ok": 500,
    "dead 1": 160,
    "dead 2": 60,
    "slow 1": 20,
    "fail 1": 60,
    "kill 1": 10,
    "dead 99": 20,
    "undecodable": 10,
    "huge 1": 10,
}
#: What nobody can cure by sending it back.
NEVER: Final = ("dead 99", "undecodable")
#: Most times that what can be cured must be sent back.
MOST: Final = 2
