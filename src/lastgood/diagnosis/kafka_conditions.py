"""What can be wrong between a query and its Kafka topics: the conditions."""

from __future__ import annotations

from lastgood.diagnosis.findings import Condition, Severity

SOURCE_RANGE_EXPIRED = Condition(
    "SOURCE_RANGE_EXPIRED",
    Severity.ERROR,
    "records that are still to be read are deleted",
    """\
Retention deletes records by age or size, whether somebody has read them or not. The query was down or behind for
longer than the topic keeps its records, so a partition now begins above the position of the query.

Spark does not look at the beginning of a partition when it plans. It writes the plan, and a task then fails with
`Could not read records in offset [15, 25)`. That range is what was asked for, not what is missing. The plan stays
behind and fails again at every start; another `startingOffsets` changes nothing, since it counts only for a new
checkpoint.

With `failOnDataLoss=false` the batch begins at the earliest record there is, and is committed: the rest is lost with
one line in the log of an executor.

The range shown here is gone from Kafka. Its producer, a mirror or an archive may still have it. Offsets are not
records: a range may hold fewer records than offsets.""",
)
SOURCE_TOPIC_RECREATED = Condition(
    "SOURCE_TOPIC_RECREATED",
    Severity.ERROR,
    "a topic was deleted and created again",
    """\
A new topic of the same name counts its offsets from 0 again. The checkpoint knows the topic only by its name, so the
position of the query belongs to the old topic.

If the new topic holds fewer records than were read, Spark fails while it plans (`offset was changed from 15 to 5`)
and leaves that plan behind; with `failOnDataLoss=false` the offsets go back and what the new topic holds below is
skipped. If it holds more, nothing fails and nothing is logged, under any option: the query goes on at its old
number, and the records of the new topic below that number are never read.

The id of the topic proves it, where it was written down: `lastgood run`, `recover` and `apply` do, beside the
checkpoint, and so does a recorder. Without it there are signs: a topic that ends before what was read, partitions that
are fewer, or records below the position that are younger than the batch that read up to there. The last is no proof,
since producers set the times of their records themselves.

Nobody can tell from outside what was unread of the old topic. The new one has to be read from its beginning.""",
)
SOURCE_TOPIC_GONE = Condition(
    "SOURCE_TOPIC_GONE",
    Severity.ERROR,
    "a topic that is read does not exist",
    """\
With `subscribe` and `assign` the query cannot start: `UnknownTopicOrPartitionException`, three attempts, and the
checkpoint stays as it is. `failOnDataLoss` has no say in it. With `subscribePattern` the topic's partitions count as
deleted: Spark plans a batch without them and then fails, or, with `failOnDataLoss=false`, goes on and forgets their
position. Where the pattern matches no topic at all any more, it waits for one without a word.

No checkpoint tells which of them the query uses: a recorder and a driver's log do, and `--subscribe-pattern`.
A batch that was planned before and reads nothing of the topic still runs.

A file of facts about Kafka (`--kafka FILE`) names such a topic in `gone`. One that it does not name at all may exist or
not, which is said as a warning and among what is not known.

What was unread in it is lost. If it is created again under its name, its offsets begin at 0 and the checkpoint's do
not fit: see SOURCE_TOPIC_RECREATED.

Check the address of the broker first: a topic that exists elsewhere is not lost.""",
)
SOURCE_PARTITIONS_GONE = Condition(
    "SOURCE_PARTITIONS_GONE",
    Severity.ERROR,
    "partitions that were read do not exist any more",
    """\
Kafka never takes partitions away from a topic. They are gone because the topic was deleted and created again with
fewer, because the query no longer subscribes to the topic, or because somebody wrote a partition into the plan that
never was.

Spark plans a batch without them and then fails (`Partitions Set(orders-1) have been deleted`; 3.5: `are gone`). That
plan outlives its cause: when the partitions are back, it still lacks them and still fails. With
`failOnDataLoss=false` the query goes on and forgets where it stood in them: what was unread is lost, and if they
come back, they are read from their beginning, a second time.""",
)
SOURCE_PARTITIONS_ADDED = Condition(
    "SOURCE_PARTITIONS_ADDED",
    Severity.INFO,
    "there are partitions that the query has not read yet",
    """\
Partitions that were added to a topic are found when the next batch is planned, and read from their beginning,
whatever `startingOffsets` says. Nothing is lost and nothing has to be done, but keys may now go to other partitions
than before.

A query that names its partitions itself (`assign`) does not read them.""",
)
SOURCE_PARTITION_STARTS_LATE = Condition(
    "SOURCE_PARTITION_STARTS_LATE",
    Severity.ERROR,
    "the first records of a new partition are gone",
    """\
A partition that the query has not read yet begins above offset 0: retention has deleted its first records before
they were read.

Spark plans the batch and then fails (`Added partition orders-2 starts from 4 instead of 0`), and the plan stays
behind. With `failOnDataLoss=false` it begins at the first record there is, with a warning in the log. A query that
names its partitions itself (`assign`) does not read the partition and does not fail.""",
)
SOURCE_SUBSCRIPTION_CHANGED = Condition(
    "SOURCE_SUBSCRIPTION_CHANGED",
    Severity.WARNING,
    "a committed batch no longer names topics that the batch before it named",
    """\
The application subscribes to other topics than before, or a topic was deleted. Spark does not write the subscription
down; it shows only in the plans. A batch that leaves a topic out can only be committed with `failOnDataLoss=false`,
and with it the position in that topic is forgotten.

What was unread there is not read. If the topic is subscribed to again, it counts as new and is read from its
beginning, whatever `startingOffsets` says: everything that was read before comes a second time.

To take it up where it was left, its old offsets have to be put into the newest committed plan. `lastgood offsets`
shows them for the batch before the change.""",
)
SOURCE_OFFSET_NEGATIVE = Condition(
    "SOURCE_OFFSET_NEGATIVE",
    Severity.ERROR,
    "an offset in the plan is no position",
    """\
Spark itself always writes real offsets. A negative one was put there by hand, or came from `startingOffsets`.

-2 in a committed plan works: the next batch begins at the earliest record there is then, without a check for lost
data, and ignores `maxOffsetsPerTrigger` once. What of it had been read before is read again; what Kafka had deleted by
then may have been read by no batch, which only a topic that still begins at 0 disproves. -1, or any other
negative number, fails in a task (`earliest offset -1 does not equal -2`) at every start.""",
)
SOURCE_INITIAL_OFFSETS_LOST = Condition(
    "SOURCE_INITIAL_OFFSETS_LOST",
    Severity.ERROR,
    "where the first batch begins is lost",
    """\
Batch 0 has no plan before it, so a Kafka source writes down where it began, in `sources/<i>/0`, before anything
else. Until batch 0 is committed that file is the only place.

If it is gone, Spark resolves `startingOffsets` again, today. With `earliest` little changes. With `latest`, which is
the default, the batch would begin above the end of its own plan, and if the plan is dropped as well, everything that
was written since the query was first started is skipped without a message. If it is there and cannot be read, the
query does not start.

Put it back from the mirror, or write it anew with the offsets at which the query was first started.""",
)
SOURCE_TOPIC_COMPACTED = Condition(
    "SOURCE_TOPIC_COMPACTED",
    Severity.INFO,
    "a topic is compacted: counts of its offsets are no proof",
    """\
Kafka removes records of a compacted topic (`cleanup.policy` contains `compact`) as soon as a newer one has the same
key, also in the middle. A batch over 59 offsets may read 22 records, and all is well.

So a difference between offsets and rows shows nothing here, and what is read again later may be less than at first:
reprocessing such a topic does not give the same rows.""",
)
SOURCE_TRANSACTION_OPEN = Condition(
    "SOURCE_TRANSACTION_OPEN",
    Severity.INFO,
    "a producer's transaction is open in a topic",
    """\
A query that reads with `kafka.isolation.level=read_committed` ends at the last stable offset, below the records of
an open transaction. If the transaction is never ended, the query seems to stand still. A query with Spark's default,
`read_uncommitted`, reads on, aborted records included.

Transactions also use up offsets for their markers: the number of rows is smaller than the number of offsets, and the
lag may stay at 1 with nothing to read.""",
)
ORPHAN_LARGE = Condition(
    "ORPHAN_LARGE",
    Severity.INFO,
    "the batch that runs again is far larger than those before it",
    """\
A planned batch runs again as it was planned. `maxOffsetsPerTrigger` limits what is planned, not what is run again,
so a lower limit changes nothing until this batch is committed. If the batch failed because it is too large for the
memory or the time it has, it fails again.

The way out is to have it planned anew under today's limit, which is safe while no sink holds any of it.""",
)
CONDITIONS = (
    SOURCE_RANGE_EXPIRED,
    SOURCE_TOPIC_RECREATED,
    SOURCE_TOPIC_GONE,
    SOURCE_PARTITIONS_GONE,
    SOURCE_PARTITION_STARTS_LATE,
    SOURCE_OFFSET_NEGATIVE,
    SOURCE_INITIAL_OFFSETS_LOST,
    SOURCE_SUBSCRIPTION_CHANGED,
    SOURCE_PARTITIONS_ADDED,
    SOURCE_TOPIC_COMPACTED,
    SOURCE_TRANSACTION_OPEN,
    ORPHAN_LARGE,
)
