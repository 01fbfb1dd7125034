"""The kinds of advice, told once: none of them is an error, and each can be followed or left.

A retention that falls short of what a person has said is a warning.
"""

from __future__ import annotations

from lastgood.diagnosis.findings import Condition, Severity


def _make_advice(name: str, title: str, *story: str) -> Condition:
    return Condition(name, Severity.INFO, title, "\n\n".join(story))


ON_LOCAL_DISK = _make_advice(
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
IN_TABLE_FOLDER = _make_advice(
    "CHECKPOINT_IN_TABLE_FOLDER",
    "the checkpoint lies inside the folder of a table",
    "Whoever drops, replaces or cleans up the table then takes the checkpoint along. Delta's VACUUM and Iceberg's"
    " remove_orphan_files delete every file below the table that the table does not know, once it is old enough;"
    " names that begin with `_` or `.` they leave alone. A file sink's folder is read by many engines as all the"
    " files in it.",
    "Give checkpoints a root of their own, beside the tables. To move this one, stop the query, copy the folder, and"
    " start with the new `checkpointLocation`.",
)
SHARED = _make_advice(
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
FEW_BATCHES = _make_advice(
    "FEW_BATCHES_RETAINED",
    "Spark keeps fewer batches than it does by default",
    "When Spark plans batch N it removes what is older than N - R from the offset log, the commit log and the state,"
    " where R is `spark.sql.streaming.minBatchesToRetain`: by default 100, so that 101 files are left in each log. A"
    " query can be taken back by at most R - 1 batches, and `--stable-lag` reaches no further than R.",
    "A batch costs two small files, and with state a few more; a lowered value saves next to nothing. The setting is"
    " read at every start of the query and counts from the next batch on.",
)
UNBOUNDED = _make_advice(
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
HDFS_BACKED = _make_advice(
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
SKEWED = _make_advice(
    "SKEWED_STATE",
    "one partition of the state is much larger than the others",
    "A batch ends when its slowest partition does, so one that holds many times the state of the others decides the"
    " time of every batch, and the memory that an executor needs. It is told where the largest partition has at least"
    " 64 MiB and five times the median.",
    "The reason is a key, or a few of them, with most of the rows: often null, an empty text or a test account. More"
    " partitions do not help, since one key lies in one partition. Filter such keys, or spread them: aggregate by the"
    " key and a small random number first, then by the key alone.",
)
TOO_MANY_PARTITIONS = _make_advice(
    "TOO_MANY_SHUFFLE_PARTITIONS",
    "the state is cut into far more partitions than it needs",
    "Every batch runs a task for each partition of each stateful operator and writes at least one file for each of"
    " its stores, however little there is in it. With `spark.sql.shuffle.partitions` at its default of 200 that alone"
    " takes seconds on an object store. It is told for 50 partitions and more that hold less than 1 MiB each.",
    "The number is pinned in the offset log by the first batch: a changed setting is ignored for ever. Another one"
    " takes effect when the state is rebuilt from the source; Spark 4.2 and later can also repartition offline. Take"
    " one to three partitions for each core that works for the query.",
)
TOO_FEW_PARTITIONS = _make_advice(
    "TOO_FEW_SHUFFLE_PARTITIONS",
    "the state is cut into too few partitions for its size",
    "A partition of the state is loaded, held and written by one task. Above some 100 MiB a partition with the"
    " HDFS-backed provider, or 1 GiB with RocksDB (both on disk, compressed), loading and snapshots take minutes and"
    " executors run out of memory.",
    "The number is pinned in the offset log by the first batch: a changed setting is ignored for ever. Another one"
    " takes effect when the state is rebuilt from the source.",
)
LARGE_BATCHES = _make_advice(
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
SMALL_BATCHES = _make_advice(
    "BATCHES_TOO_SMALL",
    "the limit of a batch keeps the query behind while it is idle",
    "Every batch reads the same number of offsets and leaves others unread, the lag does not shrink, and more than"
    " half of each trigger interval passes without work: `maxOffsetsPerTrigger` is too low for the interval.",
    "The limit that is named is what the query does in 80 % of its trigger interval, at the recorded rate. It is an"
    " option of the source, so it counts from the next start on.",
)
NOT_REPLICATED = _make_advice(
    "TOPIC_NOT_REPLICATED",
    "a topic has no second copy",
    "With a replication factor of 1 every partition lies on one broker. While that broker is down the query cannot"
    " read, and if its disk is lost, so are the records that no batch has read; no recovery of the query can bring"
    " them back.",
    "Three copies and `min.insync.replicas=2` are usual. `kafka-reassign-partitions.sh` adds replicas while the topic"
    " is in use: its JSON file names the brokers of each partition.",
)
SHORT_RETENTION = Condition(
    "TOPIC_RETENTION_SHORT",
    Severity.WARNING,
    "Kafka deletes records sooner than the query may be down",
    "Kafka deletes a segment of a topic once its newest record is older than `retention.ms`, read or not. A query"
    " that is down for longer loses what it had not read, and with `failOnDataLoss` at its default it then refuses to"
    " start.\n\n`max_downtime` of a pipeline in `lastgood.toml`, or `--max-downtime`, says how long the query may be"
    " down: then it is a warning of `diagnose`, `status`, `run` and `run --check`. Where nobody says it, it is an"
    " info of `diagnose` for a retention below seven days, which is Kafka's default.\n\nRetention should exceed the"
    " downtime by the lag that the query has when it stops, and the time that it needs to catch up: the value that is"
    " named leaves a third more. `retention.bytes`, where it is set, may delete sooner still.",
)
RETENTION_BY_SIZE = _make_advice(
    "TOPIC_RETENTION_BY_SIZE",
    "a limit of bytes may delete records sooner than the query may be down",
    "`retention.ms` is long enough, but `retention.bytes` deletes the oldest segments of a partition as soon as all"
    " others hold that much. It is told where the oldest record that a partition still has is younger than"
    " `max_downtime` (`--max-downtime`), though older ones were deleted.",
    "That is an estimate: the partition may have been idle before, or somebody may have deleted the rest. The value"
    " that is named is what the rate of today comes to over the downtime, and a third more; the broker needs the disk"
    " for it, for each partition and each copy.",
)
SEGMENTS_LONG = _make_advice(
    "TOPIC_SEGMENTS_LONG",
    "a topic's segments are longer than its retention",
    "Kafka deletes by whole segments. A segment is closed `segment.ms` after its first record, or when it holds"
    " `segment.bytes`, and goes `retention.ms` after its newest record. So a partition in use keeps its oldest"
    " records up to the sum of both; a query that reads it from the earliest offset gets that much, and what it has"
    " not read may look safe long after its time, until a whole segment is gone at once.",
    "The newest segment is no exception: where nobody has written for `retention.ms`, Kafka closes and deletes it as"
    " well. What is sure is `retention.ms` alone, as long as `retention.bytes` is not set.",
    "The value that is named cuts the retention into ten. It counts for segments that begin afterwards.",
)
SEGMENTS_MANY = _make_advice(
    "TOPIC_SEGMENTS_MANY",
    "a topic is cut into very many segments",
    "Each segment is a log file with two indexes and more, which the broker keeps open, and of which it maps the"
    " indexes into memory. With a thousand and more for each partition a broker meets the limit of open files, or of"
    " memory maps (`vm.max_map_count`, 65,530 by default), and goes down with all its topics; its start takes long,"
    " too.",
    "It is told where `retention.ms` is a thousand times `segment.ms` or more: a partition that is written to all the"
    " time then has that many. One that is idle has fewer, since a segment is only closed when a record comes.",
    "The value that is named cuts the retention into ten.",
)
OTHER_SPARK = _make_advice(
    "CHECKPOINT_OF_OTHER_SPARK",
    "the checkpoint was written by another version of Spark",
    "Every version pins its own list of settings in each entry of the offset log, so the log tells by which versions"
    " it was written. A newer Spark reads what an older one wrote and goes on in the newer form; the way back may be"
    " closed: log versions, RocksDB snapshots and state format v2 of a newer Spark are not all read by an older one.",
    "Keep a copy of the logs from before an upgrade (`lastgood backup create`), and rehearse the restart on a copy.",
)
OTHER_ENVIRONMENT = _make_advice(
    "CHECKPOINT_OF_OTHER_ENVIRONMENT",
    "the checkpoint was copied from another place",
    "The metadata of `transformWithState` operators names its schema files by absolute paths. After a copy these"
    " still lead to the old place: Spark goes on reading the schema there, and fails when that place is removed or"
    " cannot be reached.",
    "Leave the old place where it is, or go back to it. State that is rebuilt from the source at the new place"
    " has paths of its own.",
)
CLIENT_TIMEOUT = _make_advice(
    "KAFKA_CLIENT_TIMEOUT",
    "a query died because a Kafka client waited no longer",
    "It is told from a driver's log (`--log`) whose failure names the time that was waited. Which option is meant"
    " depends on who waited: `kafkaConsumer.pollTimeoutMs` for a record in a task (without it"
    " `spark.network.timeout`, 120 s), `fetchOffset.numRetries` and `fetchOffset.retryIntervalMs` (3, and 1000 ms)"
    " for topics and offsets in the driver, `kafka.default.api.timeout.ms` (60 s) for any other answer to a consumer,"
    " `kafka.delivery.timeout.ms` (120 s) and `kafka.max.block.ms` (60 s) for a sink.",
    "All are options of the source or the sink; what begins with `kafka.` goes to Kafka's client as it is. The value"
    " that is named is the default, or twice what was waited where that was no less. `session.timeout.ms` and"
    " `max.poll.interval.ms` change nothing: Spark's consumers are assigned their partitions and belong to no group"
    " that could rebalance.",
    "A longer wait helps against a broker that restarts or is slow. Against a name that is wrong, a network that is"
    " closed or a topic that does not exist it only makes the failure come later.",
)
TASK_FAILURES = _make_advice(
    "TASK_FAILURES_FEW",
    "a task got few attempts at something that passes",
    "A task that fails is tried again, elsewhere where there are several executors: `spark.task.maxFailures` times in"
    " all, by default 4. In local mode it gets one attempt whatever that setting says, unless the master is"
    " `local[THREADS,ATTEMPTS]`. When the last one fails, so does the batch, and with it the query.",
    "It is told from a driver's log (`--log`) whose failure passes by itself, such as a broker that does not answer"
    " or an executor that was lost, with the number of attempts that stand in it. More of them do not help against"
    " data or code that fail each time; those are told by FAILURE_POISON_DATA.",
)
SHUFFLE_NOT_TRACKED = _make_advice(
    "SHUFFLE_NOT_TRACKED",
    "dynamic allocation has nothing that keeps shuffle files",
    "With `spark.dynamicAllocation.enabled` Spark removes executors that are idle, and with them the shuffle files"
    " that they have written. So it starts only with an external shuffle service (`spark.shuffle.service.enabled`),"
    " with `spark.dynamicAllocation.shuffleTracking.enabled` (true unless somebody has set it to false), or with"
    " `spark.decommission.enabled` and `spark.storage.decommission.shuffleBlocks.enabled`.",
    "It is told from a driver's log (`--log`): where Spark refuses to start for that reason, or where a query died of"
    " shuffle files that were gone and idle executors were removed before.",
    "A streaming query is idle between two batches. State stores live in its executors, so that each one that is"
    " removed has its state loaded again elsewhere: `spark.dynamicAllocation.minExecutors` keeps as many as a batch"
    " needs.",
)
BEYOND_RESOURCES = _make_advice(
    "BATCH_EXCEEDS_RESOURCES",
    "memory or disk did not suffice for a batch that reads very much",
    "It is told where a driver's log (`--log`) ends for want of memory or disk, and the batch that is to run reads"
    " ten times as many offsets as the largest before it, or ten files and more. After an outage that is the whole"
    " backlog, at a first start the whole history, unless the source has a limit.",
    "`maxOffsetsPerTrigger` is the limit of a Kafka source, `maxFilesPerTrigger` that of a file source (no limit by"
    " default) and of a Delta source (1000 by default); `maxBytesPerTrigger` goes by size, for Delta, and for files"
    " since Spark 4.0. The value that is named is the largest batch that was done before, or a tenth of the files.",
    "A limit counts from the next planned batch on. One that is planned already keeps its range at every start:"
    " `--goal replan` drops it, where that is safe.",
)
NOT_EXPIRED = _make_advice(
    "UNEXPIRED_STATE",
    "the state of transformWithState grows, and none of it expires",
    "State variables of `transformWithState` are kept until the application clears them, a timer of it does, or their"
    " time to live is over. It is told where the operator's metadata say that no variable has one (`ttlEnabled`), and"
    " at least 20 recorded batches show that the number of keys grew to the last.",
    "A time to live is given with the variable, in Python"
    ' `handle.getValueState("NAME", SCHEMA, ttlDurationMs=86400000)`, in Scala'
    " `getHandle.getValueState[T](NAME, Encoders, TTLConfig(Duration.ofDays(1)))`, and needs the time mode"
    " `ProcessingTime`. It counts from the last update of a value.",
    "Both are pinned in the operator's metadata, and the schema of its state changes with them: state that is there"
    " has to be rebuilt from the source.",
)
CONDITIONS = (
    ON_LOCAL_DISK,
    IN_TABLE_FOLDER,
    SHARED,
    FEW_BATCHES,
    UNBOUNDED,
    NOT_EXPIRED,
    HDFS_BACKED,
    SKEWED,
    TOO_MANY_PARTITIONS,
    TOO_FEW_PARTITIONS,
    LARGE_BATCHES,
    SMALL_BATCHES,
    BEYOND_RESOURCES,
    CLIENT_TIMEOUT,
    TASK_FAILURES,
    SHUFFLE_NOT_TRACKED,
    NOT_REPLICATED,
    SHORT_RETENTION,
    RETENTION_BY_SIZE,
    SEGMENTS_LONG,
    SEGMENTS_MANY,
    OTHER_SPARK,
    OTHER_ENVIRONMENT,
)
