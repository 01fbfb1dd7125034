"""A healthy checkpoint, some damage, a real Spark started on it, and what that did."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.brokers import clear, expected, lay_out, make_healthy, options, rename_topic
from conformance.edits import Edit, apply, edit_from, random_edit
from conformance.edits_of_kafka import read_topic
from conformance.flavours import FLAVOURS, WRITE_ALL, Flavour, truth
from conformance.folders import copy_case, entry, ids, remove
from conformance.inputs import add_input
from conformance.sparks import DriverDiedError, RunningSpark, Sparks

from lastgood.lab.kafka import KafkaBroker

RUN_SECONDS = 150
NEW_INPUTS = 2
_MAINTENANCE_SECONDS = 1.5
"""Three rounds of it."""


@dataclass(frozen=True)
class Case:
    """What is done to which checkpoint, and which Spark is started on it."""

    spark: str
    flavour: str
    edits: tuple[Edit, ...]
    seed: str = ""
    """Where a random case comes from."""
    fail_on_data_loss: bool = True
    """The option of a Kafka source."""
    made_by: str = ""
    """The version that ran the query before, if it was another one."""

    def __str__(self) -> str:
        damage = ", ".join(map(str, self.edits)) or "healthy"
        version = f"{self.made_by} -> {self.spark}" if self.made_by else self.spark
        option = "" if self.fail_on_data_loss else " failOnDataLoss=false"
        return f"{version} {self.flavour}{option}: {damage}" + (f" [{self.seed}]" if self.seed else "")

    def to_json(self) -> dict[str, Any]:
        option = {} if self.fail_on_data_loss else {"fail_on_data_loss": False}
        made = {"made_by": self.made_by} if self.made_by else {}
        edits = [edit.to_json() for edit in self.edits]
        return {"spark": self.spark, **made, "flavour": self.flavour, **option, "edits": edits, "seed": self.seed}


def case_from(fields: dict[str, Any]) -> Case:
    """The case that `to_json` told."""
    return Case(
        fields["spark"],
        fields["flavour"],
        tuple(edit_from(edit) for edit in fields["edits"]),
        fields.get("seed", ""),
        fail_on_data_loss=fields.get("fail_on_data_loss", True),
        made_by=fields.get("made_by", ""),
    )


@dataclass(frozen=True)
class Link:
    """One exception of a chain."""

    name: str
    condition: str | None
    message: str


@dataclass(frozen=True)
class Logs:
    """The batch ids in the two logs."""

    offsets: tuple[int, ...]
    commits: tuple[int, ...]


@dataclass(frozen=True)
class Observation:
    """What Spark did."""

    case: Case
    ended: str
    """finished, failed, not_started (`start()` itself raised), hangs or died (the JVM)."""
    before: Logs
    after: Logs
    executed: tuple[int, ...]
    """Batches that went to the sink, in order, whatever became of them there."""
    returned: tuple[int, ...]
    """Those of them that came back from the sink without an error."""
    called: tuple[int, ...] | None
    """Batches that a foreachBatch function was called for; None for another sink."""
    committed: dict[int, int]
    """Batches that ended with an entry in the commit log, with the rows that they read."""
    chain: tuple[Link, ...]
    """The exception and its causes, outermost first."""
    text: str | None
    """What Python shows of it."""
    shown: dict[str, int] | None
    """What the sink shows, as key -> n; None if it cannot be read."""
    lost: int | None
    """Records that the sink does not show; None if it cannot be read."""
    duplicated: int | None
    seconds: float

    @property
    def error_text(self) -> str:
        """Everything that the exception and its causes say."""
        return "\n".join([self.text or "", *(f"{link.name}: {link.message}" for link in self.chain)])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "case": self.case.to_json()}


class Laboratory:
    """A Spark of a version, a broker if it reads Kafka, and healthy checkpoints, each made once."""

    def __init__(
        self, version: str, sparks: Sparks, *, healthy: Path, scratch: Path, broker: KafkaBroker | None = None
    ) -> None:
        self.version = version
        self.broker = broker
        self._sparks = sparks
        self._healthy = healthy
        self._scratch = scratch
        self._number = 0

    def healthy(self, flavour: Flavour, made_by: str = "") -> Path:
        """The folder of a query after its last batch, with the input that a restart will find new."""
        version = made_by or self.version
        folder = self._healthy / version / flavour.name
        if not folder.exists():
            draft = folder.with_name(f"{flavour.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            self._make(flavour, draft, self._sparks.of(version, flavour.state_format))
            copy_case(draft, folder)
            shutil.rmtree(draft)
        return folder

    def random_case(self, flavour: Flavour, seed: str, made_by: str = "") -> Case:
        """One to three edits, each chosen for what the ones before have left."""
        rng = random.Random(seed)
        folder = self._scratch / "choosing"
        shutil.rmtree(folder, ignore_errors=True)
        copy_case(self.healthy(flavour, made_by), folder)
        edits: list[Edit] = []
        for _ in range(rng.choice((1, 2, 2, 3))):
            edits.append(random_edit(folder, rng))
            apply(edits[-1], folder)
        shutil.rmtree(folder)
        option = flavour.kind != "kafka" or rng.random() < 0.7
        return Case(self.version, flavour.name, tuple(edits), seed, fail_on_data_loss=option, made_by=made_by)

    @contextlib.contextmanager
    def damaged(self, case: Case, before: Callable[[Path], object] = lambda _: None) -> Iterator[Path]:
        """The folder of a case, and its topic, as Spark will find them; gone afterwards.

        Args:
            case: What is damaged, and how.
            before: Is shown the folder before the damage.
        """
        flavour = FLAVOURS[case.flavour]
        self._number += 1
        folder = self._scratch / f"case-{self.version}-{self._number}"
        copy_case(self.healthy(flavour, case.made_by), folder)
        if flavour.kind == "kafka":
            rename_topic(folder, f"{flavour.name}-{self._number}-{uuid.uuid4().hex[:6]}")
        before(folder)
        for edit in case.edits:
            apply(edit, folder)
        try:
            if flavour.kind == "kafka":
                write_json(folder / "kafka.json", lay_out(self._running_broker(), folder))
            yield folder
        finally:
            if flavour.kind == "kafka":
                clear(self._running_broker(), folder)
            # The state stores are maintained for a moment longer, and may write into what goes away.
            shutil.rmtree(folder, ignore_errors=True)

    def restart(self, case: Case, folder: Path) -> Observation:
        """Start the query on the folder of a damaged case and see what becomes of it."""
        flavour = FLAVOURS[case.flavour]
        before = logs(folder)
        try:
            spark = self._sparks.of(self.version, flavour.state_format)
            told = self._run(flavour, folder, spark, fail_on_data_loss=case.fail_on_data_loss)
            asked = {"do": "content", "flavour": flavour.name, "folder": str(folder)}
            shown = spark.ask(asked)["content"]
        except DriverDiedError as error:
            self._sparks.close()
            told, shown = {"ended": "died", "text": str(error)}, None
        return observation(case, told, before, folder, shown)

    @property
    def spark(self) -> RunningSpark:
        """The Spark that queries are started on."""
        return self._sparks.of(self.version)

    def _make(self, flavour: Flavour, folder: Path, spark: RunningSpark) -> None:
        if flavour.kind == "kafka":
            make_healthy(self._running_broker(), f"healthy-{uuid.uuid4().hex[:8]}", folder)
        add_input(flavour, folder, 0, flavour.batches)
        if flavour.kept:
            self._make_sparse(flavour, folder, spark)
            return
        # Spark reads rate-micro-batch in one batch for each start that ends by itself.
        for _ in range(flavour.batches if flavour.kind == "rate" else 1):
            told = self._run(flavour, folder, spark)
            assert told["ended"] == "finished", told
        if flavour.is_stateful:
            _await_maintenance(folder)
        add_input(flavour, folder, flavour.batches, flavour.batches + NEW_INPUTS)

    def _make_sparse(self, flavour: Flavour, folder: Path, spark: RunningSpark) -> None:
        """Let it write down each batch, and leave of both logs what an interval would have: that takes varying ones."""
        while not set(flavour.kept) <= {*ids(folder, "commits")}:
            told = self._run(flavour, folder, spark, sink_options=WRITE_ALL)
            assert told["ended"] == "finished", told
        for log in ("offsets", "commits"):
            for batch in {*ids(folder, log)} - {*flavour.kept}:
                remove(entry(folder, log, batch))

    def _run(
        self,
        flavour: Flavour,
        folder: Path,
        spark: RunningSpark,
        *,
        fail_on_data_loss: bool = True,
        sink_options: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        command: dict[str, Any] = {"do": "run", "flavour": flavour.name, "folder": str(folder), "seconds": RUN_SECONDS}
        command["sink_options"] = sink_options or {}
        if flavour.kind == "kafka":
            name = read_topic(folder)["name"]
            command["options"] = options(
                self._running_broker(), name, fail_on_data_loss=fail_on_data_loss, is_pattern=flavour.is_pattern
            )
        return spark.ask(command)

    def _running_broker(self) -> KafkaBroker:
        assert self.broker is not None, "a query that reads Kafka needs a broker"
        return self.broker


def _await_maintenance(folder: Path) -> None:
    """Wait until the state stores have made their snapshots: until nothing changes any more."""
    before: list[Path] = []
    while (now := sorted(folder.rglob("*"))) != before:
        before = now
        time.sleep(_MAINTENANCE_SECONDS)


def logs(folder: Path) -> Logs:
    """The batch ids that the logs of a case hold."""
    return Logs(tuple(ids(folder, "offsets")), tuple(ids(folder, "commits")))


def observation(
    case: Case, told: dict[str, Any], before: Logs, folder: Path, shown: dict[str, int] | None
) -> Observation:
    lost, duplicated = _compared(FLAVOURS[case.flavour], shown, folder)
    is_function = FLAVOURS[case.flavour].sink == "foreachBatch"
    executions = told.get("executions", [])
    calls = told.get("calls", {"begun": [], "finished": []})
    executed = tuple(each["batch"] for each in executions)
    after = logs(folder)
    # Spark also tells the progress of a trigger that found nothing to do, under the number of the next batch.
    committed = {each["batch"]: each["rows"] for each in told.get("progress", []) if each["batch"] in executed}
    if FLAVOURS[case.flavour].kept and told["ended"] != "finished":
        committed = {
            n: rows for n, rows in committed.items() if _is_written(n, told, after) and n not in before.commits
        }
    return Observation(
        case=case,
        ended=told["ended"],
        before=before,
        after=after,
        executed=executed,
        returned=tuple(calls["finished"] if is_function else (e["batch"] for e in executions if e["finished"])),
        called=tuple(calls["begun"]) if is_function else None,
        committed=committed,
        chain=tuple(Link(e["class"], e["condition"], e["message"] or "") for e in told.get("chain", [])),
        text=told.get("text"),
        shown=shown,
        lost=lost,
        duplicated=duplicated,
        seconds=told.get("seconds", 0.0),
    )


def _is_written(batch: int, told: dict[str, Any], after: Logs) -> bool:
    """Whether the progress of a batch was written down asynchronously, and not what Spark fails at afterwards."""
    said = "\n".join(each["message"] or "" for each in told["chain"])
    is_told = f"/.{batch}.crc already exists" in said or f"jobs detected for {batch}." in said
    return batch in after.commits and not is_told


def _compared(flavour: Flavour, shown: dict[str, int] | None, folder: Path) -> tuple[int | None, int | None]:
    if shown is None:
        return None, None
    pieces = flavour.batches + (1 if flavour.kind == "rate" else NEW_INPUTS)
    wanted = expected(folder) if flavour.kind == "kafka" else truth(flavour, pieces)
    found = Counter(shown)
    return (wanted - found).total(), (found - wanted).total()


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
