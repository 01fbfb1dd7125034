"""The files of a recorder: records, one a line, and the heartbeat of the driver process that wrote them.

STARTED_MS-PID.NUMBER.jsonl     records; names are in the order of time
STARTED_MS-PID.driver.json      who the process is, that it lives, and what runs in it
PID.trouble.txt                 why an agent could not begin
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.records.record import Record, parse_record
from lastgood.values import from_json

RECORD_FILE = re.compile(r"(?P<stem>\d{13}-\d+)\.\d{6}\.jsonl")
DRIVER_FILE = re.compile(r"(?P<stem>\d{13}-\d+)\.driver\.json")

TROUBLE_FILE = re.compile(r"\d+\.trouble\.txt")


@dataclass(frozen=True, slots=True)
class Records:
    """What a file holds."""

    records: tuple[Record, ...]
    unread: int
    """Lines that are no record: torn by the death of their writer, or of a newer lastgood."""


def parse_records(content: bytes) -> Records:
    """Read a record file, or a piece of one that begins with a whole line."""
    found = [parse_record(_parse_json(line)) for line in content.split(b"\n") if line]
    records = tuple(each for each in found if each is not None)
    return Records(records, len(found) - len(records))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningQuery:
    """A query of a driver."""

    query_id: str
    run_id: str
    query_name: str | None
    checkpoint: str | None
    """As Spark names it; None where Spark does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A heartbeat: a driver process, and what runs in it."""

    pid: int
    host: str
    process_started_at_ms: int
    """With `pid` and `host` the name of the process; on Linux what `psutil.Process.create_time` gives."""
    beat_at_ms: int
    """When the heartbeat was written; a driver that lives writes one every two seconds."""
    exited_at_ms: int | None
    """When it came to its end in order; None while it lives, and if it was killed."""
    python: str
    is_classic: bool
    """Whether Spark's own driver runs with this process: its sessions are not of Spark Connect."""
    queries: tuple[RunningQuery, ...]
    recorded: int
    dropped: int
    """Events without a record."""
    trouble: str | None
    """What went wrong last in the recorder."""
    held: tuple[str, ...] = ()
    """The runs among `queries`, by id, before whose start the agent stood."""
    has_unheld: bool = False
    """Whether others were seen in its Java, in whichever session."""


def parse_driver(content: bytes) -> Driver | None:
    """Read a heartbeat; None if it is none."""
    try:
        found: Driver = from_json(Driver, read_json(content))
    except ValueError:
        return None
    return found


def _parse_json(text: bytes) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return None


def sort_record_files(names: Iterable[str]) -> list[str]:
    """The record files among these names, oldest first."""
    return sorted(name for name in names if RECORD_FILE.fullmatch(name))
