"""What a plan does to sinks: rows and mark of a Delta table, entries of a file sink's log. Values only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from lastgood.checkpoint.layout import SINK_LOG
from lastgood.delta_log.actions import Transaction
from lastgood.sinks.delta.sink import DeltaSink
from lastgood.sinks.files.sink import FileSink
from lastgood.storage.reading import LocationInvalidError, parse_location

_ENTRY = re.compile(rf"{SINK_LOG}/(?:(\d{{1,18}})(?:\.compact)?|\.(\d{{1,18}})(?:\.compact)?\.crc)")


@dataclass(frozen=True, slots=True)
class SinkEdit:
    """A sink goes back, rows and mark."""

    kind: str
    location: str
    app_id: str | None
    """Delta: whose mark it is."""
    batch: int
    """The newest batch that it shows then."""
    why: str
    """One line for a person."""
    renews: bool = False
    """Delta: it shows the batch already, and only the mark, which has expired, is made again."""
    after: int | None = None
    """Delta: it shows this batch and no later one, and the numbers above, up to `batch`, are used up without a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaStep:
    """One version of a Delta table moves the mark of the query, and takes out what batches above it put in.

    A mark that goes up, without a row, uses numbers up: a driver that is still inside such a batch writes nothing any
    more, neither when it began before, which is a conflict, nor after, since the batch counts as written. A mark that
    stays has expired, and is made again.
    """

    table: str
    table_id: str
    mark: Transaction
    """The mark of the query when the plan was made; of one that is made again the last that there was."""
    batch: int
    """The batch that the table shows then; its mark says the same."""
    version: int
    """The newest version of the table when the plan was made."""
    versions: tuple[int, ...]
    """Those whose files go; none if somebody has taken the rows back already, and only the mark is too high."""
    why: str
    """One line for a person."""

    @property
    def path(self) -> str:
        """What it touches."""
        return self.table

    @property
    def uses_up(self) -> bool:
        """Whether it uses up the number of a batch."""
        return self.batch > self.mark.version

    @property
    def renews(self) -> bool:
        """Whether it makes a mark again that has expired."""
        return self.batch == self.mark.version

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        if self.renews:
            return f"put the mark of batch {self.batch}, which has expired, back into {self.table}: {self.why}"
        if self.uses_up:
            end = "a driver that is still inside it can write nothing any more"
            return f"mark batch {self.batch} as written in {self.table}, without rows: {self.why}; {end}"
        what = "rows and mark" if self.versions else "the mark"
        return f"take {what} of {self.table} back from batch {self.mark.version} to {self.batch}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        if self.renews:
            kept = "the history of the table keeps both"
            return f"make the mark of batch {self.batch} in {self.table} as old as it was, by one more version: {kept}"
        what = "put the mark" if self.uses_up or not self.versions else "put rows and mark"
        return f"{what} of batch {self.mark.version} back into {self.table}, by one more version"

    @property
    def effect(self) -> str | None:
        """What others will see of it; one line for a person."""
        if not self.versions:
            return None
        told = "finds rows removed, and stops; with skipChangeCommits it never learns of it"
        return f"a stream that reads {self.table} {told}"

    def to_json(self) -> dict[str, Any]:
        """The object in `steps` of a plan."""
        return {
            "do": self.do,
            "undo": self.undo,
            "effect": self.effect,
            "kind": "delta",
            "table": self.table,
            "table_id": self.table_id,
            "app_id": self.mark.app_id,
            "mark": self.mark.version,
            "mark_updated_ms": self.mark.last_updated_ms,
            "batch": self.batch,
            "version": self.version,
            "versions": list(self.versions),
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class FileSinkStep:
    """An entry of a file sink's log is set aside; the files that it lists no longer count."""

    sink: str
    entry: str
    """Below the sink: `_spark_metadata/7`, or the checksum of that."""
    size: int
    """Bytes that it had when the plan was made."""
    why: str
    """One line for a person."""

    @property
    def path(self) -> str:
        """What it touches."""
        return f"{self.sink}/{self.entry}"

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
        return f"who reads {self.sink} by its files, and not by {SINK_LOG}, goes on seeing the rows, and then twice"

    def to_json(self) -> dict[str, Any]:
        """The object in `steps` of a plan."""
        return {
            "do": self.do,
            "undo": self.undo,
            "effect": self.effect,
            "kind": "file_sink",
            "sink": self.sink,
            "path": self.entry,
            "size": self.size,
            "why": self.why,
        }


SinkStep: TypeAlias = DeltaStep | FileSinkStep


def parse_sink_step(told: object) -> SinkStep | None:
    """Read one of `steps` of a plan; None if it is not about a sink.

    Raises:
        ValueError: it touches what no step may touch; the message is one line for a person.
    """
    match told:
        case {
            "kind": "delta",
            "table": str(table),
            "table_id": str(table_id),
            "app_id": str(app_id),
            "mark": int(mark),
            "mark_updated_ms": int() | None as updated_ms,
            "batch": int(batch),
            "version": int(version),
            "versions": [*versions],
            "why": str(why),
        } if batch >= 0 <= mark and all(isinstance(each, int) and 0 <= each <= version for each in versions):
            if versions and batch >= mark:
                raise ValueError("versions of a table can go only with a lower mark")
            _require_location(table)
            return DeltaStep(
                table=table,
                table_id=table_id,
                mark=Transaction(app_id, mark, updated_ms),
                batch=batch,
                version=version,
                versions=tuple(versions),
                why=why,
            )
        case {"kind": "file_sink", "sink": str(sink), "path": str(entry), "size": int(size), "why": str(why)}:
            _require_location(sink)
            step = FileSinkStep(sink, entry, size, why)
            return step if step.batch > 0 else None
    return None


def sink_edits(steps: Iterable[object]) -> tuple[SinkEdit, ...]:
    """What the steps of a plan come to, one for each sink that they touch."""
    found: dict[str, SinkEdit] = {}
    for step in steps:
        if isinstance(step, DeltaStep):
            after = step.mark.version if step.uses_up else None
            found[step.table] = SinkEdit(
                DeltaSink.kind, step.table, step.mark.app_id, step.batch, step.why, renews=step.renews, after=after
            )
        if isinstance(step, FileSinkStep):  # the oldest of them comes last
            found[step.sink] = SinkEdit(FileSink.kind, step.sink, None, step.batch - 1, step.why)
    return tuple(found.values())


def entry_rank(step: FileSinkStep) -> tuple[int, int]:
    """The order in which entries go: the newest first, so that what is left can always be read."""
    return -step.batch, int(step.entry.endswith(".crc"))


def _require_location(text: str) -> None:
    try:
        parse_location(text)
    except LocationInvalidError as error:
        raise ValueError(f"{text} is no location of a sink") from error
