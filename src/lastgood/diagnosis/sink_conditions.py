"""What can be wrong between a query and the sink that it writes: the conditions."""

from __future__ import annotations

from lastgood.diagnosis.findings import Condition, Severity

SINK_WOULD_SKIP = Condition(
    "SINK_WOULD_SKIP",
    Severity.ERROR,
    "the sink would drop batches that are still to come",
    """\
Delta, Iceberg and Spark's file sink remember the number of the newest batch that they hold. A batch with that number
or a lower one is dropped, whatever is in it: no error, one INFO line in the driver's log (`Skipping already complete
epoch 3`), and Spark commits the batch.

That is what makes a batch that runs again harmless. It becomes a loss when numbers are used a second time for other
data: a checkpoint that was cut back or restored from an older copy while the sink was left as it is; a new
checkpoint, or a second query, on a folder of the file sink, which knows no query, only numbers; a constant
`txnAppId`; a Delta table that was RESTOREd, since RESTORE takes rows back and leaves the number.

Whatever the new batches read and the old ones of the same number did not is lost. Where the new batches are smaller
than the old ones were, rows are written a second time as well, as soon as the numbers are high enough.

Either the checkpoint goes forward to the sink (its plans and commits put back from the mirror or a backup), or the
sink goes back to the checkpoint, rows and number together, or the query goes on with numbers above those of the
sink. Do not start it before.""",
)
SINK_HOLDS_ORPHAN = Condition(
    "SINK_HOLDS_ORPHAN",
    Severity.INFO,
    "the sink holds the batch that was not committed",
    """\
The query died between the sink and the commit. The next start runs the batch again with the same range, the sink
recognises its number and drops it, and the batch is committed: every row is there once.

So nothing has to be done. But the batch must not be planned anew: with another range under the same number, what is
in that range only would be dropped.""",
)
SINK_WOULD_REPEAT = Condition(
    "SINK_WOULD_REPEAT",
    Severity.ERROR,
    "the sink holds the batch that runs again, and would not recognise it",
    """\
The batch is in the sink, but the mark by which the sink would know it is gone: the transaction of a Delta table is
older than `delta.setTransactionRetentionDuration`, the snapshots of an Iceberg table have expired, or an Iceberg
query writes a branch, whose marks Spark looks for on `main`.

The next start runs the batch again and its rows are written a second time. Put the mark back before the query is
started, or commit the batch by hand if its state is complete.""",
)
SINK_BEHIND = Condition(
    "SINK_BEHIND",
    Severity.ERROR,
    "committed batches are not in the sink",
    """\
The checkpoint takes these batches for done and the sources have been read past them, but the sink does not show
them. The sink was restored or rolled back, the table was created again, the log of a file sink was cut, commits were
written by hand, or this is not the sink that the query writes.

No start brings these rows back: Spark never looks at what a sink shows. The checkpoint has to go back to the newest
batch that the sink shows, while its plans and the records in the source are still there.

A `foreachBatch` function that returns early when there is nothing to write leaves no mark: then a sink that is
behind proves nothing by itself.""",
)
SINK_ROLLED_BACK = Condition(
    "SINK_ROLLED_BACK",
    Severity.ERROR,
    "rows of batches were taken back from the sink, and its mark was not",
    """\
`RESTORE` of a Delta table removes the rows of later versions. It does not touch the transaction of the query: the
table still answers that it holds the batches whose rows are gone. If they are run again, it drops them.

So neither a restart nor a cut of the checkpoint brings the rows back: the mark has to be lowered to the newest batch
that is really there, first, and the checkpoint cut to the same batch after that. Batches that were written after the
RESTORE leave a hole below them, which only the whole stretch, run again, can fill.

It is a warning where nobody can tell what is left of the rows: somebody has put fewer in the place of all that were
there (an overwrite by an older version, `CREATE OR REPLACE TABLE`), or deleted all that the newest batches had written,
or a loss of power has left a version of the table's log empty, which Delta reads as one that wrote nothing. Who
empties a table or deletes old rows does what is done with a table all the time, and takes no batch back.""",
)
SINK_BATCHES_SKIPPED = Condition(
    "SINK_BATCHES_SKIPPED",
    Severity.ERROR,
    "committed batches were dropped by the sink",
    """\
The sink holds batches of these numbers since before they were planned. So when they ran, the sink took them for
those that it had, and dropped what they had read. Spark has committed them and knows nothing of it; `numInputRows`
of their progress was 0.

It happens after a checkpoint was cut back or begun anew on a sink that was left as it is: see SINK_WOULD_SKIP.

What these batches read, beyond what the old ones of the same numbers had written, is missing in the sink. `lastgood
inspect --batch N` shows what that was. The times of two clocks are compared: where they are not those of one
machine, and all batches look alike, it may be the clocks.""",
)
SINK_BATCHES_MISSING = Condition(
    "SINK_BATCHES_MISSING",
    Severity.ERROR,
    "batches below the newest one are not in the sink",
    """\
The sink shows later batches of the query and not these, though its log reaches back far enough to tell. They were
committed without having been written: two plans without a commit, of which Spark runs only the newest; a commit
written by hand; a table that was exchanged in between.

Their rows are missing. The checkpoint has to go back below them, together with the sink, to write them.

It is a warning where they may have left no mark: a function need not mark a batch without rows, and what is older than
all that the sink shows may have been written without one, or elsewhere. No plan is exactly once then.""",
)
SINK_BATCH_TWICE = Condition(
    "SINK_BATCH_TWICE",
    Severity.ERROR,
    "a batch stands in the sink twice",
    """\
Two versions of the table hold rows of the same batch, and none of them was taken back. The sink did not recognise
the batch when it ran again: its mark had expired, or had been lowered while the rows stayed.

If both hold the same range, its rows are doubled. One of the two versions has to be taken back: the older one is
what a reader saw first.""",
)
SINK_LOG_GAP = Condition(
    "SINK_LOG_GAP",
    Severity.ERROR,
    "the log of a file sink is not whole",
    """\
Spark's file sink lists its data files in `_spark_metadata`, one entry for each batch, and every few batches one that
holds all before it (`N.compact`). Spark reads the folder through that log and through nothing else.

An entry that is missing or damaged since the last compaction makes every reader fail, and the next compaction too
(`… doesn't exist (latestId: …)`, `BATCH_METADATA_NOT_FOUND`). An empty `_spark_metadata` is worse: the folder reads
as an empty table, without an error. If the whole of it was deleted, Spark lists the folder instead, unfinished files
included, until the next batch begins a log at its own number.

Numbers must also go on without a hole: a query whose next batch is not the one after the sink's newest runs until
the next compaction, and then dies. Entries that hold nothing (`v1`) for the missing numbers cure that, if their
batches are known to have written nothing. `plan` never leaves a number out: it refuses where it would have to, and
where the log is gone though batches are done.""",
)
SINK_FILES_GONE = Condition(
    "SINK_FILES_GONE",
    Severity.ERROR,
    "data files that the log of a sink names are gone",
    """\
Spark reads a file sink and a Delta table by their logs, and stops at a file that is named there and does not exist
(`FAILED_READ_FILE.FILE_NOT_EXIST`). The query itself does not notice: it goes on writing, and takes the batch for
written. Somebody, a clean-up script or a lifecycle rule has removed the file, or a machine has lost it that died;
readers that list the folder themselves just miss its rows.

Looked for are the newest files: 10,000 in 20 folders of a file sink, 100 of a Delta table.

Put the files back from a copy. If there is none, their rows have to be read from the source again. Those of the batch
that runs again are, by `lastgood plan CHECKPOINT --goal replan`: it has the sink give that batch back. What is missing
of a batch that is done, `lastgood verify CHECKPOINT --data` names.""",
)
SINK_FILES_DAMAGED = Condition(
    "SINK_FILES_DAMAGED",
    Severity.ERROR,
    "data files of a sink are not as long as its log says",
    """\
A machine that loses its power may leave a file empty or cut short beside a log that is whole, and so may a copy that
broke off. Spark looks at no file when a query starts, and takes the batch for written. Readers fail at a Parquet file;
of text, CSV and JSON they miss the rows without an error.

Looked at are the newest files, as for SINK_FILES_GONE, and what to do is the same.""",
)
SINK_GONE = Condition(
    "SINK_GONE",
    Severity.ERROR,
    "there is nothing where the query has written",
    """\
Batches are committed, and at the place that was named as the sink there is nothing: the table was dropped or moved,
or it is not the place that the query writes. Check that first.

If the sink is gone, a start makes a new one that begins with the next batch. What was in the old one comes back from
a copy of it, or by reading the source from its beginning.""",
)
SINK_SHOWS_NONE = Condition(
    "SINK_SHOWS_NONE",
    Severity.WARNING,
    "the sink shows no batch of this query",
    """\
Batches are committed, and the sink shows none of them. It may be another sink than the one that the query writes; it
may have been created again; or the query writes it by a `foreachBatch` function that leaves no mark.

In the last case all may be well, but nobody can tell from the sink which batches are in it, and a batch that runs
again is written again. A function that gives Delta `txnAppId` and `txnVersion`, or that writes a fence table in the
same transaction, cures that.""",
)
QUERY_ID_CHANGED = Condition(
    "QUERY_ID_CHANGED",
    Severity.WARNING,
    "the sink knows this checkpoint's batches under another query id",
    """\
Delta and Iceberg recognise batches by the id of the query, which stands in the file `metadata` of the checkpoint.
This sink shows none of the query's batches, but those of another id, up to exactly where this checkpoint stands:
`metadata` was lost or replaced, and Spark (before 4.2) has made up a new id without a word.

The batches that are written from now on are told apart by the new id, so nothing is doubled but a batch that was not
committed: the sink has it under the old id and takes it again.

Put the old id back into `metadata` before the query is started. It stands in the evidence here.""",
)
SINK_KNOWS_OTHER_QUERY = Condition(
    "SINK_KNOWS_OTHER_QUERY",
    Severity.INFO,
    "the sink holds batches of other queries or applications",
    """\
Several queries may well write one Delta or Iceberg table: each has its own id and its own numbers.

It is not well if the other one is a former checkpoint of the same application. A new checkpoint is a new query:
where it reads the source from an earlier offset than the old one had reached, those rows are in the table twice.

A name that is no query id is the `txnAppId` of a `foreachBatch` function. If it is the same for every checkpoint, a
new checkpoint begins at number 0 and the table drops all its batches up to the old number.""",
)
SINK_MARKER_UNKNOWN = Condition(
    "SINK_MARKER_UNKNOWN",
    Severity.WARNING,
    "the sink cannot tell which batches of the query it holds",
    """\
The sink answers, but the mark of the query may have aged out: the transaction has expired
(`delta.setTransactionRetentionDuration`), the log of the table is cleaned up, the snapshots with the mark are gone.
Or the table is one that lastgood does not judge by its log: a catalog keeps the newest commits, it is redirected, it
has a protocol version or a table feature that lastgood does not know, or a checkpoint or action of its log is not as
it should be. That a batch is not shown then means nothing.

As long as every batch is committed this does no harm. With a batch that is not, a restart is at least once: if the
sink holds it already, its rows come twice.""",
)
SINK_UNKNOWN = Condition(
    "SINK_UNKNOWN",
    Severity.WARNING,
    "the sink did not tell what it holds",
    """\
The sink did not answer, did not let us look, or is no sink that keeps a record of its batches. So nobody knows
whether it agrees with the checkpoint, and no guarantee can rest on it.

Ask again with the credentials that the query has, or name the kind of the sink (`delta:`, `file:`, `iceberg:` before
the location).""",
)
SINKS_APART = Condition(
    "SINKS_APART",
    Severity.INFO,
    "the sinks of the query do not stand at the same batch",
    """\
A `foreachBatch` function that writes several tables died between two of them. When the batch runs again with the
same range, each table that recognises batches drops what it has, and those that lack it get it: all agree again.

The batch must not be planned anew: with another range, the tables would differ for good.""",
)
SINK_NOT_WRITABLE = Condition(
    "SINK_NOT_WRITABLE",
    Severity.INFO,
    "lastgood could not take anything back in this sink",
    """\
To go back to an earlier batch the sink has to go back as well, rows and mark in one commit. This sink has features
that lastgood does not write, or it is of a kind that lastgood only reads. Spark itself is not affected; recoveries
that leave the sink as it is are possible all the same.""",
)
SINK_NOTES = Condition(
    "SINK_NOTES",
    Severity.INFO,
    "the sink shows something to know of",
    """\
What was seen in the log of the sink and is not a fault by itself: marks that expire, settings that are not
understood, a fence table that knows numbers only. The evidence has it in words.""",
)
CONDITIONS = (
    SINK_WOULD_SKIP,
    SINK_ROLLED_BACK,
    SINK_BEHIND,
    SINK_BATCHES_SKIPPED,
    SINK_BATCHES_MISSING,
    SINK_BATCH_TWICE,
    SINK_WOULD_REPEAT,
    SINK_LOG_GAP,
    SINK_FILES_GONE,
    SINK_FILES_DAMAGED,
    SINK_GONE,
    QUERY_ID_CHANGED,
    SINK_SHOWS_NONE,
    SINK_MARKER_UNKNOWN,
    SINK_UNKNOWN,
    SINK_HOLDS_ORPHAN,
    SINKS_APART,
    SINK_KNOWS_OTHER_QUERY,
    SINK_NOT_WRITABLE,
    SINK_NOTES,
)
