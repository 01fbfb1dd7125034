"""What can be wrong with any source, with files and with Delta tables that are read as streams: the conditions."""

from __future__ import annotations

from lastgood.diagnosis.findings import Condition, Severity

SOURCE_UNKNOWN = Condition(
    "SOURCE_UNKNOWN",
    Severity.WARNING,
    "a source was asked and did not tell what it still has",
    """\
The broker, the storage or the table that the query reads was asked what it can still serve, and did not answer, or
did not let us look. So nobody knows whether data is being lost right now, and the prediction of the next start
leaves this source out.

It is not a fault of the query. Ask again, with the credentials that the query has: `--kafka-config` takes the same
`client.properties` as Kafka's own tools.""",
)
SOURCE_OFFSET_WENT_BACK = Condition(
    "SOURCE_OFFSET_WENT_BACK",
    Severity.ERROR,
    "an offset is behind one that came before it",
    """\
Offsets only grow while a source is what it was. They go back if a topic was deleted and created again, if its log
was cut by an unclean election, if a Delta table was made anew, put back from a copy, or its log cut, or if somebody has
edited a plan.

Where the source now ends below the position of the query, Spark stops while it plans, with the plan written already
(`Partition …'s offset was changed from 20 to 17`). With `failOnDataLoss=false` it takes the lower offset without a
message: the batch reads nothing, and what is written between the lower and the higher offset before the next plan is
never read. Where a committed batch already went back, that has happened; unless a recovery of lastgood moved the query
back, which is told with its name and is no trouble.

Right after a broker has handed its partitions on, Kafka may show an older end for a moment. Look again before you
act.""",
)
ORPHAN_UNREPLAYABLE = Condition(
    "ORPHAN_UNREPLAYABLE",
    Severity.ERROR,
    "a batch is planned, not committed, and cannot run again as it was planned",
    """\
A planned batch runs again with exactly the ranges in its plan, until it is committed. It cannot if the plan ends
before it begins, if it leaves out a partition that the plan before it had, if records in its range are deleted, or
if it ends above where the partition ends.

Spark leaves such a plan behind itself: it writes the plan first and finds out then, in the driver or in a task.
Every later start meets the same plan and fails with the same message, also when the cause is long gone: the topic
has grown again, the subscription is put back, `startingOffsets` is corrected.

With `failOnDataLoss=false` the batch runs with what there is, perhaps with nothing, and is committed: what is
missing is lost without a message, and a partition that the plan leaves out is forgotten, so that it is read from its
beginning if it comes back.

The plan has to go before anything else is judged; then the batch is planned anew from where the last committed one
ended. If a sink shows the batch already, it must be taken back there first.""",
)
SOURCE_FILES_GONE = Condition(
    "SOURCE_FILES_GONE",
    Severity.ERROR,
    "files that a source has noted down are gone",
    """\
A file source notes in its own log which files a batch reads, and opens them only when the batch runs. Files that a
clean-up job, a lifecycle rule or `cleanSource` has removed by then are skipped: the batch runs with fewer rows, or
with none, and is committed without an error.

For a batch that has not finished this is silent loss, and for files that no plan names yet: the source notes them
down first, and where the driver dies in between, the next batch reads them by that note. Put the files back, under the
same names, before the query is started. For a committed batch it only means that nobody can go back behind it.""",
)
SOURCE_FILES_CHANGED = Condition(
    "SOURCE_FILES_CHANGED",
    Severity.INFO,
    "files were written again after they were planned",
    """\
A file source knows files by their path, and forgets a path that is older than the newest file it has read by more
than `maxFileAge` (seven days unless set otherwise). A file that is written again under a name that is forgotten is
taken for a new one: the next batch reads all of it, also the rows that it had before. With `latestFirst` and a limit
per trigger no name is ever forgotten.

A batch that has not finished is different: it reads what is in the file when it runs again, which is not what its
first attempt read. A sink that recognises the batch by its number keeps the rows of the first attempt, any other
holds both.""",
)
SOURCE_FILE_IGNORED = Condition(
    "SOURCE_FILE_IGNORED",
    Severity.WARNING,
    "files that were read are there again, and are not read again",
    """\
A file source knows files by their path. While it holds a path, the file is not looked into again, whether it was
touched, written anew or delivered once more under its name: no batch, no error, and no row of what is new in it. So it
is with a file that `cleanSource` has taken away and that is delivered again. With `fileNameOnly` the last part of the
path is all that counts: then a file of another folder is not read either where one of its name was; that is not told.

It holds a path until it has read a file that is newer by more than the option `maxFileAge` (seven days unless set
otherwise; for ever with `latestFirst` and a limit per trigger). Then a file that was changed since is taken for a new
one, and all of it is read, also the rows that were read before; unless by then its change itself is older than that.

If nothing in it is new, take it away, or its rows come twice one day. If something is, deliver only that, under
another name. A smaller `maxFileAge` makes Spark read such files sooner, at a price: every file that is touched later
than that comes twice, and a file that arrives later than that is never read at all.

Found by the time of change in the listing of the folders that were read last; a file that came again with its old time
does not show.""",
)
SOURCE_FILES_TOO_OLD = Condition(
    "SOURCE_FILES_TOO_OLD",
    Severity.INFO,
    "files of a plan would not be found again",
    """\
To plan a batch of a file source anew, its entry in the source's own log has to go as well. Then its files are looked
for like new ones, and Spark ignores files that are older than the newest one it has seen by more than `maxFileAge`
(seven days unless set otherwise): they are never read, without a message.

Nothing is wrong as long as the entry stays. Before it is removed, touch these files, or copy them under new names.""",
)
SOURCE_LOG_LARGE = Condition(
    "SOURCE_LOG_LARGE",
    Severity.INFO,
    "the log of a file source is large",
    """\
A file source never forgets a file: every tenth entry of its log (`N.compact`) holds all of them again. With many
small files that entry grows to many megabytes, every tenth batch is slow, and the driver holds it in memory.

Fewer and larger files help, and so does a source that keeps no such list, such as a Delta table.""",
)
SOURCE_OFFSET_REFUSED = Condition(
    "SOURCE_OFFSET_REFUSED",
    Severity.ERROR,
    "the offset of a Delta table in the plan is none that Delta takes",
    """\
Delta writes down which table it read (`reservoirId`), in which form the rest stands (`sourceVersion`, 1 or 3), a
version and a place in it. It stops the query at its start where the form is another one, where both ends of a range are
of two tables, and where `sourceVersion` 3 has the place -1, which only 1 has.

Delta has written none of these. Put the plan back from the mirror or a backup. One that is not committed can be planned
anew where no sink has it.""",
)
SOURCE_TABLE_REPLACED = Condition(
    "SOURCE_TABLE_REPLACED",
    Severity.ERROR,
    "the Delta table that is read was created again",
    """\
A stream notes the id of the table it reads (`reservoirId`). A table that was dropped and created again, or
overwritten by a copy, has another id, and the query stops at its start with
`DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE`.

The versions of the new table count from 0 and say nothing about what was read of the old one. Find out which rows of
the new table the sink has before a new checkpoint is begun: read from its start, everything in both is doubled.""",
)
SOURCE_TABLE_GONE = Condition(
    "SOURCE_TABLE_GONE",
    Severity.ERROR,
    "the Delta table that is read is gone",
    """\
There is no Delta log at the place that the query reads. The query cannot start. What was written to the table after
the last committed batch is lost with it, unless the table was only moved: then move it back, or make the query read
the new place; the id of the table decides, not its path.""",
)
SOURCE_VERSIONS_GONE = Condition(
    "SOURCE_VERSIONS_GONE",
    Severity.ERROR,
    "versions of a Delta table that are still needed are no longer in its log",
    """\
A stream reads the commit files of a table's log, version by version. They are removed after
`delta.logRetentionDuration` (30 days unless set otherwise).

Spark asks a Delta source at every start for the range of the last committed batch once more. So the log must reach
back to where that batch *began*, one batch further than the stored offset suggests. If it does not, the query stops
with `DELTA_MISSING_FILES_UNEXPECTED_VERSION`; with `failOnDataLoss=false` the versions are skipped without a
message. If the batch was part of the table's first snapshot, it stops in either case.

Where only versions are missing that a committed batch has read, no row is lost, and a checkpoint that begins after
them loses none. Where unread versions are missing, their rows are in the table, but the stream will not bring them.""",
)
CONDITIONS = (
    ORPHAN_UNREPLAYABLE,
    SOURCE_OFFSET_WENT_BACK,
    SOURCE_FILES_GONE,
    SOURCE_OFFSET_REFUSED,
    SOURCE_TABLE_REPLACED,
    SOURCE_TABLE_GONE,
    SOURCE_VERSIONS_GONE,
    SOURCE_UNKNOWN,
    SOURCE_FILE_IGNORED,
    SOURCE_FILES_CHANGED,
    SOURCE_FILES_TOO_OLD,
    SOURCE_LOG_LARGE,
)
