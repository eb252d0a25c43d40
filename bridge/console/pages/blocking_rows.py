"""The part of a topic's page with what holds each partition back, and in an ordered topic who waits behind whom."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console
from bridge.console.auth import permissions as may
from bridge.console.pages.status_rows import PartitionRow, build_partition_rows, describe_breaker
from bridge.console.shown_record import mask_content, require_source_topic
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.inspection.blocking_records import BlockingRecord, BlockReport, WaitingLane, find_blocking_records
from bridge.inspection.record_content import RecordContent
from bridge.kafka.partition_offsets import group_unreadable
from bridge.ledger import Fate

#: The words for the fates of deliveries that hold a partition back.
FATE_WORDS: Mapping[Fate, str] = {
    Fate.OPEN: "not handed off",
    Fate.HANDED: "in flight",
    Fate.PARKED: "parked for a retry",
    Fate.DEAD: "dead",
}


class BlockRow(NamedTuple):
    """A partition and the record that holds it back.

    Attributes:
        key: masked; `None`: it has none, or Kafka does not give the record.
        is_known: whether Kafka gives the record.
        handlers: each with the words for its fate.
        since: ms since the epoch: when the delivery was handed off, or else the record was written.
        handed: whether `since` is the hand-off.
        do: what to do, a sentence; `remedy`: the words and the address of the page for that, if there is one.
    """

    partition: int
    offset: int
    name: str
    key: bytes | None
    is_known: bool
    handlers: list[tuple[str, str]]
    behind: int
    since: int | None
    handed: bool
    do: str
    remedy: tuple[str, str] | None

    @property
    def address(self) -> str:
        """Return the address of the record's page."""
        return find_record_address(self.name)


class LaneRow(NamedTuple):
    """The deliveries that wait behind one.

    Attributes:
        fate: of the first one, in words.
        since: when the first record was written, ms since the epoch.
        waiting: the offsets of the first ones that wait; `waits`: how many do.
    """

    partition: int
    handler: str
    key: bytes | None
    offset: int
    name: str
    fate: str
    since: int | None
    waiting: tuple[int, ...]
    waits: int

    @property
    def address(self) -> str:
        """Return the address of the first record's page."""
        return find_record_address(self.name)


def find_record_address(name: str) -> str:
    """Return the address of the page of a record, such as `orders-3-1234`."""
    topic, partition, offset = name.rsplit("-", 2)
    return f"/topics/{topic}/records/{partition}/{offset}"


def show_blocking(request: Request) -> Response:
    """Show what holds each partition of a topic back: a part of its page, read from Kafka and the ledger."""
    here, topic = console.get_console(request), request.path_params["topic"]
    return here.page(request, "blocking-records.html", **build_blocking(request, topic))


def build_blocking(request: Request, topic: str) -> dict[str, Any]:
    """Return the values of the part."""
    here, masks = console.get_console(request), console.get_masks(request)
    require_source_topic(here.desk, topic)
    try:
        report = find_blocking_records(here.desk.settings, here.desk.routes, topic)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        return {"report": None, "why": str(error), "rows": [], "lanes": [], "unreadable": []}
    group_status = here.status_cache.read()
    status: Mapping[str, Any] = {} if group_status is None else group_status.status
    partitions = {row.number: row for row in build_partition_rows(topic, status)}
    rows = [
        _build_row(here.desk, masks, topic, block, partitions.get(number), status)
        for number, block in sorted(report.records.items())
    ]
    if console.get_principal(request).role < may.RESUME_TOPIC:
        # The sentence says what is to be done; the page for it is closed to this role.
        rows = [row._replace(remedy=None) if is_resumption(row) else row for row in rows]
    lanes = [_build_lane(here.desk, masks, lane) for lane in report.lanes]
    return {"report": report, "why": "", "rows": rows, "lanes": lanes, "unreadable": _list_unreadable(report)}


