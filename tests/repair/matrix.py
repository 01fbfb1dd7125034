"""Which damage is tried with which sink, source and goal; and the file that keeps how each of them came out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.cases import Case
from conformance.edits import Edit
from conformance.flavours import FLAVOURS
from repair.repairs import GOALS, NO, WHOLE, Repair

VERSION = "4.2.0"
FILE = Path(__file__).with_name("matrix.jsonl")
SINKS = {"file-delta": "Delta", "file-sink": "file sink", "files": "foreachBatch"}
TOPIC_SINKS = {"kafka-delta": "Delta", "kafka": "foreachBatch"}
_BOTH = ["offsets", "commits"]
_TOPIC = re.compile(r"kafka(?:-delta)?-\d+-[0-9a-f]{6}")
_CONTENT = re.compile(r"(cannot be read: [\w ]+):.*")


@dataclass(frozen=True)
class Damage:
    """One thing that happens to a query."""

    name: str
    """For a person; the row of the page."""
    edits: tuple[Edit, ...] = ()
    of_topic: bool = False
    """Whether only what reads Kafka can have it."""


def damages(newest: int) -> tuple[Damage, ...]:
    """All of them, for a query whose newest batch has this number."""
    top, top_two = [newest], [newest - 1, newest]

    def without(logs: list[str], batches: list[int]) -> Edit:
        return Edit("remove_entries", {"logs": logs, "batches": batches, "crc": "none"})

    def rewrite(log: str, how: str, batch: int = newest, crc: str = "none") -> Edit:
        return Edit("rewrite", {"log": log, "batch": batch, "how": how, "crc": crc})

    def orphan(by: int) -> tuple[Edit, ...]:
        ahead = Edit("copy_ahead", {"logs": ["offsets"], "batch": newest, "by": 1})
        return ahead, Edit("move_offset", {"batch": newest + 1, "source": 0, "by": by, "crc": "fresh"})

    def all_expired(by: int) -> Edit:
        return Edit("expire_records", {"partitions": {"0": 20 + by, "1": 20 + by}})

    gone = tuple(Edit("remove_log", {"log": log}) for log in ("offsets", "commits", "sources"))
    return (
        Damage("nothing"),
        Damage("died after the sink wrote, before the commit", (without(["commits"], top),)),
        Damage("died before the sink wrote", orphan(3), of_topic=True),
        Damage("the newest batch lost from both logs", (without(_BOTH, top),)),
        Damage("the newest two batches lost from both logs", (without(_BOTH, top_two),)),
        Damage("the newest two commits lost", (without(["commits"], top_two),)),
        Damage("the newest plan lost, its commit kept", (without(["offsets"], top),)),
        Damage("the newest plan empty", (rewrite("offsets", "empty"),)),
        Damage("the newest plan cut off", (rewrite("offsets", "cut-metadata"),)),
        Damage("the newest plan garbage", (rewrite("offsets", "garbage"),)),
        Damage("the newest commit empty", (rewrite("commits", "empty"),)),
        Damage("the newest plan empty, with its old checksum", (rewrite("offsets", "empty", crc="stale"),)),
        Damage("the query id lost (`metadata`)", (Edit("damage_metadata", {"how": "missing"}),)),
        Damage("the query id cut off", (Edit("damage_metadata", {"how": "cut"}),)),
        Damage("the commit log lost", (Edit("remove_log", {"log": "commits"}),)),
        Damage("the offset log lost", (Edit("remove_log", {"log": "offsets"}),)),
        Damage("the source's own log lost", (Edit("remove_log", {"log": "sources/0"}),)),
        Damage("the whole checkpoint lost", (*gone, Edit("damage_metadata", {"how": "missing"}))),
        Damage(
            "a foreign file in the offset log",
            (Edit("add_foreign", {"log": "offsets", "name": "readme.txt", "kind": "file"}),),
        ),
        Damage(
            "a temporary file left in the offset log",
            (Edit("add_foreign", {"log": "offsets", "name": f"{newest}.bak", "kind": "file"}),),
        ),
        Damage("unread records expired", (all_expired(3),), of_topic=True),
        Damage("all unread records expired", (all_expired(100),), of_topic=True),
        Damage("records of a planned batch expired", (*orphan(5), all_expired(3)), of_topic=True),
        Damage(
            "the topic created again, shorter",
            (Edit("recreate_topic", {"partitions": 2, "records": 5}),),
            of_topic=True,
        ),
        Damage("partitions added", (Edit("add_partitions", {"partitions": 1, "first": 0, "end": 5}),), of_topic=True),
        Damage("the topic deleted", (Edit("delete_topic", {}),), of_topic=True),
    )


def repairs(flavour: str, damage: Damage) -> Iterator[Repair]:
    """Every goal, with a mirror where it rests on one; and without one what does not have to."""
    kind = FLAVOURS[flavour].kind
    case = Case(VERSION, flavour, damage.edits, "matrix")
    for goal in GOALS:
        if goal == "reposition" and kind != "kafka":
            continue  # only offsets of Kafka can be chosen
        for mirror in (WHOLE,) if goal == "fresh" else (NO, WHOLE) if goal == "resume" else (NO,):
            yield Repair(case, goal, mirror)


@dataclass(frozen=True)
class Seen:
    """How one of them came out; a line of the file."""

    damage: str
    source: str
    sink: str
    goal: str
    mirror: bool
    word: str
    """The plan's, or `refused`."""
    is_plain: bool
    """Whether it was Spark's own restart."""
    because: str
    """Why it was refused."""
    lost: int | None
    """Rows; None if Spark was not started."""
    twice: int | None
    spark: str
    date: str
    """The day on which it was first seen to come out so."""

    @property
    def cell(self) -> tuple[Any, ...]:
        """What tells it from the others."""
        return self.source, self.sink, self.damage, self.goal, self.mirror

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All but the day."""
        return tuple(value for name, value in asdict(self).items() if name != "date")


def reason(because: str) -> str:
    """Why something was refused, in the words that it is always refused with."""
    return _CONTENT.sub(r"\1", _TOPIC.sub("orders", because))


def recorded() -> list[Seen]:
    """What the file holds."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return [Seen(**json.loads(line)) for line in lines]


def record(found: list[Seen]) -> None:
    """Keep what was seen; where it came out as before, the file stays as it is."""
    kept = {each.cell: each for each in recorded()}
    for each in found:
        if each.cell not in kept or kept[each.cell].outcome != each.outcome:
            kept[each.cell] = each
    lines = [json.dumps(asdict(kept[cell])) for cell in sorted(kept)]
    FILE.write_text("".join(f"{line}\n" for line in lines))
