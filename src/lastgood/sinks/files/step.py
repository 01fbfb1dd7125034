"""What a plan does to a file sink: entries of its log go. Values only."""

from __future__ import annotations

import re
from typing import ClassVar

from lastgood.checkpoint.layout import SINK_LOG
from lastgood.frozen import dataclass
from lastgood.sinks.files.kind import FILE_SINK
from lastgood.steps.step import Rank, SinkEdit, Step, Turn, require_location
from lastgood.values import make_form

_ENTRY = re.compile(rf"{SINK_LOG}/(?:(\d{{1,18}})(?:\.compact)?|\.(\d{{1,18}})(?:\.compact)?\.crc)")


@dataclass(frozen=True, slots=True)
class FileSinkStep(Step):
    """An entry of a file sink's log is set aside; the files that it lists no longer count."""

    json = make_form("do undo effect kind sink=folder path=entry size why", check=lambda step: step.require_sound())
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

    def require_sound(self) -> None:
        """See that its fields make a step together.

        Raises:
            ValueError: they do not; the message is one line for a person.
        """
        require_location(self.folder)
        if self.batch <= 0:
            raise ValueError(f"{self.entry} is no entry of a sink that has one before it")
