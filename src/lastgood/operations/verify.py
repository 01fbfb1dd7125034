"""`verify --data` and `load --verify`: every record that was read, counted against the rows of the sink."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lastgood.audit.spark_job import SparkSubmit, run_audit
from lastgood.audit.specification import make_audit_spec
from lastgood.frozen import dataclass
from lastgood.load.unpacking import unpack_files
from lastgood.observe.load_options import LoadOptions
from lastgood.settings.target import Target
from lastgood.spark.audit import Audit
from lastgood.supervise.held_load import hold_load
from lastgood.supervise.load_driver import RunLoad, run_load
from lastgood.values import JsonValue


def verify_data(  # noqa: PLR0913 - the options of the command, all by name
    target: Target,
    *,
    kafka: str,
    kafka_config: Path | None = None,
    sink: str,
    keys: Sequence[str] = (),
    compare: Sequence[str] = (),
    where: str | None = None,
    isolation_level: str | None = None,
    topic_is_the_same: bool = False,
    spark: SparkSubmit | None = None,
    progress: Callable[[str], None] | None = None,
) -> Audit:
    """Compare what a query has read from Kafka with what its sink holds, by a Spark job; changes nothing.

    What is compared ends where the newest committed batch ends, so that what is still to come is not called
    lost, and begins where Kafka still has the records.

    Args:
        target: Which query.
        kafka: `bootstrap.servers` of the brokers.
        kafka_config: A `client.properties`, as Kafka's own tools take it.
        sink: A table: `delta:LOCATION`, `file:LOCATION` (Parquet files), `table:NAME`, or a location alone.
        keys: `NAME` or `NAME=SQL`: a column of the sink, and the SQL over the Kafka record that it was made from;
            without SQL the record's own topic, partition, offset or timestamp, else that field of its JSON value.
            None at all: topic, partition and offset, where the sink has these columns.
        compare: As `keys`, for columns whose values are compared too.
        where: SQL over the Kafka record, true for those that the query keeps.
        isolation_level: `read_committed` or `read_uncommitted`, as the query reads; None: find out aborted records
            and report them apart.
        topic_is_the_same: Whether a person says that the topics are those that were read, where clocks leave it open.
        spark: Where the job runs.
        progress: Is told, in a few words, what is being done.

    Raises:
        UsageError: an argument is not understood, or names a column or SQL that does not exist (subclasses).
        NoCommittedBatchError, SourceKindError: there is nothing to verify, or nothing that can be.
        KafkaUnreachableError, TopicMissingError, TopicRecreatedError, RangeExpiredError: the source does not serve it.
        SinkUnreadableError: the sink cannot be read.
        AuditFailedError: the Spark job failed.
        LastgoodError: storage, Java, Python or JVM parts are not there (subclasses).
    """
    if progress is not None:
        progress("reading the checkpoint and asking Kafka")
    spec = make_audit_spec(
        target,
        kafka=kafka,
        kafka_config=kafka_config,
        sink=sink,
        keys=keys,
        compare=compare,
        where=where,
        isolation_level=isolation_level,
        topic_is_the_same=topic_is_the_same,
    )
    return run_audit(spec, spark=spark, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCompared(JsonValue):
    """What `load --verify` prints as JSON: the rows of the files against those that the load has written."""

    load: str
    table: str
    checkpoint: str
    files: tuple[str, ...]
    version: int | None
    """Of the table; None where it has none."""
    records: int
    """Rows that Spark's reader makes of what is loaded of the files."""
    rows: int
    """Rows of the load in the table."""
    lost: int
    """Rows that are not there, or not as often."""
    surplus: int
    """Rows too many, or that no record has made."""
    lost_samples: tuple[str, ...]
    """A few of them, as JSON."""
    surplus_samples: tuple[str, ...]
    seconds: float

    @property
    def is_exact(self) -> bool:
        """Whether each row is there once, with the same values."""
        return not self.lost and not self.surplus


def verify_load(
    files: Sequence[str],
    to: str,
    options: LoadOptions | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    run: RunLoad = run_load,
) -> LoadCompared:
    """Compare what a load has written with what its files say, row by row; writes nothing.

    Args:
        files: As for `load`; so are the others.
        to: The table.
        options: How it was loaded.
        say: Is told, in a few words, what takes time.
        run: Where Spark's part is done.

    Raises:
        LoadNotComparableError: nothing is loaded, a chunk is not committed, a file can no longer be read as it was, or
            the table does not tell which rows are those of the load.
        LastgoodError: as `load` (subclasses).
    """
    began = time.monotonic()
    wanted = options or LoadOptions()
    with hold_load(files, to, replace(wanted, evolves=False), say) as held:
        own = held.find_own_rows()
        spec = unpack_files(held.spec, say)
        compared: dict[str, Any] = {}
        question = replace(held.ask(spec, wanted), own=own, parsed=None)  # all of the files, whatever is left of them
        run(question, lambda told: compared.update(told.get("compared", {})), say)
    return LoadCompared(
        load=held.name,
        table=spec.table,
        checkpoint=str(held.checkpoint),
        files=tuple(each.location for each in spec.files),
        version=own.version,
        records=compared["records"],
        rows=compared["rows"],
        lost=compared["lost"],
        surplus=compared["surplus"],
        lost_samples=tuple(compared["lost_samples"]),
        surplus_samples=tuple(compared["surplus_samples"]),
        seconds=round(time.monotonic() - began, 1),
    )
