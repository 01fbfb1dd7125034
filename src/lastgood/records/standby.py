"""What a driver that stands by tells of itself: a `.ready.json` of `lastgood.spark.agent.standby`."""

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
    content_ns: int
    changed_ns: int
    """When its content, and when anything of it was changed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyNote:
    """A process that waits before its first query, or says why it cannot."""

    pid: int
    master: str | None = None
    """Spark's: where its executors run."""
    cores: int | None = None
    """How many tasks these can run at once."""
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
