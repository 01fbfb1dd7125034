"""An application whose checkpoint is lost: its topic, its table, and what a plan for a fresh start does to them."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from conformance.sparks import RunningSpark
from deltalake import DeltaTable
from repair.verifying import misjudged, unpromised, verified

from lastgood.lab.kafka import KafkaBroker
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.positions import StartChoice
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee
from lastgood.recovery.applying import apply_plan
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.ranges import Ranges

SCRIPT = Path(__file__).with_name("seeded_app.py")
PARTITIONS = 2
GOALS = ("resume", "replan", "reposition")
"""Those for a checkpoint that is there."""
BEFORE, AFTER = 20, 10
"""Records of each partition that the application has read, and that come while it is down."""
COLUMNS = "topic,partition,offset"
MORE = 45
"""Records of each partition, where more have come once again."""
WIDER = 24
"""A limit by which what is planned anew ends elsewhere than before."""
TXN_APP_ID = "orders-etl"
_FLUSH_SECONDS = 30

Row = tuple[int, int]
"""Partition and offset."""
MakeApplication = Callable[..., "Application"]


@dataclass(frozen=True)
class Application:
    """One application on a real broker and a real Spark."""

    spark: RunningSpark
    broker: KafkaBroker
    topic: str
    folder: Path
    where: str = "true"
    """Which records it keeps."""
    sink: str = "delta"
    """Or `parquet`, Spark's file sink; `foreachBatch`, a function that leaves no mark; `txn`, one that leaves its
    `txn_app_id`."""
    txn_app_id: str = TXN_APP_ID
    dies: str | None = None
    """`before` or `after` its function has written a batch; None: it does not."""
    starting_offsets: str = "earliest"
    config: str | None = None
    """A file that it reads its `startingOffsets` from."""
    per_transaction: int | None = None
    """How many records of a partition a producer commits at once; each leaves an offset without a record."""
    limit: int = 10
    """Its `maxOffsetsPerTrigger`."""
    retained: int | None = None
    """Its `minBatchesToRetain`; None: Spark's own."""
    end: int = BEFORE + AFTER
    """How many records each partition has."""
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def table(self) -> Path:
        return self.folder / "table"

    def begin(self) -> None:
        """It has read and written all that there was, and more has come since."""
        self.broker.create_topic(self.topic, PARTITIONS)
        self.produce(0, BEFORE)
        assert self.start() is None
        assert self.rows() == self.wanted(BEFORE)
        self.produce(BEFORE, BEFORE + AFTER)

    def produce(self, first: int, end: int, *, ahead_ms: int = 0) -> None:
        """Write records of each partition; their times are so far ahead of the clock here."""
        size = self.per_transaction
        settings: dict[str, Any] = {"bootstrap.servers": self.broker.bootstrap, "log_level": 0}
        producer = Producer({**settings, **({} if size is None else {"transactional.id": self.topic})})
        if size is not None:
            producer.init_transactions(_FLUSH_SECONDS)
        for begin in range(first, end, size or end):
            if size is not None:
                producer.begin_transaction()
            for partition in range(PARTITIONS):
                for number in range(begin, min(begin + (size or end), end)):
                    at_ms = int(time.time() * 1000) + ahead_ms
                    producer.produce(self.topic, f"{partition}-{number}", partition=partition, timestamp=at_ms)
            if size is not None:
                producer.commit_transaction(_FLUSH_SECONDS)
        assert producer.flush(_FLUSH_SECONDS) == 0

    def start(self) -> str | None:
        """Start it as it is; why it failed."""
        told = {
            "bootstrap": self.broker.bootstrap,
            "topic": self.topic,
            "checkpoint": str(self.checkpoint),
            "table": str(self.table),
            "where": self.where,
            "sink": self.sink,
            "txn_app_id": self.txn_app_id,
            "dies": self.dies,
            "retained": self.retained,
            "starting_offsets": self.starting_offsets,
            "config": self.config,
            "limit": self.limit,
        }
        error: str | None = self.spark.call(SCRIPT, "start", **told)["error"]
        return error

    def die(self, moment: str) -> None:
        """It plans a batch, and its function dies `before` or `after` it has written it."""
        assert f"died {moment}" in (replace(self, dies=moment).start() or "")

    @property
    def newest(self) -> int:
        """The newest batch that is planned."""
        return max(int(each.name) for each in (self.checkpoint / "offsets").iterdir() if each.name.isdecimal())

    def choose(self, goal: str) -> StartChoice:
        """Where a goal is to begin: for `reposition` before the newest batch that is planned."""
        return StartChoice(batch=self.newest - 1) if goal == "reposition" else StartChoice()

    def sql(self, text: str) -> None:
        """Have Spark carry out a statement; `{}` stands for the table."""
        self.spark.call(SCRIPT, "sql", text=text.format(f"delta.`{self.table}`"))

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def rows(self) -> Counter[Row]:
        """What the table shows."""
        if self.sink == "parquet":
            told = self.spark.call(SCRIPT, "rows", table=str(self.table))
            return Counter((partition, offset) for partition, offset in told["rows"])
        found = DeltaTable(self.table).scan(columns=["partition", "offset"])
        return Counter((row["partition"], row["offset"]) for batch in found for row in _rows(batch))

    def wanted(self, end: int | None = None) -> Counter[Row]:
        """What it shows once every record is there once, or every one before `end`."""
        size = self.per_transaction
        numbers = range(self.end if end is None else end)
        offsets = [number if size is None else number + number // size for number in numbers]
        both = [(partition, offset) for partition in range(PARTITIONS) for offset in offsets]
        hole = self.where.removeprefix("offset <> ")
        return Counter(row for row in both if not hole.isdecimal() or row[1] != int(hole))

    def planned(self, where: StartChoice, goal: str = "fresh", **options: Any) -> Plan:
        """A plan to start it afresh, or elsewhere."""
        evidence = EvidenceOptions(sinks=(str(self.table),), kafka=self.broker.bootstrap, topics=(self.topic,))
        evidence = replace(evidence, **self.evidence)
        return make_plan(
            resolve_target(str(self.checkpoint)), PlanOptions(goal=goal, where=where, evidence=evidence, **options)
        )

    def carry_out(self, plan: Plan) -> None:
        """Apply a plan, whatever it costs."""
        file = self.folder / "plan.json"
        file.write_bytes(plan.accept(plan.needs).to_bytes())
        apply_plan(str(file), driver_is_dead=True)


def _rows(batch: Any) -> list[dict[str, int]]:
    import pyarrow as pa

    found: list[dict[str, int]] = pa.record_batch(batch).to_pylist()
    return found


def judged(app: Application, plan: Plan, *, is_verified: bool = True) -> list[str]:
    """Where the start after a plan is not as the plan said, also by `verify --data`; one line each."""
    error = app.start()
    if error is not None:
        return [f"it did not run: {error}"]
    wanted, found = app.wanted(), app.rows()
    lost, twice = wanted - found, found - wanted
    is_bound = any(source.bound for source in plan.sources)
    wrong = []
    if plan.guarantee is not Guarantee.LOSSY and lost:
        wrong.append(f"{plan.guarantee.value}, and lost are {_told(lost)}")
    if plan.guarantee is Guarantee.EXACTLY_ONCE and twice:
        wrong.append(f"exactly_once, and twice there are {_told(twice)}")
    for what, rows in (("lost", lost), ("duplicated", twice)):
        priced = _priced([getattr(source, what) for source in plan.sources])
        if rows.keys() - priced:
            wrong.append(f"{what}, though not in the price: {_told(rows.keys() - priced)}")
        if not is_bound and priced - rows.keys():
            wrong.append(f"the price says {what}, and these are not: {_told(priced - rows.keys())}")
    return [*wrong, *(_wrong_by_verify(app, plan, wanted, found) if is_verified else ())]


def _wrong_by_verify(app: Application, plan: Plan, wanted: Counter[Row], found: Counter[Row]) -> list[str]:
    """Where `verify --data` counts otherwise, or finds what the plan does not allow."""
    kind = "file" if app.sink == "parquet" else "delta"
    options = {"kafka": app.broker.bootstrap, "sink": f"{kind}:{app.table}", "where": app.where}
    audit = verified(app.spark, app.checkpoint, **options)
    if isinstance(audit, str):
        return [f"verify refuses: {audit}"]
    records = {place: str(place) for place in wanted}
    shown = Counter({str(place): times for place, times in found.items()})
    return [*misjudged(audit, records, shown), *unpromised(audit, plan.guarantee)]


def _priced(ranges: Iterable[Ranges]) -> set[Row]:
    return {
        (partition, offset)
        for each in ranges
        for partitions in each.values()
        for partition, spans in partitions.items()
        for first, end in spans
        for offset in range(first, end)
    }


def _told(rows: Iterable[Row]) -> str:
    return ", ".join(map(str, sorted(rows)[:8]))