def is_resumption(row: BlockRow) -> bool:
    """Return whether the remedy of a row is to resume what is halted."""
    return row.remedy is not None and row.remedy[1].endswith("/resume")


def _list_unreadable(report: BlockReport) -> list[str]:
    return group_unreadable(report.unreadable)


def _read_key(desk: DeadLetterService, masks: LetterMasks, content: RecordContent | None) -> bytes | None:
    return None if content is None else mask_content(desk, masks, content).key


def _build_row(
    desk: DeadLetterService,
    masks: LetterMasks,
    topic: str,
    block: BlockingRecord,
    partition: PartitionRow | None,
    status: Mapping[str, Any],
) -> BlockRow:
    do, remedy = advise_on_block(topic, block, partition, status)
    produced = None if block.content is None else block.content.timestamp
    handed = None if block.handed_at is None else round(block.handed_at * 1000)
    return BlockRow(
        block.partition,
        block.offset,
        f"{topic}-{block.partition}-{block.offset}",
        _read_key(desk, masks, block.content),
        block.content is not None,
        [(name, FATE_WORDS[fate]) for name, fate in block.fates.items()],
        block.behind,
        produced if handed is None else handed,
        handed is not None,
        do,
        remedy,
    )


def _build_lane(desk: DeadLetterService, masks: LetterMasks, lane: WaitingLane) -> LaneRow:
    head = lane.head
    return LaneRow(
        lane.partition,
        lane.handler,
        _read_key(desk, masks, head),
        head.offset,
        head.name,
        FATE_WORDS[lane.fate],
        head.timestamp,
        lane.waiting,
        lane.count,
    )


def advise_on_block(
    topic: str, block: BlockingRecord, partition: PartitionRow | None, status: Mapping[str, Any]
) -> tuple[str, tuple[str, str] | None]:
    """Return what to do about a blocking record, and the page for that (pure)."""
    if topic in status.get("halted", {}):
        return "The topic is halted: resume it.", ("Resume…", f"/topics/{topic}/resume")
    fates = set(block.fates.values())
    if Fate.DEAD in fates:
        return "Its dead letter holds its order: replay or discard it.", ("Find its letter", _find(topic, block))
    for name, fate in block.fates.items():
        if fate is not Fate.OPEN and (found := _find_obstacle(topic, name, status)) is not None:
            return found
    if Fate.PARKED in fates:
        return (
            "It waits in a retry topic until its next attempt, and holds its order until then.",
            ("When it is due", _find(topic, block)),
        )
    if Fate.HANDED in fates:
        return (
            "A worker has it, or it waits for its retry. If it is older than its handler takes: see its attempts, and "
            "whether workers run.",
            ("Where it is", _find(topic, block)),
        )
    if partition is not None and partition.bridge == "":
        return "No bridge has this partition: start one (`bridge run`).", None
    if partition is not None and partition.paused:
        return f"The bridge has paused this partition: {partition.paused}.", None
    return "Nothing: it is the next that the bridge hands off.", None


def _find_obstacle(topic: str, handler: str, status: Mapping[str, Any]) -> tuple[str, tuple[str, str] | None] | None:
    """Return what keeps a handler from running, and the page for that."""
    halts = [each for each in status.get("halted_handlers", ()) if (each["topic"], each["handler"]) == (topic, handler)]
    if any(each["key"] is None for each in halts):
        return f"Its handler {handler} is halted: resume it.", ("Resume…", f"/topics/{topic}/resume")
    for name, breaker in sorted(status.get("breakers", {}).items()):
        if handler in breaker["handlers"]:
            words = describe_breaker(breaker)
            return (
                f"The circuit breaker {name} of {handler} is {words}: restore that dependency.",
                (f"Handler {handler}", f"/handlers/{handler}"),
            )
    return None


def _find(topic: str, block: BlockingRecord) -> str:
    return f"/find?q={topic}-{block.partition}-{block.offset}"
