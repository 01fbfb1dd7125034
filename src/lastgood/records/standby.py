"""What a driver that stands by tells of itself: `ready.json` of `lastgood.spark.agent.standby`."""

from __future__ import annotations

from typing import NamedTuple

from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.values import from_json


class ReadFile(NamedTuple):
    """A file that it has read before its first query, and which one it was."""

    path: str
    device: int
    inode: int
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyNote:
    """A process that waits before its first query, or says why it cannot."""

    pid: int
    host: str
    process_started_at_ms: int
    told_at_ms: int
    master: str | None = None
    """Spark's: where its executors run."""
    cores: int | None = None
    """How many tasks these can run at once."""
    application_id: str | None = None
    files: tuple[ReadFile, ...] = ()
    warmed: tuple[str, ...] | None = None
    """What is warm, in a few words each; None as long as more is being warmed."""
    refused: str | None = None
    """Why it cannot wait; None: it waits."""


def parse_standby(content: bytes) -> StandbyNote | None:
    """Read a note; None if it is none."""
    try:
        found: StandbyNote = from_json(StandbyNote, read_json(content))
    except ValueError:
        return None
    return found
