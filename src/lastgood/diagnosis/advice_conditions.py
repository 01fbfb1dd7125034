"""The kinds of advice, told once: none of them is an error, and each can be followed or left."""

from __future__ import annotations

from lastgood.diagnosis.findings import Condition, Severity


def _advice(name: str, title: str, *story: str) -> Condition:
    return Condition(name, Severity.INFO, title, "\n\n".join(story))


ON_LOCAL_DISK = _advice(
    "CHECKPOINT_ON_LOCAL_DISK",
    "the checkpoint lies on a disk of one machine",
    "Spark writes the offset log and the commit log from the driver, and state from the executors. On a disk of one"
    " machine that works as long as all of them are on that machine; a driver that starts elsewhere finds no"
    " checkpoint, begins at batch 0 and reads everything again. A container's own file system is gone with the"
    " container, tmpfs with the next boot.",
    "Put it where every machine sees it and where it outlives them: `s3a://`, `abfss://`, `gs://`, `hdfs://`. To move"
    " it, stop the query, copy the folder, and start with the new `checkpointLocation`; the `.NAME.crc` files need"
    " not come along.",
)
IN_TABLE_FOLDER = _advice(
    "CHECKPOINT_IN_TABLE_FOLDER",
    "the checkpoint lies inside the folder of a table",
    "Whoever drops, replaces or cleans up the table then takes the checkpoint along. Delta's VACUUM and Iceberg's"
    " remove_orphan_files delete every file below the table that the table does not know, once it is old enough;"
    " names that begin with `_` or `.` they leave alone. A file sink's folder is read by many engines as all the"
    " files in it.",
    "Give checkpoints a root of their own, beside the tables. To move this one, stop the query, copy the folder, and"
    " start with the new `checkpointLocation`.",
)
SHARED = _advice(
    "CHECKPOINT_SHARED",
    "two queries have used this checkpoint at the same time",
    "Spark has no lock on a checkpoint. A second driver that starts while the first is inside a batch takes that"
    " batch for one that was left behind and runs it again, so its rows reach the sink twice unless the sink goes by"
    " batch numbers; the first driver then fails with CONCURRENT_STREAM_LOG_UPDATE when it commits.",
    "It is recognised by records of two runs whose batches alternate, by a run that Spark ended with that error while"
    " another one lived, or by two query ids that take turns. Usual reasons: a scheduler that starts a job again"
    " before the old one is dead, a job that was copied with its settings, two queries under one"
    " `checkpointLocation`.",
    "Let one command own the checkpoint: `lastgood run` holds it on its machine and proves the old driver dead before"
    " it starts a new one.",
)
FEW_BATCHES = _advice(
    "FEW_BATCHES_RETAINED",
    "Spark keeps fewer batches than it does by default",
    "When Spark plans batch N it removes what is older than N - R from the offset log, the commit log and the state,"
    " where R is `spark.sql.streaming.minBatchesToRetain`: by default 100, so that 101 files are left in each log. A"
    " query can be taken back by at most R - 1 batches, and `--stable-lag` reaches no further than R.",
    "A batch costs two small files, and with state a few more; a lowered value saves next to nothing. The setting is"
    " read at every start of the query and counts from the next batch on.",
)
UNBOUNDED = _advice(
    "UNBOUNDED_STATE",
    "the state has no watermark that would ever let a key go",
    "Aggregations, deduplication and joins keep a row for every key until the watermark passes it. Without a"
    " watermark, or with one that never moves, nothing is ever removed: memory, checkpoint and the time of each batch"
    " grow with the number of keys ever seen. That is right only where the keys are a small fixed set.",
    "A watermark is recognised by the offset log, where `batchWatermarkMs` is 0 in every batch. A defined watermark"
    " that stays there has one idle input: the smallest of all inputs counts"
    " (`spark.sql.streaming.multipleWatermarkPolicy=min`).",
    'Add `.withWatermark("EVENT_TIME", "1 hour")` before the operator and keep the event time among its keys, or use'
    " `dropDuplicatesWithinWatermark`. State that is there already has to be rebuilt from"
    " the source.",
)
HDFS_BACKED = _advice(
    "LARGE_HDFS_BACKED_STATE",
    "much state is kept in the executors' heap",
    "The HDFS-backed provider, Spark's default, holds the newest two versions of every partition as Java objects, and"
    " writes a whole partition for each snapshot. Above some 100 MiB a partition on disk, or 1 GiB an operator,"
    " garbage collection and snapshots begin to decide how long a batch takes, and a start waits until all of it is"
    " in memory.",
    "RocksDB keeps state on the executors' disks, and with changelog checkpointing uploads only what a batch changed."
    " Set `spark.sql.streaming.stateStore.providerClass` to"
    " `org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider` and"
    " `spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled` to `true`.",
    "The provider is pinned in the offset log: a changed setting alone is ignored for ever. It takes effect"
    " when the state is rebuilt from the source.",
)
SKEWED = _advice(
    "SKEWED_STATE",
    "one partition of the state is much larger than the others",
    "A batch ends when its slowest partition does, so one that holds many times the state of the others decides the"
    " time of every batch, and the memory that an executor needs. It is told where the largest partition has at least"
    " 64 MiB and five times the median.",
    "The reason is a key, or a few of them, with most of the rows: often null, an empty text or a test account. More"
    " partitions do not help, since one key lies in one partition. Filter such keys, or spread them: aggregate by the"
    " key and a small random number first, then by the key alone.",
)
TOO_MANY_PARTITIONS = _advice(
    "TOO_MANY_SHUFFLE_PARTITIONS",
    "the state is cut into far more partitions than it needs",
    "Every batch runs a task for each partition of each stateful operator and writes at least one file for each of"
    " its stores, however little there is in it. With `spark.sql.shuffle.partitions` at its default of 200 that alone"
    " takes seconds on an object store. It is told for 50 partitions and more that hold less than 1 MiB each.",
    "The number is pinned in the offset log by the first batch: a changed setting is ignored for ever. Another one"
    " takes effect when the state is rebuilt from the source; Spark 4.2 and later can also repartition offline. Take"
    " one to three partitions for each core that works for the query.",
)
TOO_FEW_PARTITIONS = _advice(
    "TOO_FEW_SHUFFLE_PARTITIONS",
    "the state is cut into too few partitions for its size",
    "A partition of the state is loaded, held and written by one task. Above some 100 MiB a partition with the"
    " HDFS-backed provider, or 1 GiB with RocksDB (both on disk, compressed), loading and snapshots take minutes and"
    " executors run out of memory.",
    "The number is pinned in the offset log by the first batch: a changed setting is ignored for ever. Another one"
    " takes effect when the state is rebuilt from the source.",
)
LARGE_BATCHES = _advice(
    "BATCHES_TOO_LARGE",
    "a batch takes, or will take, very much longer than usual",
    "Without `maxOffsetsPerTrigger` a Kafka source reads all that is there in one batch. After a downtime that is the"
    " whole backlog: nothing is committed until it is done, a failure at its end repeats all of it, and a batch that"
    " was planned keeps its range whatever limit is set afterwards.",
    "From recorded batches the rate is known, in offsets a second. It is told where a recorded batch took ten minutes"
    " or more and ten times the median, and where what is unread will take ten minutes or more at that rate. The"
    " limit that is named is what the query does in 80 % of its trigger interval, or of a minute where it has none.",
    "A limit counts from the next planned batch on. A plan that is too large already (ORPHAN_LARGE) has to be taken"
    " back first.",
)
SMALL_BATCHES = _advice(
    "BATCHES_TOO_SMALL",
    "the limit of a batch keeps the query behind while it is idle",
    "Every batch reads the same number of offsets and leaves others unread, the lag does not shrink, and more than"
    " half of each trigger interval passes without work: `maxOffsetsPerTrigger` is too low for the interval.",
    "The limit that is named is what the query does in 80 % of its trigger interval, at the recorded rate. It is an"
    " option of the source, so it counts from the next start on.",
)
NOT_REPLICATED = _advice(
    "TOPIC_NOT_REPLICATED",
    "a topic has no second copy",
    "With a replication factor of 1 every partition lies on one broker. While that broker is down the query cannot"
    " read, and if its disk is lost, so are the records that no batch has read; no recovery of the query can bring"
    " them back.",
    "Three copies and `min.insync.replicas=2` are usual. `kafka-reassign-partitions.sh` adds replicas while the topic"
    " is in use: its JSON file names the brokers of each partition.",
)
SHORT_RETENTION = _advice(
    "TOPIC_RETENTION_SHORT",
    "Kafka deletes records sooner than the query may be down",
    "Kafka deletes a segment of a topic once its newest record is older than `retention.ms`, read or not. A query"
    " that is down for longer loses what it had not read, and with `failOnDataLoss` at its default it then refuses to"
    " start.",
    "`--max-downtime` says how long the query may be down. Retention should exceed it by the lag that the query has"
    " when it stops, and the time that it needs to catch up. `retention.bytes`, where it is set, may delete sooner"
    " still.",
)
OTHER_SPARK = _advice(
    "CHECKPOINT_OF_OTHER_SPARK",
    "the checkpoint was written by another version of Spark",
    "Every version pins its own list of settings in each entry of the offset log, so the log tells by which versions"
    " it was written. A newer Spark reads what an older one wrote and goes on in the newer form; the way back may be"
    " closed: log versions, RocksDB snapshots and state format v2 of a newer Spark are not all read by an older one.",
    "Keep a copy of the logs from before an upgrade (`lastgood backup create`), and rehearse the restart on a copy.",
)
OTHER_ENVIRONMENT = _advice(
    "CHECKPOINT_OF_OTHER_ENVIRONMENT",
    "the checkpoint was copied from another place",
    "The metadata of `transformWithState` operators names its schema files by absolute paths. After a copy these"
    " still lead to the old place: Spark goes on reading the schema there, and fails when that place is removed or"
    " cannot be reached.",
    "Leave the old place where it is, or go back to it. State that is rebuilt from the source at the new place"
    " has paths of its own.",
)
CONDITIONS = (
    ON_LOCAL_DISK,
    IN_TABLE_FOLDER,
    SHARED,
    FEW_BATCHES,
    UNBOUNDED,
    HDFS_BACKED,
    SKEWED,
    TOO_MANY_PARTITIONS,
    TOO_FEW_PARTITIONS,
    LARGE_BATCHES,
    SMALL_BATCHES,
    NOT_REPLICATED,
    SHORT_RETENTION,
    OTHER_SPARK,
    OTHER_ENVIRONMENT,
)
