"""A checkpoint with a sink, in memory or elsewhere, and a plan by which the sink goes first; an engine to be killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from repair.engine_cases import SINK, Case, OurLease

from lastgood.delta_log.actions import Transaction
from lastgood.delta_log.listing import name_commit
from lastgood.journal.room import Room
from lastgood.planning.plan import PlannedSink
from lastgood.recovery.engine import Engine, Surveyor
from lastgood.sinks.delta.step import DeltaStep
from lastgood.sinks.files.step import FileSinkStep
from lastgood.steps.step import Step
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import WritableStorage
from lastgood.testing.storage import MemoryWriter

KINDS = ("rows", "mark", "number", "expired", "files")
Q = "9818c18b-9839-4690-99f7-f5f3cde02c1d"
ENTRIES = ("_spark_metadata/8", "_spark_metadata/.8.crc", "_spark_metadata/7")


class SinkCase(Case):
    """A query whose orphan 8 is dropped; before that its sink goes back, or the number 8 is used up in it."""

    def __init__(self, kind: str, storage: WritableStorage | None = None, lake: Location | None = None) -> None:
        storage, lake = storage or MemoryWriter(), lake or parse_location("/lake")
        self.kind, self.storage = kind, storage
        self.table, self.folder = lake / "table", lake / "folder"
        self.newest = {"mark": 7, "number": 7}.get(kind, 8)
        self.make_table()
        if kind == "mark":
            self.version(8, [{"txn": {"appId": Q, "version": 8, "lastUpdated": 9}}])
        for entry in ENTRIES:
            storage.write(self.folder / entry, b"v1")
        super().__init__("drop", storage, lake / "orders")
        self.shown_before = self.shown()

    def planned_sinks(self) -> tuple[PlannedSink, ...]:
        if self.kind == "files":
            return (replace(SINK, kind="file", location=str(self.folder)),)
        return (replace(SINK, location=str(self.table), fence=Q),)

    def steps(self, kind: str) -> Iterator[Step]:
        if self.kind == "files":
            yield from (FileSinkStep(str(self.folder), entry, 2, "test") for entry in ENTRIES[:2])
        else:
            marks = {"rows": (8, 7), "mark": (8, 7), "number": (7, 8), "expired": (8, 8)}
            was, then = marks[self.kind]
            yield DeltaStep(
                table=str(self.table),
                table_id="t",
                mark=Transaction(Q, was, 9),
                batch=then,
                version=self.newest_version(),
                versions=(8,) if self.kind == "rows" else (),
                why="test",
            )
        yield from super().steps(kind)

    def engine(
        self,
        storage: WritableStorage | None = None,
        lease: object = None,
        settle: Callable[[], None] = lambda: None,
    ) -> Engine:
        used = storage or self.storage
        surveyor = Surveyor(sinks=lambda: self.sinks, promise=self.promise, open_sink=lambda _: used)
        room = Room(self.location, self.plan.recovery, used)
        return Engine(room, self.plan, lease or OurLease(), surveyor, lambda _: None, lambda: 0, settle=settle)  # type: ignore[arg-type]

    def shown(self) -> tuple[set[str], Any]:
        """What a reader sees: the files that count, and the mark of the query; of one that expires with its age."""
        if self.kind == "files":
            return set(self.storage.names(self.folder / "_spark_metadata") or ()), None
        files: set[str] = set()
        mark = None
        for action in self.actions():
            for name, body in action.items():
                if name == "add":
                    files.add(body["path"])
                if name == "remove":
                    files.discard(body["path"])
                if name == "txn" and body["appId"] == Q:
                    mark = (body["version"], body["lastUpdated"]) if self.kind == "expired" else body["version"]
        return files, mark

    @property
    def shown_then(self) -> tuple[set[str], Any]:
        files, _ = self.shown_before
        if self.kind == "files":
            return files - {"8", ".8.crc"}, None
        if self.kind == "expired":
            return files, (8, 0)
        return files - {"part-8"}, 8 if self.kind == "number" else 7

    def make_table(self) -> None:
        """A file for each batch, as Spark's streaming sink writes it."""
        for batch in range(self.newest + 1):
            table: list[dict[str, Any]] = [
                {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                {"metaData": {"id": "t", "configuration": {}}},
            ]
            told = {"queryId": Q, "epochId": str(batch)}
            rows = [
                {"commitInfo": {"operation": "STREAMING UPDATE", "operationParameters": told}},
                {"txn": {"appId": Q, "version": batch, "lastUpdated": 9}},
                added(f"part-{batch}"),
            ]
            self.storage.write(self.table / f"part-{batch}", b"rows")
            self.version(batch, [*(table if batch == 0 else []), *rows])

    def version(self, number: int, content: list[dict[str, Any]]) -> None:
        """Write a version of the table."""
        text = "".join(json.dumps(action) + "\n" for action in content)
        self.storage.write(self.table / "_delta_log" / name_commit(number), text.encode())

    def next_version(self, content: list[dict[str, Any]]) -> None:
        """Write one more."""
        self.version(self.newest_version() + 1, content)

    def newest_version(self) -> int:
        """The newest version of the table."""
        return max(int(name.removesuffix(".json")) for name in self._versions())

    def actions(self) -> Iterator[Mapping[str, Any]]:
        """All actions of the table, oldest first."""
        for name in sorted(self._versions()):
            raw = self.storage.read(self.table / "_delta_log" / name, limit=1_000_000) or b""
            yield from map(json.loads, raw.splitlines())

    def _versions(self) -> list[str]:
        return [name for name in self.storage.names(self.table / "_delta_log") or () if name.endswith(".json")]


def added(path: str) -> dict[str, Any]:
    """The action that adds a file."""
    fields = {"partitionValues": {}, "size": 4, "modificationTime": 1, "dataChange": True, "stats": "{}"}
    return {"add": {"path": path, **fields}}
