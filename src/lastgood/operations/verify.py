"""`verify --data`: every record that a query has read, counted against the rows of its sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from lastgood.audit.spark_job import SparkSubmit, run_audit
from lastgood.audit.specification import make_audit_spec
from lastgood.settings.target import Target
from lastgood.spark.audit import Audit


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
