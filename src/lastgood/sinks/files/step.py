"""What a plan does to a file sink: entries of its log go. Values only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lastgood.checkpoint.layout import SINK_LOG
from lastgood.sinks.files.kind import FILE_SINK
from lastgood.steps.step import Rank, SinkEdit, Step, Turn, require_location

_ENTRY = re.compile(rf"{SINK_LOG}/(?:(\d{{1,18}})(?:\.compact)?|\.(\d{{1,18}})(?:\.compact)?\.crc)")


@dataclass(frozen=True, slots=True)
class FileSinkStep(Step):
    """An entry of a file sink's log is set aside; the files that it lists no longer count."""

    kind: ClassVar = "file_sink"

    folder: str
    """The sink."""
    entry: str
    """Below the sink: `_spark_metadata/7`, or the checksum of that."""
    size: int
    """Bytes that it had when the plan was made."""
    why: str
    """One line for a person."""

    @property
    def path(self) -> str:
        """What it touches."""
        return f"{self.folder}/{self.entry}"

    @property
    def batch(self) -> int:
        """The batch whose entry it is."""
        found = _ENTRY.fullmatch(self.entry)
        if found is None:
            raise ValueError(f"{self.entry} is no entry of a file sink's log")
        return int(found[1] or found[2])

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        return f"set aside {self.path}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        return f"put {self.path} back"

    @property
    def effect(self) -> str:
        """What others will see of it; one line for a person."""
        return f"who reads {self.folder} by its files, and not by {SINK_LOG}, goes on seeing the rows, and then twice"

    @property
    def rank(self) -> Rank:
        """With the sinks, the newest entry first, so that what is left can always be read; its checksum after it."""
        return Turn.SINK, -self.batch, int(self.entry.endswith(".crc")), self.path

    @property
    def edit(self) -> SinkEdit:
        """The sink goes back to the batch before; of several steps the last one has the oldest entry."""
        return SinkEdit(FILE_SINK.name, self.folder, None, self.batch - 1, self.why)

    def to_json(self) -> dict[str, Any]:
        """The object in `steps` of a plan."""
        return {
            "do": self.do,
            "undo": self.undo,
            "effect": self.effect,
            "kind": self.kind,
            "sink": self.folder,
            "path": self.entry,
            "size": self.size,
            "why": self.why,
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> FileSinkStep | None:
        """Read what `to_json` gave; see `Step.of`."""
        match told:
            case {"sink": str(sink), "path": str(entry), "size": int(size), "why": str(why)}:
                require_location(sink)
                step = cls(sink, entry, size, why)
                return step if step.batch > 0 else None
        return None
