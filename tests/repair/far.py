"""A query with checkpoint and table on S3 or HDFS, and real Spark there; lastgood reaches them through a bad network.

Its logs are copied into the folder of the case and back, so that they are damaged and judged as all others.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.brokers import clear, lay_out, make_healthy, options, rename_topic
from conformance.cases import NEW_INPUTS, Case, Observation, logs, observation, write_json
from conformance.edits import Edit, apply
from conformance.edits_of_kafka import read_topic
from conformance.flavours import FLAVOURS
from conformance.inputs import add_input
from conformance.sparks import RunningSpark
from repair.roads import Far, Traveller

from lastgood.journal.plan_file import parse_plan
from lastgood.lab.kafka import KafkaBroker
from lastgood.planning.plan import Plan
from lastgood.storage.reading import format_fsspec_path, parse_location
from lastgood.storage.writing import FsspecWriter, WritableStorage, open_writable

VERSION = "4.2.0"
RUN_SECONDS = 150
"""A batch takes some seconds there when the machine does other things."""
_BYTES_MAX = 10_000_000
_LOGS = ("checkpoint", "sink/_spark_metadata")


@dataclass
class FarQuery:
    """One query on one storage."""

    far: Far
    case: Case
    folder: Path
    spark: Callable[[], RunningSpark]
    broker: KafkaBroker | None = None
    place: str = field(init=False)
    """Where checkpoint and sink are."""

    def __post_init__(self) -> None:
        self.flavour = FLAVOURS[self.case.flavour]
        self.place = f"{self.far.root}/{uuid.uuid4().hex}"
        self.checkpoint = f"{self.place}/checkpoint"
        self.folder.mkdir(parents=True)
        self.traveller = Traveller(self.far, self.folder)

    @property
    def storage(self) -> WritableStorage:
        return open_writable(parse_location(self.place), dict(self.far.options))

    # What Spark does.

    def make_healthy(self) -> None:
        """Run it to the end of its input, and add what a restart will find new."""
        if self.broker is not None:
            make_healthy(self.broker, f"healthy-{uuid.uuid4().hex[:8]}", self.folder)
        add_input(self.flavour, self.folder, 0, self.flavour.batches)
        told = self.ask("run")
        assert told["ended"] == "finished", told
        add_input(self.flavour, self.folder, self.flavour.batches, self.flavour.batches + NEW_INPUTS)
        self.pull()
        if self.broker is not None:
            rename_topic(self.folder, f"{self.flavour.name}-{uuid.uuid4().hex[:6]}")
            self.push()
            write_json(self.folder / "kafka.json", lay_out(self.broker, self.folder))

    def restart(self) -> Observation:
        """Start it, unchanged."""
        self.pull()
        before = logs(self.folder)
        told = self.ask("run")
        self.pull()
        return observation(self.case, told, before, self.folder, self.ask("content")["content"])

    def ask(self, do: str, *, seconds: float = RUN_SECONDS) -> dict[str, Any]:
        command = {
            "do": do,
            "flavour": self.flavour.name,
            "folder": str(self.folder),
            "place": self.place,
            "seconds": seconds,
        }
        if self.broker is not None:
            command["options"] = options(self.broker, read_topic(self.folder)["name"])
        return self.spark().ask(command)

    # Its files.

    def pull(self) -> None:
        """Copy its logs into the folder of the case."""
        for log in _LOGS:
            shutil.rmtree(self.folder / log, ignore_errors=True)
            for path, content in self.files(log).items():
                file = self.folder / log / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)

    def push(self) -> None:
        """Copy them back: what is gone goes, what is as it was stays."""
        storage = self.storage
        for log in _LOGS:
            there, at = self.files(log), parse_location(f"{self.place}/{log}")
            here = {
                str(file.relative_to(self.folder / log)): file.read_bytes()
                for file in (self.folder / log).rglob("*")
                if file.is_file() and file.suffix != ".crc"
            }
            for path in there.keys() - here.keys():
                storage.remove(at / path)
            for path, content in here.items():
                if there.get(path) != content:
                    storage.write(at / path, content)

    def files(self, log: str = "checkpoint") -> dict[str, bytes]:
        """The files below one of its folders, as they are there."""
        storage, at = self.storage, parse_location(f"{self.place}/{log}")
        paths = [entry.name for entry in storage.walk(at) or ()]
        found = {path: storage.read(at / path, limit=_BYTES_MAX) for path in paths}
        return {path: content for path, content in found.items() if content is not None}

    def damage(self, *edits: Edit) -> None:
        """Damage its files."""
        for edit in edits:
            apply(edit, self.folder)
        self.push()

    def lose(self) -> None:
        """Remove the whole checkpoint."""
        storage, at = self.storage, parse_location(self.checkpoint)
        assert isinstance(storage, FsspecWriter)
        storage.filesystem.rm(format_fsspec_path(at), recursive=True)

    def newest(self, log: str) -> int:
        """The newest batch in a log; -1 if there is none."""
        names = self.storage.names(parse_location(f"{self.checkpoint}/{log}")) or ()
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def clear(self) -> None:
        if self.broker is not None:
            clear(self.broker, self.folder)

    # What lastgood does.

    def plan(self, goal: str) -> Plan:
        """What is planned through a network that is only slow: whom it does not reach it takes for unknown."""
        file = self.folder / "plan.json"
        facts = self.folder / "kafka.json"
        words = [
            *("plan", self.checkpoint, "--goal", goal, "--sink", f"{self.place}/sink", "--spark", VERSION),
            *(("--kafka", str(facts)) if facts.exists() else ()),
            *("--accept", "duplicates,loss", "-o", str(file)),
        ]
        said = self.traveller.says(*words)
        assert said.code == 0, said
        return parse_plan(file.read_bytes(), str(file))
