"""A windowed aggregation that runs in a real Spark, and one beside it that nothing ever happens to."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from conformance.sparks import RunningSpark

SCRIPT = Path(__file__).with_name("windowed_app.py")
BEGIN = datetime(2026, 3, 1, 8, tzinfo=UTC)
STATE = "spark.sql.streaming.stateStore"
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
HDFS = {f"{STATE}.providerClass": f"{_PROVIDERS}.HDFSBackedStateStoreProvider"}
ROCKSDB = {f"{STATE}.providerClass": f"{_PROVIDERS}.RocksDBStateStoreProvider"}
SWITCH = f"{STATE}.rocksdb.changelogCheckpointing.enabled"
CHANGELOG = {**ROCKSDB, SWITCH: "true"}
CHECKPOINT_V2 = {**CHANGELOG, f"{STATE}.checkpointFormatVersion": "2"}
_WRITTEN = 1_795_000_000
"""When the first file was, in seconds since 1970."""


@dataclass
class Windows:
    """The query under test writes to `table`, the other one to `reference`; both read the same, batch by batch."""

    spark: RunningSpark
    folder: Path
    sink: str
    conf: Mapping[str, str]
    source: Mapping[str, Any] = field(default_factory=dict)
    """Of Kafka; empty: a folder of files."""
    events: list[list[dict[str, Any]]] = field(default_factory=list)
    """By the file that holds them."""
    script: Path = SCRIPT
    """The application."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / "chk"

    @property
    def table(self) -> str:
        return str(self.folder / "table")

    def start(self, code: str, **more: Any) -> str | None:
        """Read all that there is; gives the error that it ended with."""
        error: str | None = self._start("chk", "table", code, more)
        return error

    def start_reference(self) -> None:
        assert self._start("reference-chk", "reference", "new", {}) is None

    def _start(self, checkpoint: str, table: str, code: str, more: Mapping[str, Any]) -> Any:
        told = {"code": code, "conf": dict(self.conf), "sink": self.sink, **self._named(checkpoint, table), **more}
        return self.spark.call(self.script, "start", **told)["error"]

    def _named(self, checkpoint: str, table: str) -> dict[str, Any]:
        places = {"checkpoint": str(self.folder / checkpoint), "table": str(self.folder / table)}
        return {**places, **(self.source or {"input": str(self.folder / "input")})}

    def rows(self, table: str = "table") -> list[tuple[str, int, int | None]]:
        found = self.spark.call(self.script, "rows", sink=self.sink, table=str(self.folder / table))["rows"]
        return sorted((start, count, total) for start, count, total in found)


def make_events(seed: int, batches: int, *, are_late: bool, per_batch: int = 40) -> list[list[dict[str, Any]]]:
    """Events of some batches, out of order; the last one closes every window before it.

    Args:
        seed: Of what is drawn.
        batches: How many, without the last one.
        are_late: Whether some come too late. Which these are depends on what is read together.
        per_batch: How many each has.
    """
    chosen = random.Random(seed)
    found = []
    for number in range(batches):
        bounds = (-30, 8, 2) if are_late else (-9, 0, -2)
        minutes = [number * 6 + chosen.triangular(*bounds) for _ in range(per_batch)]
        found.append([_make_event(each, chosen.randrange(100)) for each in minutes])
    return [*found, [_make_event(batches * 6 + 600, 0)]]


def _make_event(minutes: float, worth: int) -> dict[str, Any]:
    at = BEGIN + timedelta(minutes=minutes)
    return {"t": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "v": worth}


def write_file(folder: Path, number: int, events: list[dict[str, Any]]) -> None:
    """One file, which is one batch."""
    folder.mkdir(exist_ok=True)
    draft = folder / f".{number:03d}.json"
    draft.write_text("".join(json.dumps(each) + "\n" for each in events))
    os.utime(draft, (_WRITTEN + number, _WRITTEN + number))  # Spark reads them in this order
    draft.rename(folder / f"{number:03d}.json")
